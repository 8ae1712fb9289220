"""What lies between two tasks: partitioners, output buffers, aggregation before rows travel."""

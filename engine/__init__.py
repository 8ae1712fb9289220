"""What a job means: elements, operators, graphs, time and state, with no cluster, clock or thread of its own."""

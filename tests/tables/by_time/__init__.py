"""Random queries by event time, answered by DuckDB: `cases.py` runs them, `simulated.py` with faults."""

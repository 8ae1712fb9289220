"""The runtime of one process: tests, debugging, small data, the deterministic simulation."""

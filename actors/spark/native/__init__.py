"""Operators that Spark runs by itself, on rows with a column for each of ours (docs/adr/0025)."""

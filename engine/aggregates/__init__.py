"""Aggregates: what they are, their accumulators, and their computation by columns and row by row."""

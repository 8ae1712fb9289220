"""The operators: one file per family."""

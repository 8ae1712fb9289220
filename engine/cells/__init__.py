"""Accumulators of windows and sessions in dense columns, one cell for each key and slice or session."""

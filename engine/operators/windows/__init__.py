"""Operators that divide keyed streams into windows: vectorised for named aggregates, general for all else."""

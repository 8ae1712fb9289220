"""Batch mode: a job whose sources all end, run as one Spark plan on RayDP executors in the Ray cluster."""

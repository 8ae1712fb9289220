"""The life of a job: the brain that decides it, its events and instructions, and what its user holds."""

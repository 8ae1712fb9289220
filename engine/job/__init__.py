"""The life of a job: the brain that decides it, what it hears and says, and what its user holds."""

"""The public test kit: a unit harness, deterministic simulation of whole jobs, and chaos against running ones."""

"""The public test kit: deterministic simulation of whole jobs, and chaos against running ones."""

"""Checkpoints: when they are taken, what they consist of, and when they count. Pure: no storage, no cluster."""

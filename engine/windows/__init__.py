"""Which windows a timestamp belongs to, and how far event time has come."""

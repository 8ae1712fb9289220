"""Tables to try statements with."""

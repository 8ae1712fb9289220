"""JSON objects that look alike, parsed by what they have in common."""

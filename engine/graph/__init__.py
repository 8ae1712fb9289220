"""The job graph: logical (what the user wrote), rewritten (what is cheaper), physical (what runs)."""

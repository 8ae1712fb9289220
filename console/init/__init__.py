"""`penstock init`: a project to begin with, whose own tests pass as they are."""

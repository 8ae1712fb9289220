"""Rules that rewrite the logical plan: one file each, all of them pure functions of a node."""

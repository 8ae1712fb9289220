"""The logical plan: its nodes, the rules that rewrite it, and what is known of each node's changelog, keys and state."""

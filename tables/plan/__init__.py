"""The logical plan: its nodes, the rules that rewrite it, and what is known of changelogs, keys and state."""

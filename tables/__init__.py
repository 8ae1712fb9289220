"""SQL and the Table API: statements are parsed, bound, planned and lowered onto the engine's operators."""

"""The Ray shells around the engine: subtask actors, channels between them, and the job manager."""

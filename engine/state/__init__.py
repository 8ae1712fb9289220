"""Where operators keep what they must remember, and how keys are spread over subtasks."""

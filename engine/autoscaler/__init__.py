"""When a running job is to have more or fewer subtasks: readings in, decisions out; pure."""

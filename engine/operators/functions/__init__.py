"""Operators that call process functions of the user, with state, timers and side outputs."""

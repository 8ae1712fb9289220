"""The streams that a program is written with."""

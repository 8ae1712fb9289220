"""Patterns over keyed streams: what users define, the automaton made of it, and the matchers that run it."""

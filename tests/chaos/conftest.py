"""Fixtures of the chaos tests."""

from tests.actors.conftest import blamed, no_leak

__all__ = ["blamed", "no_leak"]

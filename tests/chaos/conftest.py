"""Fixtures of the chaos tests."""

from tests.actors.conftest import no_leak

__all__ = ["no_leak"]

"""What is wrong with several settings, gathered, so that one error names all of it. The environment uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.engine.errors import ConfigurationError

_T = TypeVar("_T")


class Problems:
    """What was refused so far."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    def check(self, make: Callable[[], _T], instead: _T) -> _T:
        """What `make` gives; `instead` where it refuses, to continue with until `raise_all`."""
        try:
            return make()
        except ConfigurationError as error:
            self._messages.append(str(error))
            return instead

    def raise_all(self) -> None:
        """Do so.

        Raises:
            ConfigurationError: names all of it, where there is any.
        """
        if self._messages:
            raise ConfigurationError("; ".join(self._messages))

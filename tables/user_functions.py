"""The functions of the user by name, for one environment of tables."""

from __future__ import annotations

from penstock.engine.errors import ConfigurationError
from penstock.tables.bind.built_in import BUILT_IN
from penstock.tables.functions.user import UserFunction
from penstock.tables.parse.cursor import RESERVED


class UserFunctions:
    """Names are in any letter case.

    Attributes:
        named: the functions by name, in capitals.
    """

    def __init__(self) -> None:
        self.named: dict[str, UserFunction] = {}

    def names(self) -> list[str]:
        """All names, in small letters, in order."""
        return sorted(name.lower() for name in self.named)

    def add(self, name: str, function: UserFunction) -> None:
        """Give a function a name.

        Raises:
            ConfigurationError: the name is taken, or none.
        """
        known = name.upper()
        if not name.isidentifier() or known in RESERVED:
            raise ConfigurationError(f"{name!r} cannot be called in SQL; take letters, digits and _, and no keyword")
        if known in BUILT_IN:
            raise ConfigurationError(f"SQL has a function {known} already; take another name")
        if known in self.named:
            raise ConfigurationError(f"there is a function {name!r} already; drop it before, by DROP FUNCTION {name}")
        self.named[known] = function

    def remove(self, name: str) -> bool:
        """Forget a function; whether there was one."""
        return self.named.pop(name.upper(), None) is not None

"""Reads the options of CREATE TABLE: what they must be, and where in the statement a wrong one stands.

Its connectors use it; every problem is a `SqlValidationError` at the option, or at WITH.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.engine.durations import parse_duration
from penstock.engine.errors import ConfigurationError, SqlValidationError, nearest
from penstock.tables.catalog.catalog import CatalogTable

_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a table.

    Example:
        >>> from penstock.tables.parse.statement_parser import parse_statement
        >>> from penstock.tables.parse.text import SqlText
        >>> text = "CREATE TABLE t (a INT) WITH ('connector' = 'x', 'size' = '3')"
        >>> made = parse_statement(text)
        >>> options = {option.key: option.value for option in made.options}
        >>> TableOptions(CatalogTable("t", made.definition, options, SqlText(text))).number("size", 0)
        3
    """

    table: CatalogTable

    def get(self, option: str) -> str | None:
        """The text of an option; None where it is not set."""
        return self.table.options.get(option)

    def required(self, option: str, why: str = "") -> str:
        """The text of an option that must be set.

        Args:
            option: its key.
            why: what needs it, where that is not the connector.
        """
        value = self.get(option)
        if not value:
            needs = why or f"the connector {self.table.connector!r}"
            raise self.invalid("connector", f"{needs} needs the option {option!r}")
        return value

    def choice(self, option: str, known: Sequence[_Choice], otherwise: _Choice | None = None) -> _Choice:
        """One of several values.

        Args:
            option: its key.
            known: the values that it takes.
            otherwise: where it is not set; None: it must be.
        """
        value = self.get(option)
        if value is None and otherwise is not None:
            return otherwise
        for choice in known:
            if choice == value:
                return choice
        given = f"not {value!r}{nearest(value, known)}" if value else "and it is missing"
        raise self.invalid(option, f"the option {option!r} takes {', '.join(known)}, {given}")

    def flag(self, option: str) -> bool:
        """Whether an option is 'true'; it is not where it is not set."""
        given = self.get(option)
        if given is not None and given.lower() in ("true", "false"):
            return given.lower() == "true"
        return self.choice(option, ("true", "false"), "false") == "true"

    def number(self, option: str, otherwise: int) -> int:
        """A whole number."""
        text = self.get(option)
        if text is None:
            return otherwise
        try:
            return int(text)
        except ValueError:
            raise self.invalid(option, f"the option {option!r} takes a whole number, not {text!r}") from None

    def decimal(self, option: str, otherwise: float) -> float:
        """A number, which may have a fraction."""
        text = self.get(option)
        if text is None:
            return otherwise
        try:
            return float(text)
        except ValueError:
            raise self.invalid(option, f"the option {option!r} takes a number, not {text!r}") from None

    def duration_ms(self, option: str, otherwise: int) -> int:
        """A duration such as '5 min', in milliseconds."""
        text = self.get(option)
        if text is None:
            return otherwise
        try:
            return parse_duration(text, option)
        except ConfigurationError as error:
            raise self.invalid(option, str(error)) from None

    def below(self, prefix: str) -> dict[str, str]:
        """The options that begin with a prefix, without it."""
        options = self.table.options.items()
        return {key.removeprefix(prefix): value for key, value in options if key.startswith(prefix)}

    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key, which the table must have."""
        if not self.table.definition.primary_key:
            raise self.invalid(
                "connector",
                f"{self.table.connector!r} keeps a row for each key; declare PRIMARY KEY (...) NOT ENFORCED",
            )
        return tuple(column.name for column in self.table.definition.primary_key)

    def invalid(self, option: str, problem: str) -> SqlValidationError:
        """The error for an option, at its place in the statement."""
        return self.table.source.invalid(self.table.place_of(option), problem)

    @contextlib.contextmanager
    def placed(self, option: str = "connector") -> Iterator[None]:
        """Gives what a connector refuses the place of one of the table's options, without it that of all."""
        try:
            yield
        except ConfigurationError as error:
            raise self.invalid(option, f"table {self.table.name!r}: {error}") from error

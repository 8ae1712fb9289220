"""SET and RESET: the options of a session, those of SQL itself and those of the jobs that it runs.

The environment of tables asks it for values; options of jobs belong to the environment of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from penstock.engine.durations import parse_duration
from penstock.engine.errors import ConfigurationError, nearest
from penstock.tables.parse import statements as s
from penstock.tables.parse.text import SqlText

_BOOLEANS: Final = ("true", "false")
OPTIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "table.local-time-zone": ("UTC", ()),
    "table.exec.sink.not-null-enforcer": ("ERROR", ("ERROR", "DROP")),
    "table.exec.sink.type-length-enforcer": ("IGNORE", ("IGNORE", "TRIM_PAD", "ERROR")),
    "table.exec.sink.nested-constraint-enforcer": ("IGNORE", ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS")),
    "table.exec.sink.require-on-conflict": ("true", _BOOLEANS),
    "table.exec.source.cdc-events-duplicate": ("false", _BOOLEANS),
    "table.exec.source.idle-timeout": ("0 ms", ()),
    "table.exec.state.ttl": ("0 ms", ()),
    "table.optimizer.reuse-sub-plan-enabled": ("true", _BOOLEANS),
    "sql-client.execution.result-mode": ("CHANGELOG", ("CHANGELOG", "TABLE")),
}
"""The options of SQL: their defaults, and the values that they take; none for any."""
_DURATIONS: Final = ("table.exec.source.idle-timeout", "table.exec.state.ttl")
_OF_FLINKS_PLANNER: Final = (
    "table.exec.mini-batch.", "table.exec.resource.", "table.exec.window-agg.", "table.exec.async-", "table.optimizer.",
    "table.exec.sort.", "table.exec.spill-", "table.exec.disabled-operators", "table.generated-code.",
)  # fmt: skip
"""How options begin that say how Flink computes a query, and not what."""


class JobOptions(Protocol):
    """What SET and RESET do with options of jobs. Each raises ConfigurationError where it cannot be done."""

    @property
    def given(self) -> Mapping[str, str]:
        """What SET has given, by key."""
        ...

    def set(self, key: str, value: str) -> None:
        """Give a key a value."""
        ...

    def reset(self, key: str | None = None) -> None:
        """Take back what SET has given for a key, or for all."""
        ...

    def check_key(self, key: str) -> None:
        """Make sure that there is such a key."""
        ...


class SessionOptions:
    """The options of a session.

    Args:
        jobs: takes those of jobs.
    """

    def __init__(self, jobs: JobOptions) -> None:
        self._jobs = jobs
        self._given: dict[str, str] = {}

    def value(self, key: str) -> str:
        """The value of an option of SQL."""
        return self._given.get(key, OPTIONS[key][0])

    def values(self) -> dict[str, str]:
        """The options of SQL."""
        return {key: self.value(key) for key in OPTIONS}

    def shown(self, statement: s.SetOption, source: SqlText) -> pa.Table:
        """The rows of SET without a value: all options of SQL and those of jobs that were set, or the one of a key.

        Raises:
            SqlValidationError: there is no such option.
        """
        rows: Mapping[str, str | None] = {**self.values(), **self._jobs.given}
        if (key := statement.key) is not None:
            self._check(key, statement.at, source)
            rows = {key: rows.get(key)}
        kinds = pa.schema([("key", pa.string()), ("value", pa.string())])
        return pa.Table.from_pylist([{"key": key, "value": value} for key, value in rows.items()], kinds)

    def set(self, key: str, value: str, at: int, source: SqlText) -> None:
        """Give an option a value.

        Raises:
            SqlValidationError: there is no such option, or it does not take the value.
        """
        if _is_of_jobs(key):
            try:
                self._jobs.set(key, value)
            except ConfigurationError as error:
                raise source.invalid(at, str(error)) from error
            return
        self._check(key, at, source)
        self._given[key] = _checked(key, value, at, source)

    def reset(self, statement: s.ResetOption, source: SqlText) -> None:
        """Take back what was set, of an option or of all.

        Raises:
            SqlValidationError: there is no such option, or others that were set need it.
        """
        key = statement.key
        try:
            if key is None:
                self._given.clear()
                self._jobs.reset()
            elif _is_of_jobs(key):
                self._jobs.reset(key)
            else:
                self._check(key, statement.at, source)
                self._given.pop(key, None)
        except ConfigurationError as error:
            raise source.invalid(statement.at, str(error)) from error

    def _check(self, key: str, at: int, source: SqlText) -> None:
        if _is_of_jobs(key):
            try:
                self._jobs.check_key(key)
            except ConfigurationError as error:
                raise source.invalid(at, str(error)) from error
        elif key.startswith(_OF_FLINKS_PLANNER) and key not in OPTIONS:
            raise source.invalid(
                at, f"{key!r} is for Flink's planner, and there is nothing here that it changes: leave it out"
            )
        elif key not in OPTIONS:
            raise source.invalid(
                at, f"there is no option {key!r}{nearest(key, OPTIONS)}; there are {', '.join(OPTIONS)}"
            )


def _is_of_jobs(key: str) -> bool:
    return not key.startswith(("table.", "sql-client."))


def _checked(key: str, value: str, at: int, source: SqlText) -> str:
    if key == "table.local-time-zone":
        try:
            return ZoneInfo(value).key
        except (ZoneInfoNotFoundError, ValueError):
            raise source.invalid(at, f"{value!r} is no time zone; write one such as 'Europe/Berlin'") from None
    if key in _DURATIONS:
        try:
            parse_duration(value, key)
        except ConfigurationError as error:
            raise source.invalid(at, str(error)) from None
        return value
    known = OPTIONS[key][1]
    chosen = [one for one in known if one.lower() == value.lower()]
    if known and not chosen:
        raise source.invalid(at, f"{key} takes {', '.join(known)}, not {value!r}{nearest(value.upper(), known)}")
    return chosen[0] if chosen else value

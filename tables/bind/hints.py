"""Binds the hints of a SELECT: how long state lives, and how often a lookup that finds nothing is made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.durations import parse_duration
from penstock.engine.errors import ConfigurationError, nearest
from penstock.engine.operators.joins.lookup_join import LookupRetry
from penstock.tables.bind.scopes import Scope
from penstock.tables.parse.queries import Hint
from penstock.tables.parse.text import SqlText

_HINTS: Final = ("STATE_TTL", "LOOKUP", "BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN")
"""STATE_TTL and LOOKUP count; the others say how a join is to be done, which is not theirs to choose here."""
_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")


def _is_one_of(*values: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in values


def _is_positive(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text, "LOOKUP") > 0
    except ConfigurationError:
        return False


_LOOKUP: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "table": (bool, "the name of a table in FROM"),
    "async": (_is_one_of("true", "false"), "true or false"),
    "output-mode": (_is_one_of("ordered", "allow_unordered"), "ordered or allow_unordered"),
    "capacity": (_is_positive, "a whole number of 1 or more"),
    "timeout": (_is_duration, "a duration, such as '10s'"),
    "shuffle": (_is_one_of("true", "false"), "true or false"),
    "retry-predicate": (_is_one_of("lookup_miss"), "lookup_miss"),
    "retry-strategy": (_is_one_of("fixed_delay"), "fixed_delay"),
    "fixed-delay": (_is_duration, "a duration, such as '10s'"),
    "max-attempts": (_is_positive, "a whole number of 1 or more"),
}
"""The options of LOOKUP: which values they take, and what these are in words."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What the hints of a SELECT say of the tables in its FROM, by the names that they have there.

    Args:
        ttls: how long their rows live, in milliseconds.
        lookups: how lookups in them are made again.
        places: where each name stands, with the name of its hint.
    """

    ttls: Mapping[str, int] = field(default_factory=dict)
    lookups: Mapping[str, LookupRetry] = field(default_factory=dict)
    places: Sequence[tuple[int, str, str]] = ()

    def check_names(self, scope: Scope, source: SqlText) -> None:
        """That all tables are there.

        Raises:
            SqlValidationError: one is not.
        """
        names = [str(member.name) for member in scope.members]
        for at, hint, name in self.places:
            if name not in names:
                raise source.invalid(
                    at, f"{hint} names {name!r}{nearest(name, names)}, and FROM has {', '.join(names)}"
                )


NO_HINTS: Final = Hints()


def bind_hints(hints: Sequence[Hint], source: SqlText) -> Hints:
    """What they say.

    Raises:
        SqlError: a hint or an option that there is not, or a value that it does not take.
    """
    ttls: dict[str, int] = {}
    lookups: dict[str, LookupRetry] = {}
    places = []
    for hint in hints:
        if hint.name == "STATE_TTL":
            for name, time in hint.options.items():
                ttls[name] = _ttl(hint, time, source)
                places.append((hint.at, hint.name, name))
        elif hint.name == "LOOKUP":
            name, retry = _lookup(hint, source)
            places.append((hint.at, hint.name, name))
            if retry is not None:
                lookups[name] = retry
        elif hint.name not in _HINTS:
            raise source.unsupported(hint.at, f"the hint {hint.name} is not supported; there are {', '.join(_HINTS)}")
    return Hints(ttls, lookups, places)


def _ttl(hint: Hint, time: str, source: SqlText) -> int:
    try:
        return parse_duration(time, "STATE_TTL")
    except ConfigurationError as error:
        raise source.invalid(hint.at, str(error)) from None


def _lookup(hint: Hint, source: SqlText) -> tuple[str, LookupRetry | None]:
    """The table of a LOOKUP, and how its lookups are made again."""
    for key, value in hint.options.items():
        if key not in _LOOKUP:
            raise source.invalid(
                hint.at, f"LOOKUP has no option {key!r}{nearest(key, list(_LOOKUP))}; it has {', '.join(_LOOKUP)}"
            )
        fits, wanted = _LOOKUP[key]
        if not fits(value):
            raise source.invalid(hint.at, f"{key!r} of LOOKUP is {wanted}, not {value!r}")
    if "table" not in hint.options:
        raise source.invalid(hint.at, "LOOKUP lacks 'table', the name of the table that is looked up")
    missing = [key for key in _RETRY if key not in hint.options]
    if len(missing) == len(_RETRY):
        return hint.options["table"], None
    if missing:
        raise source.invalid(hint.at, f"LOOKUP lacks {missing[0]!r}; a retry takes {', '.join(_RETRY)}")
    delay_ms = parse_duration(hint.options["fixed-delay"], "LOOKUP")
    return hint.options["table"], LookupRetry(int(hint.options["max-attempts"]), delay_ms)

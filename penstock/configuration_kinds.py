"""What the values of configuration keys may be: how each kind is read from text and YAML, named, and shown.

`configuration_keys` declares keys by them. A value that cannot be used is a `ValueError`, which says what can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator

from penstock.actors.spark.options import parsed_memory
from penstock.engine.durations import format_duration, parse_duration
from penstock.engine.errors import ConfigurationError
from penstock.engine.periods import Period, parse_period
from penstock.savepoints.storage import normalise_url

_TEXT: Final = "text"
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a type are, for people."""

    name: str


def _duration(value: object) -> int:
    try:
        return parse_duration(value if isinstance(value, str) else str(value), "")
    except ConfigurationError as error:
        raise ValueError(str(error).removeprefix(": ")) from None


def _whole(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {value!r}")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, not {value!r}")
    return value


def spelled(value: object) -> object:
    """An option as we spell it: Flink's files have EXACTLY_ONCE, exactly_once and exactly-once."""
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


def _strategy(value: object) -> object:
    # YAML reads a bare `off` as false.
    name = "none" if value is False else spelled(value)
    return {"off": "none", "disable": "none", "fixeddelay": "fixed-delay", "failurerate": "failure-rate"}.get(
        str(name), name
    )


def _backend(value: object) -> object:
    name = spelled(value)
    return "hashmap" if name == "heap" else name


def _url(value: object) -> str:
    """A folder's URL as it was given, if it can be one."""
    text = str(value)
    if not text.startswith("ray://"):
        try:
            normalise_url(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return text


def _listed(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).split(";")
    return tuple(part for part in (str(part).strip() for part in parts) if part)


def _levels(value: object) -> tuple[tuple[str, str], ...]:
    """`INFO;fraud=DEBUG`: the level of all loggers, and of single ones."""
    levels = []
    for part in _listed(value):
        logger, _, level = part.rpartition("=")
        if level.strip().upper() not in _LEVELS:
            raise ValueError(f"must be levels such as INFO;fraud=DEBUG, of {', '.join(_LEVELS)}; not {part!r}")
        levels.append((logger.strip(), level.strip().upper()))
    return tuple(levels)


def _labels(value: object) -> tuple[tuple[str, str], ...]:
    """`ray.io/market-type=on-demand;zone=!b`: labels of nodes, each with what it must be, or must not."""
    labels = []
    for part in _listed(value):
        name, _, wanted = (text.strip() for text in part.partition("="))
        if not name or not wanted:
            raise ValueError(f"must be labels such as ray.io/market-type=on-demand;zone=!b; not {part!r}")
        labels.append((name, wanted))
    return tuple(labels)


def _periods(value: object) -> tuple[Period, ...]:
    try:
        return tuple(map(parse_period, _listed(value)))
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _memory(value: object) -> str:
    text = str(value)
    if parsed_memory(text) is None:
        raise ValueError(f"must be a size such as 4g or 512m, not {text!r}")
    return text


Milliseconds = Annotated[int, BeforeValidator(_duration), Kind("duration")]
Count = Annotated[int, BeforeValidator(_whole), Kind("whole number")]
Number = Annotated[float, BeforeValidator(_number), Kind("number")]
Url = Annotated[str, BeforeValidator(_url), Kind("path or URL")]
Levels = Annotated[
    tuple[tuple[str, str], ...], BeforeValidator(_levels), Kind("`LEVEL` and `LOGGER=LEVEL` with ; between")
]
Labels = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_labels), Kind("`LABEL=VALUE` with ; between")]
Mode = Annotated[Literal["exactly-once", "at-least-once"], BeforeValidator(spelled)]
Retention = Annotated[
    Literal["delete-on-cancellation", "retain-on-cancellation", "no-externalized-checkpoints"],
    BeforeValidator(spelled),
]
Strategy = Annotated[Literal["none", "fixed-delay", "failure-rate", "exponential-delay"], BeforeValidator(_strategy)]
Backend = Annotated[Literal["hashmap", "rocksdb"], BeforeValidator(_backend)]
Failover = Annotated[Literal["region", "full"], BeforeValidator(spelled)]
Runtime = Annotated[Literal["ray", "local"], BeforeValidator(spelled)]
RuntimeMode = Annotated[Literal["streaming", "batch", "automatic"], BeforeValidator(spelled)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Kind("names with ; between")]
Periods = Annotated[tuple[Period, ...], BeforeValidator(_periods), Kind("periods with ; between")]
Memory = Annotated[str, BeforeValidator(_memory), Kind("size")]


def kind_of(annotation: object, metadata: Sequence[object] = ()) -> str:
    """What the values of a type are; of optional ones and of mappings, what is in them."""
    named = [item.name for item in (*metadata, *getattr(annotation, "__metadata__", ())) if isinstance(item, Kind)]
    if named:
        return named[0]
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(get_args(annotation))}"
    inner = [kind_of(argument) for argument in get_args(annotation)]
    return next((kind for kind in inner if kind != _TEXT), "true or false" if annotation is bool else _TEXT)


def shown(kind: str, value: object) -> str:
    """A value of a key of such a kind, as text that the key takes."""
    if value is None or value in ({}, ()):
        return ""
    if kind == "duration" and isinstance(value, int):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)

"""What to say where a stream has no verb of a name that users of other stream processors look for.

The streams raise it from `__getattr__`, which Python calls for names that are not there and for no others; type
checkers do not see it, so that they still find such names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

_KEYS_FIRST: Final = "the stream has no keys; call key_by(...) first"
_ROWS_FIRST: Final = "call it before key_by, or use process(...)"
_AGGREGATE: Final = "call aggregate(n=penstock.count()), for example"
_AGGREGATES: Final = ("agg", "count", "sum", "min", "max", "mean")
_COMPUTE_FIRST: Final = "say first what is computed for each window: aggregate(...), reduce(...) or process(...)"

STREAM_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_AGGREGATES, "call key_by(...), group_by(...) or window_all(...) first, and then aggregate(...)"),
    **dict.fromkeys(
        ("aggregate", "reduce", "match", "window_join", "interval_join", "temporal_join", "co_group"), _KEYS_FIRST
    ),
    **dict.fromkeys(("order_by", "orderBy", "sort_by"), "it is sort(...) here"),
    "sort_partition": "sort(...) sorts all rows; for those of each subtask use process(...) or map_batches(...)",
    "groupBy": "it is group_by(...) here",
    "assign_timestamps_and_watermarks": "it is assign_timestamps(column, strategy) here",
    "execute_and_collect": "it is collect() here",
    "add_sink": "it is sink_to(...) here",
}
KEYED_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("map", "flat_map", "filter", "select", "with_columns", "map_batches", "union"), _ROWS_FIRST),
    **dict.fromkeys(("collect", "print", "sink_to"), "end the stream before key_by"),
    **dict.fromkeys(_AGGREGATES, _AGGREGATE),
}
GROUPED_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("collect", "print", "sink_to", "select"), "say first what is computed: aggregate(...)"),
    **dict.fromkeys(_AGGREGATES, _AGGREGATE),
    **dict.fromkeys(("reduce", "process", "window"), "use key_by(...)"),
}
WINDOWED_HINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("collect", "print", "sink_to", "map", "filter", "get_side_output"), _COMPUTE_FIRST),
    **dict.fromkeys(_AGGREGATES, _AGGREGATE),
}


def no_such_verb(stream: object, name: str, hints: Mapping[str, str]) -> NoReturn:
    """Raise the error for `stream.name`.

    Raises:
        AttributeError: always, with the hint for the name where there is one.
    """
    hint = f"; {hints[name]}" if name in hints else ""
    raise AttributeError(f"{type(stream).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=stream)

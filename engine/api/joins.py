"""The verbs that join streams: they check their arguments, and add the operator with both inputs.

`KeyedStream.window_join`, `interval_join`, `temporal_join` and `co_group`, and `DataStream.lookup_join` call these
functions, and say what they mean. What cannot be joined is an error here, where the program is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

import pyarrow as pa

from penstock.engine.api.base import StreamT
from penstock.engine.connectors import LookupTable
from penstock.engine.durations import Duration, format_duration, parse_signed_duration
from penstock.engine.errors import ConfigurationError, GraphError, nearest
from penstock.engine.functions import OutputTag
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.join_columns import LEFT, RIGHT, SIDES, JoinColumns, JoinSide
from penstock.engine.operators.joins.co_group import CoGroupFunction, CoGroupSpec
from penstock.engine.operators.joins.interval_join import IntervalJoinSpec, JoinTime
from penstock.engine.operators.joins.join_windows import JoinWindows
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.joins.lookup_join import LookupJoinSpec
from penstock.engine.operators.joins.temporal_join import TemporalJoinSpec
from penstock.engine.operators.joins.window_join import BOUNDS, OUTER_SIDES, WindowJoinSpec
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.limits import LARGEST_SPAN_MS

_INNER_OR_LEFT: Final = ("inner", "left")
_BOUNDS: Final = {"[]": (0, 0), "()": (1, -1), "[)": (0, -1), "(]": (1, 0)}
"""What to add to the lower and the upper bound so that both belong to the interval."""


@dataclass(frozen=True, slots=True)
class KeyedInput(Generic[StreamT]):
    """One side of a join: a stream behind `key_by`, and its key columns."""

    stream: StreamT
    keys: tuple[str, ...]

    @property
    def side(self) -> JoinSide:
        """What the operator knows of it."""
        return JoinSide(self.keys, self.stream.schema)


def window_join(
    left: KeyedInput[StreamT], right: KeyedInput[StreamT], windows: WindowAssigner, how: str, suffix: str
) -> StreamT:
    """See `KeyedStream.window_join`."""
    common = _check_windows("window_join", windows)
    outer = OUTER_SIDES[_check_how("window_join", how, tuple(OUTER_SIDES))]
    columns = JoinColumns(left.side, right.side, _check_suffix("window_join", suffix), BOUNDS)
    schema = _bind("window_join", left, right, columns)
    for side in outer:
        _need_columns("window_join", how, (left, right)[1 - side], 1 - side)
    return _add(left, right, WindowJoinSpec(common, columns, how), schema)


def interval_join(
    left: KeyedInput[StreamT],
    right: KeyedInput[StreamT],
    lower: Duration,
    upper: Duration,
    bounds: str,
    suffix: str,
    left_late: OutputTag | None,
    right_late: OutputTag | None,
) -> StreamT:
    """See `KeyedStream.interval_join`."""
    lower_ms, upper_ms = _interval(lower, upper, bounds)
    columns = JoinColumns(left.side, right.side, _check_suffix("interval_join", suffix))
    schema = _bind("interval_join", left, right, columns)
    tags = [_tag_name(option, tag) for option, tag in (("left_late", left_late), ("right_late", right_late))]
    if tags[LEFT] is not None and tags[LEFT] == tags[RIGHT]:
        raise GraphError(f"interval_join: left_late and right_late are both named {tags[LEFT]!r}; give them two names")
    sides = {tag: one.stream.schema for tag, one in zip(tags, (left, right), strict=True) if tag is not None}
    shown = f"{bounds[0]}{format_duration(parse_signed_duration(lower, 'lower'))}, "
    shown += f"{format_duration(parse_signed_duration(upper, 'upper'))}{bounds[1]}"
    spec = IntervalJoinSpec(columns, lower_ms, upper_ms, (tags[LEFT], tags[RIGHT]))
    return _add(left, right, spec, schema, sides, f"interval_join({shown}, {columns.describe()})")


def near_join(
    left: KeyedInput[StreamT],
    right: KeyedInput[StreamT],
    interval_ms: tuple[int, int],
    outer: tuple[int, ...],
    condition: Callable[[pa.RecordBatch], pa.BooleanArray] | None,
    time: JoinTime,
) -> StreamT:
    """What tables are joined by within an interval; see `IntervalJoinSpec`."""
    columns = JoinColumns(left.side, right.side)
    spec = IntervalJoinSpec(columns, *interval_ms, (None, None), outer, condition, time)
    return _add(left, right, spec, columns.bind("interval join"), timed=time is JoinTime.EVENT)


def temporal_join(left: KeyedInput[StreamT], right: KeyedInput[StreamT], how: str, suffix: str) -> StreamT:
    """See `KeyedStream.temporal_join`."""
    _check_how("temporal_join", how, _INNER_OR_LEFT)
    columns = JoinColumns(left.side, right.side, _check_suffix("temporal_join", suffix))
    schema = _bind("temporal_join", left, right, columns)
    if how == "left":
        _need_columns("temporal_join", how, right, RIGHT)
    return _add(left, right, TemporalJoinSpec(columns, how), schema)


def co_group(
    left: KeyedInput[StreamT],
    right: KeyedInput[StreamT],
    windows: WindowAssigner,
    function: CoGroupFunction,
    returns: Returns,
) -> StreamT:
    """See `KeyedStream.co_group`."""
    common = _check_windows("co_group", windows)
    columns = JoinColumns(left.side, right.side)
    _check_inputs("co_group", left, right)
    columns.check_sides("co_group")
    schema = declared_schema(returns, "co_group")
    return _add(left, right, CoGroupSpec(common, columns, function, schema), schema)


def lookup_join(
    stream: StreamT,
    table: LookupTable,
    on: str | Sequence[str] | Mapping[str, str],
    how: str,
    cache: LookupCache | None,
    suffix: str,
) -> StreamT:
    """See `DataStream.lookup_join`."""
    if not isinstance(table, LookupTable):
        raise GraphError(
            f"lookup_join takes a LookupTable, not {type(table).__name__}; for data in memory, give "
            "ArrowTable(table, keys=...) or DictTable(rows, keys=...)"
        )
    if cache is not None and not isinstance(cache, LookupCache):
        raise GraphError(f"lookup_join: cache takes LookupCache(max_rows=..., ttl=...), not {cache!r}")
    _check_how("lookup_join", how, _INNER_OR_LEFT)
    pairs = _lookup_keys(table, on)
    left, right = JoinSide(tuple(pairs), stream.schema), JoinSide(tuple(pairs.values()), table.schema)
    columns = JoinColumns(left, right, _check_suffix("lookup_join", suffix))
    schema = columns.bind("lookup_join")
    return stream._add(LookupJoinSpec(table, columns, how, cache), schema)


def _lookup_keys(table: LookupTable, on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The stream's column for each key of the table, in the table's order, turned round: stream to table."""
    names = (on,) if isinstance(on, str) else on
    if not isinstance(names, Mapping | Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise _unusable_on(on)
    pairs = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    if not all(isinstance(key, str) for key in pairs.values()):
        raise _unusable_on(on)
    keys = tuple(table.keys)
    if sorted(pairs.values()) != sorted(keys):
        raise GraphError(
            f"lookup_join: {type(table).__name__} is looked up by ({', '.join(keys)}), not by "
            f"({', '.join(pairs.values())}); give on={{...}} with a column of the stream for each key"
        )
    return dict(sorted(pairs.items(), key=lambda pair: keys.index(pair[1])))


def _unusable_on(on: object) -> GraphError:
    return GraphError(f"lookup_join: on takes a column, several, or {{'column of the stream': 'key'}}, not {on!r:.200}")


def _interval(lower: Duration, upper: Duration, bounds: str) -> tuple[int, int]:
    """Both bounds in milliseconds, such that both belong to the interval."""
    if not isinstance(bounds, str) or bounds not in _BOUNDS:
        raise ConfigurationError(f"interval_join: bounds must be one of {', '.join(_BOUNDS)}, not {bounds!r}")
    first = parse_signed_duration(lower, "interval_join: lower")
    last = parse_signed_duration(upper, "interval_join: upper")
    if first > last:
        raise ConfigurationError(f"interval_join: lower ({lower}) is more than upper ({upper}); exchange them")
    for option, value in (("lower", first), ("upper", last)):
        if abs(value) > LARGEST_SPAN_MS:
            raise ConfigurationError(f"interval_join: {option} must be within 2**60 ms, not {value} ms")
    first, last = first + _BOUNDS[bounds][0], last + _BOUNDS[bounds][1]
    if first > last:
        raise ConfigurationError(
            f"interval_join: no time is between {lower} and {upper} with bounds {bounds!r}; give bounds='[]'"
        )
    return first, last


def _bind(verb: str, left: KeyedInput[Any], right: KeyedInput[Any], columns: JoinColumns) -> SchemaOrUnknown:
    _check_inputs(verb, left, right)
    return columns.bind(verb)


def _check_inputs(verb: str, left: KeyedInput[Any], right: KeyedInput[Any]) -> None:
    if left.stream._program is not right.stream._program:
        raise GraphError(f"{verb}: the streams belong to different programs; make both from one environment")
    for side, one in zip(SIDES, (left, right), strict=True):
        if not one.stream._timed:
            raise GraphError(f"{verb}: the {side} side has no timestamps; call assign_timestamps before key_by")


def _check_how(verb: str, how: str, known: Sequence[str]) -> str:
    if not isinstance(how, str) or how not in known:
        raise ConfigurationError(
            f"{verb}: how must be one of {', '.join(known)}, not {how!r}{nearest(str(how), known)}"
        )
    return how


def _check_suffix(verb: str, suffix: str) -> str:
    if not isinstance(suffix, str) or not suffix:
        raise ConfigurationError(f"{verb}: suffix must be a text that is not empty, not {suffix!r}")
    return suffix


def _check_windows(verb: str, windows: WindowAssigner) -> JoinWindows:
    if not isinstance(windows, AlignedWindows | SessionWindows):
        raise GraphError(
            f"{verb} takes tumbling(...), sliding(...) or session(...) with a gap of one length, not {windows!r}"
        )
    if not windows.is_event_time:
        raise GraphError(f"{verb} takes windows of event time alone; leave time='processing' out")
    return windows


def _need_columns(verb: str, how: str, one: KeyedInput[Any], side: int) -> None:
    """An outer join makes up rows of nulls for a side that may never have had a row."""
    if one.stream.schema is None:
        raise GraphError(
            f"{verb}: how={how!r} needs to know the columns of the {SIDES[side]} side; declare them with "
            "returns={...} where a Python function makes them"
        )


def _tag_name(option: str, tag: OutputTag | None) -> str | None:
    if tag is not None and not isinstance(tag, OutputTag):
        raise GraphError(f"interval_join: {option} takes an OutputTag, not {tag!r}; give OutputTag('late')")
    return None if tag is None else tag.name


def _add(
    left: KeyedInput[StreamT],
    right: KeyedInput[StreamT],
    spec: OperatorSpec,
    schema: SchemaOrUnknown,
    sides: Mapping[str, SchemaOrUnknown] | None = None,
    name: str | None = None,
    timed: bool = True,
) -> StreamT:
    program = left.stream._program
    program.check_open()
    edges = [replace(edge, input_index=index) for index, one in enumerate((left, right)) for edge in one.stream._edges]
    node = program.graph.add(name or spec.describe(), spec, tuple(edges), schema, timed=timed, sides=sides)
    return left.stream.of_node(program, node)

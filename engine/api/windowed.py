"""The verbs of streams divided into windows: of what `KeyedStream.window` and `DataStream.window_all` return.

Verbs such as `trigger` say how windows behave and return another `WindowedStream`; the last verb says what is computed
for each window, adds the operator, and returns the stream of results. Named aggregates over plain windows of event time
run on whole batches, everything else row by row, with the same results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.api.base import Stream, StreamT
from penstock.engine.api.hints import WINDOWED_HINTS, no_such_verb
from penstock.engine.compiled.functions import CompiledFunction, is_compiled
from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.exchange.partitioners import Global
from penstock.engine.functions import OutputTag, ProcessWindowFunction, Row
from penstock.engine.graph.logical import Role
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.schemas import SchemaLike, TypeLike, parse_schema, parse_type
from penstock.engine.state.descriptors import AggregateFunction, Serializer
from penstock.engine.texts import aggregates_text, function_name
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.general import GlobalWindows, global_windows
from penstock.engine.windows.trigger_base import Trigger
from penstock.engine.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger

WindowedStreamT = TypeVar("WindowedStreamT", bound="WindowedVerbs[Any]")
_BOUNDS = {"window_start", "window_end"}
_DEFAULT_TRIGGERS = (None, EventTimeTrigger())

if TYPE_CHECKING:
    from penstock.engine.operators.windows.window import WindowOperatorSpec
    from penstock.engine.operators.windows.window_folds import FoldSpec
    from penstock.engine.windows.evictors import Evictor


@dataclass(frozen=True, slots=True)
class _Settings:
    """How windows behave, beside their assigner."""

    trigger: Trigger | None = None
    evictor: Evictor | None = None
    lateness_ms: int = 0
    late_tag: OutputTag | None = None

    def describe(self) -> list[str]:
        """For `explain()`: what differs from the default."""
        parts = []
        if self.trigger is not None:
            parts.append(f"trigger {self.trigger.describe()}")
        if self.evictor is not None:
            parts.append(f"evictor {self.evictor.describe()}")
        if self.lateness_ms:
            parts.append(f"allowed lateness {format_duration(self.lateness_ms)}")
        if self.late_tag is not None:
            parts.append(f"late rows to {self.late_tag.name!r}")
        return parts


class WindowedVerbs(Generic[StreamT]):
    """What can be asked of a stream divided into windows."""

    def __init__(
        self,
        stream: StreamT,
        keys: tuple[str, ...],
        windows: WindowAssigner,
        verb: str = "window",
        settings: _Settings | None = None,
    ) -> None:
        self._stream = stream
        self._keys = keys
        self._windows = windows
        self._verb = verb
        self._settings = settings or _Settings()

    @classmethod
    def over(
        cls: type[WindowedStreamT], stream: Stream, keys: tuple[str, ...], windows: WindowAssigner, verb: str
    ) -> WindowedStreamT:
        """The stream divided into windows; without keys, all its rows go to one subtask.

        Raises:
            GraphError: no window assigner, or one of event time on a stream without timestamps.
        """
        _check_is(
            windows,
            WindowAssigner,
            verb,
            "tumbling(...), sliding(...), cumulative(...), session(...) or global_windows()",
        )
        if windows.is_event_time and not stream._timed:
            raise GraphError(
                f"{verb}: the stream has no timestamps; call assign_timestamps before, or use windows of the clock: "
                "time='processing'"
            )
        return cls(stream if keys else stream._partition(Global()), keys, windows, verb)

    @classmethod
    def counted(
        cls: type[WindowedStreamT], stream: Stream, keys: tuple[str, ...], size: int, slide: int | None, verb: str
    ) -> WindowedStreamT:
        """Windows of so many rows, as Flink makes them of the global window.

        Raises:
            ConfigurationError: a size or slide that is no whole number of 1 or more.
        """
        from penstock.engine.windows.evictors import CountEvictor

        for option, value in (("size", size), ("slide", slide)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigurationError(f"{verb}: {option} must be a number of rows, 1 or more, not {value!r}")
        windows = cls.over(stream, keys, global_windows(), verb)
        if slide is None:
            return windows.trigger(PurgingTrigger(CountTrigger(size)))
        return windows.evictor(CountEvictor(size)).trigger(CountTrigger(slide))

    # How windows behave

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            no_such_verb(self, name, WINDOWED_HINTS)

    def trigger(self: WindowedStreamT, trigger: Trigger) -> WindowedStreamT:
        """Say when windows are emitted, instead of at their end.

        Args:
            trigger: `CountTrigger(100)`, for example.

        Raises:
            GraphError: no trigger; one that cannot merge, on windows that do; one that needs timestamps, on a stream
                without.

        Example:
            >>> keyed.window(tumbling("1h")).trigger(  # doctest: +SKIP
            ...     EventTimeTrigger().with_early_firings(every="10s")
            ... )
        """
        _check_is(trigger, Trigger, f"{self._verb}: trigger", "CountTrigger(100)")
        if self._windows.is_merging and not trigger.can_merge:
            raise GraphError(
                f"{self._verb}: the trigger {trigger.describe()!r} cannot be used on windows that merge "
                f"({self._windows.describe()}), because it cannot merge what it remembers of them; use another "
                "trigger, or override can_merge and on_merge"
            )
        if trigger.needs_timestamps and not self._stream._timed:
            raise GraphError(
                f"{self._verb}: the trigger {trigger.describe()!r} needs event time, and the stream has no timestamps; "
                "call assign_timestamps before"
            )
        return self._with(replace(self._settings, trigger=trigger))

    def evictor(self: WindowedStreamT, evictor: Evictor) -> WindowedStreamT:
        """Say which rows leave a window before, or behind, its function; all its rows are then kept until it fires.

        Args:
            evictor: `CountEvictor(10)`, for example.

        Raises:
            GraphError: no evictor.
        """
        from penstock.engine.windows.evictors import Evictor

        _check_is(evictor, Evictor, f"{self._verb}: evictor", "CountEvictor(10)")
        return self._with(replace(self._settings, evictor=evictor))

    def allowed_lateness(self: WindowedStreamT, lateness: Duration) -> WindowedStreamT:
        """Keep each window for so long (event time) behind its end: late rows are then added, and it is emitted again.

        Raises:
            ConfigurationError: no duration.
            GraphError: the windows are not of event time.

        Example:
            >>> keyed.window(tumbling("1h")).allowed_lateness("10m")  # doctest: +SKIP
        """
        lateness_ms = parse_duration(lateness, "allowed_lateness")
        self._check_lateness("allowed_lateness")
        return self._with(replace(self._settings, lateness_ms=lateness_ms))

    def side_output_late_data(self: WindowedStreamT, tag: OutputTag) -> WindowedStreamT:
        """Give rows that are too late for all their windows to a side output, instead of dropping them.

        Args:
            tag: read it behind the last verb: `results.get_side_output(tag)`.

        Raises:
            GraphError: no `OutputTag`, or the windows are not of event time.
        """
        _check_is(tag, OutputTag, "side_output_late_data", "OutputTag('late')")
        self._check_lateness("side_output_late_data")
        return self._with(replace(self._settings, late_tag=tag))

    def _check_lateness(self, verb: str) -> None:
        if not self._windows.is_event_time:
            raise GraphError(
                f"{verb}: no row is ever late in {self._windows.describe()} windows, which do not end by event time; "
                "leave it out"
            )

    def _with(self: WindowedStreamT, settings: _Settings) -> WindowedStreamT:
        return type(self)(self._stream, self._keys, self._windows, self._verb, settings)

    # What is computed

    def aggregate(
        self,
        function: AggregateFunction | None = None,
        /,
        *,
        accumulator: TypeLike | SchemaLike | Serializer | None = None,
        process: ProcessWindowFunction | type[ProcessWindowFunction] | None = None,
        returns: Returns = None,
        **aggregates: Aggregate,
    ) -> StreamT:
        """Aggregate the rows of each window, one by one or batch by batch: named aggregates, or a function of yours.

        Named aggregates give one row for each key and window that fires. The columns are the keys, `window_start`,
        `window_end` (timestamps, UTC; the end does not belong to the window), and one for each aggregate; windows
        without an end (`global_windows()`, `count_window`) have no columns for bounds. The rows carry the event
        timestamp `window_end - 1 ms`; without an end, that of the window's last row.

        Args:
            function: an `AggregateFunction` over rows (dicts), whose result is a row.
            accumulator: the type of its accumulators: an Arrow type or its text, columns of a dict
                (`{"total": "float64", "n": "int64"}`), or a serializer.
            process: called with the single result (a row) as its elements, key and window.
            returns: the columns that `function`, or `process`, gives back, as for `DataStream.map`.
            aggregates: result names and aggregates.

        Raises:
            GraphError: no aggregate, or what is none; a function without `accumulator`; a missing column, a wrong type;
                a result named as a key or window bound, or a key or result whose name begins with `__`.

        Example:
            >>> keyed.window(tumbling("1h")).aggregate(n=count(), mean_delay=mean("delay"))  # doctest: +SKIP
            >>> keyed.window(tumbling("1h")).aggregate(  # doctest: +SKIP
            ...     Median(), accumulator="list<float64>", returns={"median": "float64"}
            ... )
        """
        for option, value in (("accumulator", accumulator), ("process", process), ("returns", returns)):
            if isinstance(value, Aggregate):
                raise GraphError(f"aggregate: {option}=... is an option; give the result {value} another name")
        if function is None:
            if accumulator is not None:
                raise GraphError("aggregate: accumulator=... belongs to an AggregateFunction; give one first")
            return self._aggregate_named(aggregates, process, returns)
        _check_is(function, AggregateFunction, "aggregate", "MyAggregate(), or name=penstock.count()")
        if aggregates:
            raise GraphError(
                f"aggregate: give an AggregateFunction or named aggregates ({', '.join(aggregates)}), not both"
            )
        if self._windows.is_merging and type(function).merge is AggregateFunction.merge:
            raise GraphError(
                f"aggregate: {self._windows.describe()} windows merge, and {type(function).__name__} does not "
                "implement merge(one, other), which then makes one accumulator of two"
            )
        from penstock.engine.operators.windows.window_folds import AggregateWith

        fold = AggregateWith(function, _accumulator(accumulator, function))
        return self._add_function(f"aggregate({function_name(function)})", fold, process, returns, function)

    def reduce(
        self,
        function: Callable[[Row, Row], Mapping[str, Any]],
        process: ProcessWindowFunction | type[ProcessWindowFunction] | None = None,
        returns: Returns = None,
    ) -> StreamT:
        """Reduce the rows of each window to one row, two by two.

        Args:
            function: takes what rows were reduced to so far and the next row, both dicts, and returns a dict with the
                same columns. It may set columns of both, but must not change lists and dicts in them in place: the row
                may be in other windows, too.
            process: called with the single result as its elements, key and window.
            returns: the columns of the result; those of the stream by default, unless there is a `process`.

        Raises:
            GraphError: `function` cannot be called.

        Example:
            >>> keyed.window(tumbling("1h")).reduce(  # doctest: +SKIP
            ...     lambda a, b: {"user": a["user"], "clicks": a["clicks"] + b["clicks"]}
            ... )
        """
        if not callable(function):
            raise GraphError(f"reduce: needs a function of two rows (dicts) that returns a row, not {function!r:.200}")
        from penstock.engine.operators.windows.window_folds import Reduce

        keeps_columns = process is None and returns is None
        if keeps_columns:
            returns = self._stream.schema
        plain = function.function if isinstance(function, CompiledFunction) else function
        return self._add_function(
            f"reduce({function_name(function)})", Reduce(plain, keeps_columns), process, returns, function
        )

    def process(
        self, function: ProcessWindowFunction | type[ProcessWindowFunction], returns: Returns = None
    ) -> StreamT:
        """Call a `ProcessWindowFunction` with all rows of each window that fires.

        Args:
            function: an object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `DataStream.map`.

        Raises:
            GraphError: another kind of function, or one that does not implement `process`.

        Example:
            >>> keyed.window(session("30m")).process(Report(), returns={"user": "string"})  # doctest: +SKIP
        """
        _check_process(function, "process")
        return self._add_function(f"process({function_name(function)})", None, function, returns, function)

    def _aggregate_named(
        self,
        aggregates: Mapping[str, Aggregate],
        process: ProcessWindowFunction | type[ProcessWindowFunction] | None,
        returns: Returns,
    ) -> StreamT:
        from penstock.engine.operators.windows.window_aggregate import window_schema
        from penstock.engine.operators.windows.window_folds import NamedAggregates

        aggregation = GroupedAggregation(self._keys, aggregates)
        bounded = not isinstance(self._windows, GlobalWindows)
        taken = _BOUNDS & {*self._keys, *aggregates} if bounded else set()
        if taken:
            raise GraphError(f"aggregate: {', '.join(sorted(taken))} is the name of a window column; choose another")
        text = aggregates_text(aggregates)
        if process is not None:
            return self._add_function(text, NamedAggregates(aggregation), process, returns)
        if returns is not None:
            raise GraphError("aggregate: named aggregates have types already; give returns=... with process=... alone")
        schema: SchemaOrUnknown = None
        if self._stream.schema is not None:
            schema = aggregation.bind(self._stream.schema, "aggregate")
            schema = window_schema(schema, self._keys) if bounded else schema
        return self._add(text, self._vectorised(aggregation) or self._general(NamedAggregates(aggregation)), schema)

    def _vectorised(self, aggregation: GroupedAggregation) -> Role | None:
        """The operator on whole batches, where it can do the work."""
        from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
        from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec

        windows, settings = self._windows, self._settings
        if not windows.is_event_time or settings.evictor is not None or settings.trigger not in _DEFAULT_TRIGGERS:
            return None
        late_tag = None if settings.late_tag is None else settings.late_tag.name
        if isinstance(windows, SessionWindows):
            return SessionAggregateSpec(windows, aggregation, settings.lateness_ms, late_tag)
        if isinstance(windows, AlignedWindows | CumulativeWindows):
            return WindowAggregateSpec(windows, aggregation, settings.lateness_ms, late_tag)
        return None

    def _general(
        self,
        fold: FoldSpec | None,
        process: ProcessWindowFunction | type[ProcessWindowFunction] | None = None,
        result: SchemaOrUnknown = None,
    ) -> WindowOperatorSpec:
        from penstock.engine.operators.windows.window import WindowOperatorSpec

        settings = self._settings
        return WindowOperatorSpec(
            self._windows,
            self._keys,
            fold,
            process,
            result,
            self._stream.schema,
            self._stream._timed,
            settings.trigger,
            settings.evictor,
            settings.lateness_ms,
            settings.late_tag,
        )

    def _add_function(
        self,
        text: str,
        fold: FoldSpec | None,
        process: ProcessWindowFunction | type[ProcessWindowFunction] | None,
        returns: Returns,
        folding: object = None,
    ) -> StreamT:
        if process is not None and fold is not None:
            _check_process(process, "process=")
            text = f"{text}, process({function_name(process)})"
        schema = declared_schema(returns, self._verb)
        plan = self._general(fold, process, schema)
        if isinstance(folding, CompiledFunction) or is_compiled(folding) or is_compiled(process):
            # Few programs have compiled functions, and all that compiles comes with this.
            from penstock.engine.operators.windows.compiled_window import window_spec
            from penstock.engine.operators.windows.compiled_window_process import process_window_spec

            role = process_window_spec(plan) if fold is None else window_spec(folding, plan)
            return self._add(text if role is plan else f"{text}, compiled", role, schema)
        return self._add(text, plan, schema)

    def _add(self, text: str, role: Role, schema: SchemaOrUnknown) -> StreamT:
        parts = [self._windows.describe(), *self._settings.describe(), text]
        timed = self._windows.is_event_time or self._stream._timed
        tag = self._settings.late_tag
        sides = {} if tag is None else {tag.name: self._stream.schema}
        added = self._stream._add(role, schema, timed, sides, f"{self._verb}({', '.join(parts)})")
        if not self._keys:
            self._stream._program.see_all_rows(added._own_node(self._verb))
        return added


def _accumulator(
    given: TypeLike | SchemaLike | Serializer | None, function: AggregateFunction
) -> pa.DataType | Serializer:
    """What says how accumulators are kept as state."""
    where = f"aggregate: accumulator of {type(function).__name__}"
    if given is None:
        raise GraphError(
            f"{where}: say in aggregate(function, accumulator=...) how it is kept in state: accumulator='float64', "
            "accumulator={'total': 'float64', 'n': 'int64'} for a dict, or accumulator=PickleSerializer() for any value"
        )
    if hasattr(given, "dumps") and hasattr(given, "loads"):
        return given
    if isinstance(given, Mapping | pa.Schema):
        return pa.struct(list(parse_schema(given, where)))
    return parse_type(given, where)


def _check_process(function: object, verb: str) -> None:
    kind = function if inspect.isclass(function) else type(function)
    if not issubclass(kind, ProcessWindowFunction):
        raise GraphError(
            f"{verb}: takes a ProcessWindowFunction (an object or its class), not {function!r:.200}; subclass it, and "
            "implement process(self, key, context, elements)"
        )
    if kind.process is ProcessWindowFunction.process:
        raise GraphError(f"{verb}: {kind.__name__} does not implement process, which is called for each window")


def _check_is(given: object, kind: type, verb: str, such: str) -> None:
    if not isinstance(given, kind):
        hint = f"; {given.__name__} is a class: call it" if inspect.isclass(given) and issubclass(given, kind) else ""
        raise GraphError(f"{verb} takes {_article(kind)}, such as {such}, not {given!r:.200}{hint}")


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}"

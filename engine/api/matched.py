"""The verbs of streams in which a pattern is looked for: of `PatternStream`, which `KeyedStream.match` returns.

Its verbs say what becomes of late rows, and then what is made of matches; the last one adds the operator and returns
the stream of results.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from penstock.engine.api.base import Stream, StreamT
from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.functions import OutputTag, Row
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.texts import function_name

Time = Literal["event", "processing"]
PatternStreamT = TypeVar("PatternStreamT", bound="PatternVerbs[Any]")
_TIMES: Final = ("event", "processing")

if TYPE_CHECKING:
    from penstock.engine.patterns.automaton import CompiledPattern
    from penstock.engine.patterns.functions import PatternProcessFunction, SelectFunction
    from penstock.engine.patterns.limits import MatchLimits
    from penstock.engine.patterns.partial import Match
    from penstock.engine.patterns.pattern import Pattern


@dataclass(frozen=True, slots=True)
class _Settings:
    """How a pattern is looked for."""

    is_event_time: bool
    limits: MatchLimits
    late_tag: OutputTag | None = None


class PatternVerbs(Generic[StreamT]):
    """What can be asked of a stream in which a pattern is looked for."""

    def __init__(
        self,
        stream: StreamT,
        keys: tuple[str, ...],
        pattern: Pattern,
        compiled: CompiledPattern,
        settings: _Settings,
    ) -> None:
        self._stream = stream
        self._keys = keys
        self._pattern = pattern
        self._compiled = compiled
        self._settings = settings

    @classmethod
    def over(
        cls: type[PatternStreamT],
        stream: Stream,
        keys: tuple[str, ...],
        pattern: Pattern,
        time: Time,
        limits: MatchLimits,
    ) -> PatternStreamT:
        """See `KeyedStream.match`."""
        from penstock.engine.patterns.compiler import compile_pattern
        from penstock.engine.patterns.pattern import Pattern

        if not isinstance(pattern, Pattern):
            raise GraphError(f"match takes a Pattern, such as Pattern.begin('a').where(...), not {pattern!r:.200}")
        if time not in _TIMES:
            raise ConfigurationError(f"match: time is 'event' or 'processing', not {time!r}")
        if time == "event" and not stream._timed:
            raise GraphError(
                "match: the stream has no timestamps; call assign_timestamps before, or look for the pattern by the "
                "clock: time='processing'"
            )
        schema = stream.schema
        if schema is None or any(field.type == "null" for field in schema):
            raise GraphError(
                "match: the columns of the stream and their types must be known, to keep rows as state; declare them "
                "with returns={...} where a Python function makes the rows"
            )
        compiled = compile_pattern(pattern)
        _check_expressions(compiled, stream)
        return cls(stream, keys, pattern, compiled, _Settings(time == "event", limits))

    def side_output_late_data(self: PatternStreamT, tag: OutputTag) -> PatternStreamT:
        """Give rows at or behind the watermark to a side output, instead of dropping and counting them.

        Args:
            tag: read it behind the last verb: `alerts.get_side_output(tag)`.

        Raises:
            GraphError: no `OutputTag`, or the pattern is looked for in processing time, where no row is late.
        """
        if not isinstance(tag, OutputTag):
            raise GraphError(f"side_output_late_data takes an OutputTag, such as OutputTag('late'), not {tag!r:.200}")
        if not self._settings.is_event_time:
            raise GraphError("side_output_late_data: no row is late in processing time; leave it out")
        settings = replace(self._settings, late_tag=tag)
        return type(self)(self._stream, self._keys, self._pattern, self._compiled, settings)

    def select(
        self,
        function: Callable[[Match], Mapping[str, Any]],
        returns: Returns = None,
        timed_out: OutputTag | None = None,
        on_timeout: Callable[[Match, int], Row] | None = None,
    ) -> StreamT:
        """Make one row of each match.

        Args:
            function: called with the match, a dict of variables and lists of their rows; returns a row.
            returns: the columns of the result, as for `DataStream.map`.
            timed_out: the side output for partial matches that time out.
            on_timeout: called with such a partial match and the time (int64 ms) of its end; returns a row for
                `timed_out`.

        Raises:
            GraphError: a function that cannot be called, one of `timed_out` and `on_timeout` without the other, or a
                side output that late rows go to.

        Example:
            >>> cards.match(pattern).select(  # doctest: +SKIP
            ...     lambda match: {"card": match["small"][0]["card"], "amount": match["large"][0]["amount"]}
            ... )
        """
        from penstock.engine.patterns.functions import SelectFunction

        for option, given in (("", function), ("on_timeout=", on_timeout)):
            if given is not None and not callable(given):
                raise GraphError(f"select: {option} takes a function of a match, not {given!r:.200}")
        if (timed_out is None) != (on_timeout is None):
            raise GraphError(
                "select: timed_out=OutputTag(...) says where partial matches go that time out, and "
                "on_timeout=function what is made of each; give both, or neither"
            )
        if timed_out is not None:
            self._check_tag(timed_out)
        return self._add(f"select({function_name(function)})", SelectFunction(function, on_timeout, timed_out), returns)

    def _check_tag(self, timed_out: OutputTag) -> None:
        """Make sure that partial matches that time out have a side output of their own."""
        if not isinstance(timed_out, OutputTag):
            raise GraphError(f"select: timed_out takes an OutputTag, such as OutputTag('slow'), not {timed_out!r:.200}")
        if timed_out == self._settings.late_tag:
            raise GraphError(
                f"select: timed_out={timed_out.name!r} is the side output of late rows, too, so that nothing tells the "
                "two apart; give each an OutputTag of its own"
            )

    def process(
        self, function: PatternProcessFunction | type[PatternProcessFunction], returns: Returns = None
    ) -> StreamT:
        """Call a `PatternProcessFunction` with each match: any number of rows, side outputs, time-outs.

        Args:
            function: an object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `DataStream.map`.

        Raises:
            GraphError: another kind of function, or one that does not implement `process_match`.
        """
        from penstock.engine.patterns.functions import PatternProcessFunction

        kind = function if inspect.isclass(function) else type(function)
        if not issubclass(kind, PatternProcessFunction):
            raise GraphError(
                f"match: process takes a PatternProcessFunction (an object or its class), not {function!r:.200}; "
                "subclass it, and implement process_match(self, match, context)"
            )
        if kind.process_match is PatternProcessFunction.process_match:
            raise GraphError(f"match: {kind.__name__} does not implement process_match, which is called for each match")
        return self._add(f"process({function_name(function)})", function, returns)

    def explain(self) -> str:
        """As `Pattern.explain`."""
        return self._pattern.explain()

    def _add(
        self,
        text: str,
        function: PatternProcessFunction | type[PatternProcessFunction] | SelectFunction,
        returns: Returns,
    ) -> StreamT:
        from penstock.engine.operators.matching.match_spec import MatchPlan
        from penstock.engine.operators.matching.operator import MatchSpec

        schema, settings = self._stream.schema, self._settings
        assert schema is not None, "match asks for the columns"
        result = declared_schema(returns, "match")
        plan = MatchPlan(
            self._compiled,
            self._keys,
            schema,
            function,
            result,
            settings.is_event_time,
            settings.late_tag,
            settings.limits,
        )
        tag = settings.late_tag
        sides = {} if tag is None else {tag.name: schema}
        names = " ".join(stage.name or "(...)" for stage in self._pattern.stages())
        name = f"match({', '.join([names, *settings.limits.describe(), text])})"
        return self._stream._add(MatchSpec(plan), result, settings.is_event_time, sides, name)


def _check_expressions(compiled: CompiledPattern, stream: Stream) -> None:
    """Refuse what does not fit the columns while the program is built."""
    from penstock.engine.expressions import Filter, bind

    assert stream.schema is not None, "asked for before"
    steps = tuple(Filter(leaf.given) for leaf in compiled.leaves if leaf.is_expression)
    if steps:
        bind(steps, stream.schema, "match")
    functions = [leaf.given for leaf in compiled.leaves if isinstance(leaf.given, CompiledFunction)]
    if functions:
        # Few programs have compiled functions, and all that compiles comes with this.
        from penstock.engine.operators.compiled import translate_filter
        from penstock.engine.operators.join_columns import plain_schema

        rows = plain_schema(stream.schema)
        for function in functions:
            function.unless_refused(functools.partial(translate_filter, function, rows))

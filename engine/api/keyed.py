"""The verbs of streams divided by key: of `KeyedStream`, which `DataStream.key_by` returns.

Each verb checks its arguments, adds one operator behind the exchange by key, and returns the stream behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, NoReturn

from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation, refuse_unnamed
from penstock.engine.api.base import StreamT
from penstock.engine.api.hints import KEYED_HINTS, no_such_verb
from penstock.engine.compiled.functions import CompiledFunction, is_compiled
from penstock.engine.durations import Duration
from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedProcessFunction, OutputTag, Row
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.windows.base import WindowAssigner

if TYPE_CHECKING:
    from penstock.engine.api.joins import KeyedInput
    from penstock.engine.operators.joins.co_group import CoGroupFunction


class KeyedVerbs(Generic[StreamT]):
    """What can be asked of a stream divided by key, and gives a stream without keys."""

    def __init__(self, stream: StreamT, keys: Sequence[str]) -> None:
        self._stream = stream
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return self._stream._shown(type(self).__name__, f" by {', '.join(self._keys)}")

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            no_such_verb(self, name, KEYED_HINTS)

    def aggregate(self, *unnamed: NoReturn, **aggregates: Aggregate) -> StreamT:
        """Running aggregates: each batch emits one update for every key that it touched.

        The columns are the keys and one for each aggregate. The last update of a key is its final value; how many come
        before it depends on how rows were cut into batches.

        Args:
            aggregates: result names and aggregates.

        Raises:
            GraphError: no aggregate, one without a name, or what is none; a missing column, a wrong type; a result
                named as a key, or a key or result whose name begins with `__`.

        Example:
            >>> stream.key_by("word").aggregate(n=count(), longest=max("length"))  # doctest: +SKIP
        """
        from penstock.engine.operators.keyed_aggregates import RunningAggregateSpec

        refuse_unnamed(unnamed)
        aggregation = GroupedAggregation(self._keys, aggregates)
        schema = None if self._stream.schema is None else aggregation.bind(self._stream.schema, "aggregate")
        return self._stream._add(RunningAggregateSpec(aggregation), schema)

    def process(self, function: KeyedProcessFunction | type[KeyedProcessFunction], returns: Returns = None) -> StreamT:
        """Call a `KeyedProcessFunction`: state and timers by key, any number of rows out, side outputs.

        Args:
            function: an object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `DataStream.map`.

        Raises:
            GraphError: another kind of function, or one that implements none or both of `process_element` and
                `process_batch`.

        Example:
            >>> payments.key_by("user").process(Count(), returns={"user": "string", "n": "int64"})  # doctest: +SKIP
        """
        schema = declared_schema(returns, "process")
        if is_compiled(function):
            # Few programs have compiled functions, and all that compiles comes with this.
            from penstock.engine.operators.functions.compiled_process import process_spec

            compiled = process_spec(function, self._keys, self._stream._schema, schema, self._stream._timed)
            return self._stream._add(compiled, schema)
        from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec

        role = KeyedProcessSpec(function, self._keys, schema, self._stream._timed)
        return self._stream._add(role, schema)

    def reduce(self, function: Callable[[Row, Row], Row], returns: Returns = None) -> StreamT:
        """Reduce each key's rows to one: for every row, what the rows of its key up to it are reduced to.

        The first row of a key passes as it is.

        Args:
            function: takes what the rows so far were reduced to and the next row, both dicts, and returns a dict with
                the same columns.
            returns: the columns, where the stream's types should be others; those of the stream by default.

        Raises:
            GraphError: `function` cannot be called.

        Example:
            >>> stream.key_by("user").reduce(  # doctest: +SKIP
            ...     lambda a, b: {"user": a["user"], "n": a["n"] + b["n"]}
            ... )
        """
        from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec, reduced_schema

        schema = reduced_schema(declared_schema(returns, "reduce") or self._stream.schema)
        if isinstance(function, CompiledFunction):
            from penstock.engine.operators.functions.compiled_reduce import reduce_spec

            compiled = reduce_spec(function, self._keys, self._stream._schema, schema, self._stream._timed)
            return self._stream._add(compiled, schema)
        role = KeyedReduceSpec(function, self._keys, schema, self._stream._timed)
        return self._stream._add(role, schema)

    # Joins

    def window_join(
        self,
        right: KeyedVerbs[StreamT],
        windows: WindowAssigner,
        how: Literal["inner", "left", "right", "full"] = "inner",
        suffix: str = "_right",
    ) -> StreamT:
        """Pair the rows of both streams that have one key and are in one window, once the watermark has passed it.

        The columns are those of this stream, `window_start` and `window_end` (timestamps, UTC; the end does not belong
        to the window), and those of `right` that are no keys. All pairs of a window carry the event timestamp
        `window_end - 1 ms`; a row without a partner is given by outer joins only, filled with nulls. A session lasts as
        long as rows of either stream keep coming. Late rows are dropped and counted.

        Args:
            right: keyed by as many columns of the same types; their names may differ.
            windows: `tumbling(...)`, `sliding(...)` or `session(...)`.
            how: which rows without a partner to keep: none, this stream's, those of `right`, or both.
            suffix: goes behind the name of a column of `right` that this stream has too.

        Raises:
            GraphError: a stream without timestamps or of another program; other keys; a name that is still taken; an
                outer join with a stream whose columns are not known.
            ConfigurationError: an unknown `how`.

        Example:
            >>> clicks.key_by("user").window_join(buys.key_by("buyer"), tumbling("1h"))  # doctest: +SKIP
        """
        from penstock.engine.api import joins

        return joins.window_join(self._input, _partner("window_join", right), windows, how, suffix)

    def interval_join(
        self,
        right: KeyedVerbs[StreamT],
        lower: Duration,
        upper: Duration,
        bounds: Literal["[]", "()", "[)", "(]"] = "[]",
        suffix: str = "_right",
        left_late: OutputTag | None = None,
        right_late: OutputTag | None = None,
    ) -> StreamT:
        """Pair the rows of both streams that have one key and are near in time: left + lower <= right <= left + upper.

        Pairs are emitted as soon as both rows have come, and carry the later of both timestamps. The columns are those
        of this stream, then those of `right` that are no keys. It is an inner join, as in Flink.

        Args:
            right: keyed by as many columns of the same types; their names may differ.
            lower, upper: durations, negative ones too: `"-5s"`, `"10s"`.
            bounds: whether the bounds belong to the interval: `"["` and `"]"`, or not: `"("` and `")"`.
            suffix: goes behind the name of a column of `right` that this stream has too.
            left_late, right_late: side outputs for rows that come at or behind the watermark; without, they are dropped
                and counted.

        Raises:
            GraphError: a stream without timestamps or of another program; other keys; a name that is still taken.
            ConfigurationError: `lower` is more than `upper`, or no duration; unknown `bounds`.

        Example:
            >>> ads.key_by("user").interval_join(clicks.key_by("user"), "0s", "10m")  # doctest: +SKIP
        """
        from penstock.engine.api import joins

        partner = _partner("interval_join", right)
        return joins.interval_join(self._input, partner, lower, upper, bounds, suffix, left_late, right_late)

    def temporal_join(
        self, versions: KeyedVerbs[StreamT], how: Literal["inner", "left"] = "inner", suffix: str = "_right"
    ) -> StreamT:
        """Join each row with the version of its key that was valid at its time: the latest one at or before it.

        A row is emitted, with its own timestamp, when the watermark passes that. Of two versions with one timestamp the
        one that comes last counts, so give them times of their own where several subtasks send them. The columns are
        those of this stream, then those of `versions` that are no keys.
        Late rows of this stream are dropped and counted; late versions count for the rows that come after them.

        Args:
            versions: keyed by as many columns of the same types; each row is valid from its timestamp on.
            how: `"inner"`, or `"left"` to keep rows that have no version, filled with nulls.
            suffix: goes behind the name of a column of `versions` that this stream has too.

        Raises:
            GraphError: a stream without timestamps or of another program; other keys; a name that is still taken; a
                left join with a stream whose columns are not known.
            ConfigurationError: an unknown `how`.

        Example:
            >>> orders.key_by("currency").temporal_join(rates.key_by("currency"), how="left")  # doctest: +SKIP
        """
        from penstock.engine.api import joins

        return joins.temporal_join(self._input, _partner("temporal_join", versions), how, suffix)

    def co_group(
        self, right: KeyedVerbs[StreamT], windows: WindowAssigner, function: CoGroupFunction, returns: Returns = None
    ) -> StreamT:
        """Call a function with all rows of both streams that have one key and are in one window.

        It is called once the watermark has passed the window, for each key with rows on either side. Its results carry
        the event timestamp `window.max_timestamp`. Late rows are dropped and counted.

        Args:
            right: keyed by as many columns of the same types; their names may differ.
            windows: `tumbling(...)`, `sliding(...)` or `session(...)`.
            function: called with the key (a value, or a tuple of several), the window (`start`, `end`), and the rows of
                this stream and of `right`, each a list of dicts in order of time, which may be empty; gives rows, or
                None for none.
            returns: the columns of the result, as for `DataStream.map`.

        Raises:
            GraphError: `function` cannot be called; otherwise as for `window_join`.

        Example:
            >>> def compare(key, window, left, right):
            ...     yield {"user": key, "more": len(left) - len(right)}
            >>> a.key_by("user").co_group(b.key_by("user"), tumbling("1h"), compare)  # doctest: +SKIP
        """
        from penstock.engine.api import joins

        return joins.co_group(self._input, _partner("co_group", right), windows, function, returns)

    @property
    def _input(self) -> KeyedInput[StreamT]:
        from penstock.engine.api.joins import KeyedInput

        return KeyedInput(self._stream, self._keys)


def _partner(verb: str, right: KeyedVerbs[StreamT]) -> KeyedInput[StreamT]:
    if not isinstance(right, KeyedVerbs):
        raise GraphError(f"{verb} takes a stream with keys, not {type(right).__name__}; call key_by(...) on it first")
    return right._input

"""Runs the SQL programs of Flink's own table tests: rows with kinds in, a changelog out, two halves around a savepoint.

`tests/data/sql-programs.json.gz` holds them (Apache-2.0). A program's sources become tables of the connector `given`,
its sinks tables of the connector `expected`, which keeps what it gets.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import StreamEnvironment, checkpoints
from penstock.engine.changelog import ANY_MODE
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import (
    ConnectorContext,
    LookupTable,
    Position,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    Split,
    Wait,
)
from penstock.engine.elements import Batch
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.base import schema_of
from penstock.tables.parse.statement_parser import parse_statement
from penstock.tables.parse.table_statements import CreateTable
from penstock.tables.plan.nodes import INSERT_ONLY, RETRACT, UPSERT, Change, ChangelogMode, Columns
from tests.tables.program_values import arrow_value, held_value, plain, shown, split_row

_FILE = Path(__file__).parents[1] / "data" / "sql-programs.json.gz"
_KINDS = ("+I", "-U", "+U", "-D")
_NOW_MS = 1_700_000_000_000


def programs() -> list[dict[str, Any]]:
    """All programs."""
    with gzip.open(_FILE, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


# The tables of a program


@dataclass(frozen=True)
class _Whole:
    split_id: str = "rows"


@dataclass(frozen=True)
class GivenRows(Source):
    """The rows of a source, in order; with `held`, it waits behind them instead of ending."""

    table: pa.Table
    held: bool

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def bounded(self) -> bool:
        return not self.held

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [_Whole()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _Reader(self, 0)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _Reader(self, int(str(position["row"])))

    def describe(self) -> str:
        return "given rows"


WAITING: Counter[int] = Counter()
"""How often a source that is held has been asked for more, by the identity of its rows."""


class _Reader(SourceReader):
    def __init__(self, source: GivenRows, row: int) -> None:
        self._source, self._row = source, row

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        table = self._source.table
        if self._row < table.num_rows:
            # One row at a time, as Flink's test source gives them.
            batch = table.slice(self._row, 1).combine_chunks().to_batches()[0]
            self._row += 1
            return batch
        WAITING[id(table)] += 1
        return Wait(0.0) if self._source.held else None

    def position(self) -> Position:
        return {"row": self._row}


def _mode(text: str | None) -> ChangelogMode | None:
    return None if text is None else frozenset(Change(part.strip()) for part in text.split(","))


@dataclass
class Given:
    """The connector of sources: `step` of the program by the table's name.

    Args:
        held: whether sources wait behind their rows.
        endless: whether plans are made as if they did, so that what runs behind a savepoint is what ran before it.
    """

    steps: Mapping[str, Mapping[str, Any]]
    halves: Sequence[str]
    held: bool
    endless: bool = False
    tables: list[pa.Table] = field(default_factory=list)
    name: str = "given"

    @property
    def options(self) -> Mapping[str, str]:
        return {"*": "those of Flink's test connector"}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        step = self.steps[table.name]
        rows = [row for half in ("dataBeforeRestore", "dataAfterRestore") for row in step.get(half, [])]
        named = _mode(table.options.get("changelog-mode"))
        if named is not None:
            return named
        kinds = {row["kind"] for row in rows}
        return INSERT_ONLY if kinds <= {"+I"} else RETRACT

    def bounded(self, table: CatalogTable) -> bool:
        return not self.held and not self.endless

    def source_watermarks(self, table: CatalogTable) -> WatermarkStrategy:
        return WatermarkStrategy.for_monotonous_timestamps()

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        step = self.steps[table.name]
        rows = [row for half in self.halves for row in step.get(half, [])]
        schema = schema_of(columns)
        fields = list(schema)
        arrays = [
            pa.array([arrow_value(plain(row["values"][place]), f.type) for row in rows], f.type)
            for place, f in enumerate(fields)
        ]
        arrays.append(pa.array([row["kind"] for row in rows], pa.string()))
        found = pa.table(arrays, schema=schema.append(pa.field("kind of row", pa.string())))
        # A table of an earlier job may have had the identity.
        WAITING[id(found)] = 0
        self.tables.append(found)
        return ScannedTable(GivenRows(found, self.held), "kind of row")

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        scanned = self.scan(table, columns).source
        # What is looked up is not read as a stream, so nobody waits for its end.
        assert self.tables.pop() is not None
        assert isinstance(scanned, GivenRows)
        return LoadedTable(GivenRows(scanned.table.drop_columns("kind of row"), False), schema_of(columns), keys)


@dataclass(frozen=True)
class _Recorded(Sink):
    """Keeps what it is given, in this process."""

    rows: list[tuple[str, tuple[Any, ...]]]
    order: tuple[int, ...]

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _Recorder(self.rows, self.order)

    def describe(self) -> str:
        return "recorded"

    @property
    def changelog_modes(self) -> frozenset[EngineMode]:
        return ANY_MODE


class _Recorder(SinkWriter):
    def __init__(self, rows: list[tuple[str, tuple[Any, ...]]], order: tuple[int, ...]) -> None:
        self._rows, self._order = rows, order

    def write(self, batch: Batch) -> None:
        kinds = [0] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
        types = batch.data.schema.types
        for kind, row in zip(kinds, batch.data.to_pylist(), strict=True):
            values = [held_value(value, type_) for value, type_ in zip(row.values(), types, strict=True)]
            self._rows.append((_KINDS[kind], tuple(values[place] for place in self._order)))


RECORDED: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}


@dataclass
class Expected:
    """The connector of sinks."""

    name: str = "expected"

    @property
    def options(self) -> Mapping[str, str]:
        return {"*": "those of Flink's test connector"}

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        if table.options.get("sink-insert-only") == "true":
            return INSERT_ONLY
        named = _mode(table.options.get("sink-changelog-mode-enforced"))
        if named is not None:
            # What is updated by its key takes inserts as well.
            return named | INSERT_ONLY if Change.UPDATE_AFTER in named else named
        return UPSERT if table.definition.primary_key else RETRACT

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        # As Flink's own: metadata comes behind the other columns, in the order of the connector's option.
        keys = [part.partition(":")[0] for part in table.options.get("writable-metadata", "").split(",")]
        names = [column.name for column in columns]
        physical = [name for name in names if name not in keys]
        order = [names.index(name) for name in (*physical, *(key for key in keys if key in names))]
        sink = _Recorded(RECORDED[table.name], tuple(order))
        return WrittenTable(sink, overwriting=sink)


# Runs


@dataclass
class Outcome:
    """What a half of a program has written, by sink."""

    rows: dict[str, list[tuple[str, tuple[Any, ...]]]]


def _steps(program: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in ("setup", "run"):
        yield from program.get(part, [])


def _declared(step: Mapping[str, Any], connector: str) -> str:
    options = step.get("options") or {}
    given = {k: v for k, v in options.get("$map", options).items() if k != "connector"}
    shown_options = ", ".join(f"'{key}' = '{value}'" for key, value in {"connector": connector, **given}.items())
    columns, keys = ", ".join(step["schemaComponents"]), ", ".join(step.get("partitionKeys") or ())
    partitions = f" PARTITIONED BY ({keys})" if keys else ""
    return f"CREATE TABLE `{step['name']}` ({columns}){partitions} WITH ({shown_options})"


def goes_by_clock(program: Mapping[str, Any]) -> bool:
    """Whether a program has windows of the clock: all rows of a half come in one of them."""
    return (
        "WINDOW" in program["class"].upper() and "OVER" not in program["class"].upper() and "proc-time" in program["id"]
    )


def _setting(step: Mapping[str, Any]) -> tuple[str, str]:
    key = re.search(r"Key: '([^']+)'", step["option"]["$ConfigOption"])
    assert key is not None
    value = step["value"]
    text = next(iter(value.values())) if isinstance(value, dict) else value
    return key[1], str(text).lower() if isinstance(text, bool) else str(text)


_OURS = (
    "table.local-time-zone",
    "table.exec.sink.not-null-enforcer",
    "table.exec.sink.type-length-enforcer",
    "table.exec.sink.nested-constraint-enforcer",
    "table.exec.sink.require-on-conflict",
    "table.exec.source.cdc-events-duplicate",
    "table.exec.state.ttl",
)
"""Options that change results; those of Flink's planner and runtime change only how they come about."""


def prepared(
    program: Mapping[str, Any], env: StreamEnvironment, halves: Sequence[str], held: bool, endless: bool = False
) -> Given:
    """The tables, views and options of a program."""
    sources = {step["name"]: step for step in _steps(program) if step["step"] == "SourceTestStep"}
    given = Given(sources, halves, held, endless)
    env.tables.register_connector(given)
    env.tables.register_connector(Expected())
    RECORDED.clear()
    if program["class"] != "SinkTestPrograms":
        # Flink's tests around a savepoint are run so.
        env.sql("SET 'table.exec.sink.require-on-conflict' = 'false'")
    for step in _steps(program):
        if step["step"] == "SourceTestStep":
            env.sql(_declared(step, "given"))
        elif step["step"] == "SinkTestStep":
            RECORDED[step["name"]] = []
            env.sql(_declared(step, "expected"))
        elif step["step"] == "ConfigOptionTestStep":
            key, value = _setting(step)
            if key in _OURS:
                env.sql(f"SET '{key}' = '{value}'")
        elif step["step"] == "SqlTestStep":
            env.sql(step["sql"])
    return given


def run(program: Mapping[str, Any], folder: Path, parallelism: int) -> tuple[Outcome, Outcome | None]:
    """What the program writes before and behind the savepoint; a program of one half ends with its rows."""
    has_second = any(step.get("dataAfterRestore") for step in _steps(program) if step["step"] == "SourceTestStep")
    clock = ManualClock(_NOW_MS)
    first = StreamEnvironment(
        runtime="local",
        parallelism=parallelism,
        checkpoints=checkpoints("5m", str(folder / "checkpoints")),
        max_batch_rows=1,
        clock=clock,
    )
    given = prepared(program, first, ("dataBeforeRestore",), held=has_second)
    job = first.submit()
    if not has_second:
        job.wait()
        return Outcome({name: list(rows) for name, rows in RECORDED.items()}), None
    while any(WAITING[id(table)] < 3 for table in given.tables):
        job.pump(0.01)
    savepoint = job.stop(str(folder / "savepoint"))
    before = Outcome({name: list(rows) for name, rows in RECORDED.items()})
    clock.advance(60.0)
    second = StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=1, clock=clock)
    prepared(program, second, ("dataBeforeRestore", "dataAfterRestore"), held=False, endless=True)
    again = second.submit(savepoint=savepoint)
    again.wait()
    return before, Outcome({name: list(rows) for name, rows in RECORDED.items()})


_UNTIL_ALL_IS_THROUGH = 300
"""So often sources are asked for more before the clock moves: tasks take turns at random, and rows may be under way."""


def run_by_clock(
    program: Mapping[str, Any],
    folder: Path,
    until: int = _UNTIL_ALL_IS_THROUGH,
    behind_ms: int = 0,
    parallelism: tuple[int, int] = (1, 1),
) -> tuple[Outcome, Outcome]:
    """The same, of a program of two halves with windows of the clock: it moves when all rows of a half have come.

    Args:
        until: how often sources are asked for more before.
        behind_ms: by how much the clock of the second half begins before the end of the first.
        parallelism: of each half.
    """
    clock, savepoint, outcomes = ManualClock(_NOW_MS), None, []
    for halves, width in zip(
        (("dataBeforeRestore",), ("dataBeforeRestore", "dataAfterRestore")), parallelism, strict=True
    ):
        kept = checkpoints("5m", str(folder / "checkpoints"))
        env = StreamEnvironment(runtime="local", parallelism=width, checkpoints=kept, max_batch_rows=1, clock=clock)
        given = prepared(program, env, halves, held=True)
        job = env.submit(savepoint=savepoint)
        # Where the clock goes back, all must have seen how far it had come: rows that meet have one time then.
        for seconds in (60.0, 60.0) if not behind_ms else (60.0, 60.0, 0.0):
            WAITING.clear()
            while any(WAITING[id(table)] < until for table in given.tables):
                job.pump(0.01)
            clock.advance(seconds)
        savepoint = job.stop(str(folder / "savepoint"))
        outcomes.append(Outcome({name: list(rows) for name, rows in RECORDED.items()}))
        clock = ManualClock(clock.now_ms() - behind_ms)
    return outcomes[0], outcomes[1]


# Expectations


def expected_rows(step: Mapping[str, Any], half: str) -> list[str] | None:
    """The changes that a sink must get, as texts; None where the program says nothing."""
    for key in (f"expected{half}RestoreStrings", f"expected{half}Restore"):
        if key in step:
            return [row if isinstance(row, str) else shown_row(row["kind"], plain(row["values"])) for row in step[key]]
    return None


def shown_row(kind: str, values: Sequence[Any]) -> str:
    """A row as Java's `Row.toString` shows it."""
    return f"{kind}[{', '.join(map(shown, values))}]"


def materialized(rows: Sequence[str], key: Sequence[int] = ()) -> Counter[str]:
    """What is there after all changes; with a key, the last row of each."""
    held: Counter[str] = Counter()
    by_key: dict[tuple[str, ...], str] = {}
    for row in rows:
        comes = row[:2] in ("+I", "+U")
        held[row[2:]] += 1 if comes else -1
        values = split_row(row)
        place = tuple(values[index] for index in key)
        if comes:
            by_key[place] = row[2:]
        elif row[:2] == "-D":
            by_key.pop(place, None)
    return Counter(by_key.values()) if key else +held


def key_of(step: Mapping[str, Any]) -> list[int]:
    """The places of a sink's primary key."""
    table = parse_statement(_declared(step, "expected"))
    assert isinstance(table, CreateTable)
    names = [column.name for column in table.definition.columns]
    return [names.index(column.name) for column in table.definition.primary_key]


def _sinks(program: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [step for step in _steps(program) if step["step"] == "SinkTestStep"]


def _shown_rows(outcome: Outcome, sink: str) -> list[str]:
    return [shown_row(kind, values) for kind, values in outcome.rows[sink]]


def check(program: Mapping[str, Any], halves: Mapping[str, Outcome]) -> None:
    """Each half gives what it gives in Flink, or all halves together do: by then, what is there is the same."""
    for sink in _sinks(program):
        key = key_of(sink)
        got = {half: _shown_rows(outcome, sink["name"]) for half, outcome in halves.items()}
        wanted = {half: rows for half in halves if (rows := expected_rows(sink, half)) is not None}
        if all(materialized(got[half], key) == materialized(rows, key) for half, rows in wanted.items()):
            continue
        together = [row for rows in wanted.values() for row in rows]
        all_got = [row for rows in got.values() for row in rows]
        assert materialized(all_got, key) == materialized(together, key), sink["name"]

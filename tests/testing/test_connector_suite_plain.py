"""The conformance kit objects to plain sinks and lookup tables that break a rule, and to no others."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.connectors import ConnectorContext, LookupTable, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.testing.connector_suite import LookupTableSuite, SinkSuite, violations


class Lines(Sink):
    """Each writer writes a file of lines, which is whole when its input has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def open(self, context: ConnectorContext) -> SinkWriter:
        return LinesWriter(self.folder / f"{secrets.token_hex(8)}.jsonl")

    def describe(self) -> str:
        return "lines"


class LinesWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: Batch) -> None:
        self.rows += batch.data.to_pylist()

    def finish(self) -> None:
        self.path.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows))


class OneFileForAll(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        return LinesWriter(self.folder / "all.jsonl")


class DropsItsLastRow(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            def finish(self) -> None:
                self.rows = self.rows[:-1]
                super().finish()

        return Writer(self.folder / f"{secrets.token_hex(8)}.jsonl")


class ClosesOnce(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            def close(self) -> None:
                del self.rows

        return Writer(self.folder / f"{secrets.token_hex(8)}.jsonl")


class ClosesOnlyWhatIsFinished(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            busy = False

            def finish(self) -> None:
                self.busy = True
                super().finish()
                self.busy = False

            def close(self) -> None:
                assert not self.busy

        return Writer(self.folder / f"{secrets.token_hex(8)}.jsonl")


class WritesAHeader(Lines):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(LinesWriter):
            def finish(self) -> None:
                self.rows = self.rows or [{"id": None, "name": None}]
                super().finish()

        return Writer(self.folder / f"{secrets.token_hex(8)}.jsonl")


class LinesSuite(SinkSuite):
    def __init__(self, root: Path, kind: type[Lines] = Lines) -> None:
        self.root, self.kind = root, kind

    def sink(self) -> Sink:
        return self.kind(self.root / secrets.token_hex(8))

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        assert isinstance(sink, Lines)
        return [json.loads(line) for path in sink.folder.iterdir() for line in path.read_text().splitlines()]


SINKS: Mapping[type[Lines], str] = {
    OneFileForAll: "test_rows_are_seen_when_their_input_has_ended",
    DropsItsLastRow: "test_rows_are_seen_when_their_input_has_ended",
    ClosesOnce: "test_writers_can_be_closed_at_any_time",
    ClosesOnlyWhatIsFinished: "test_writers_can_be_closed_after_an_error",
    WritesAHeader: "test_a_writer_without_rows_writes_nothing",
}


def test_a_good_sink_passes(tmp_path: Path) -> None:
    assert violations(LinesSuite(tmp_path)) == {}


@pytest.mark.parametrize("mutant", SINKS, ids=lambda mutant: mutant.__name__)
def test_a_bad_sink_is_caught(mutant: type[Lines], tmp_path: Path) -> None:
    assert "the rule: " in violations(LinesSuite(tmp_path, mutant), [SINKS[mutant]])[SINKS[mutant]]


USERS = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}, {"id": 1, "name": "Al"}]


class Users(LookupTable):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    keys = ("id",)
    client: list[list[dict[str, Any]]] | None = None

    def open(self, context: ConnectorContext) -> None:
        self.client = [USERS]

    def lookup(self, keys: pa.RecordBatch) -> pa.Table:
        assert self.client is not None
        wanted = keys.column("id").to_pylist()
        return pa.Table.from_pylist([row for row in self.client[0] if row["id"] in wanted], self.schema)

    def close(self) -> None:
        self.client = None


class OneRowAKey(Users):
    def lookup(self, keys: pa.RecordBatch) -> pa.Table:
        rows = {row["id"]: row for row in super().lookup(keys).to_pylist()}
        return pa.Table.from_pylist(list(rows.values()), self.schema)


class SharedClient(Users):
    def __init__(self) -> None:
        self.client = []

    def open(self, context: ConnectorContext) -> None:
        assert self.client is not None
        self.client.insert(0, USERS)

    def close(self) -> None:
        assert self.client is not None
        self.client.clear()


class NullsForAbsent(Users):
    def lookup(self, keys: pa.RecordBatch) -> pa.Table:
        found = super().lookup(keys)
        absent = set(keys.column("id").to_pylist()) - set(found.column("id").to_pylist())
        return pa.concat_tables([found, pa.Table.from_pylist([{"id": key} for key in absent], self.schema)])


class OrderedByHowManyKeys(Users):
    def lookup(self, keys: pa.RecordBatch) -> pa.Table:
        found = super().lookup(keys)
        return found if keys.num_rows == 1 else found.sort_by("name")


class UsersSuite(LookupTableSuite):
    def __init__(self, kind: type[Users] = Users) -> None:
        self.kind = kind

    def table(self) -> LookupTable:
        return self.kind()

    def expected(self) -> list[dict[str, Any]]:
        return USERS

    def absent(self) -> list[dict[str, Any]]:
        return [{"id": 7}]


TABLES: Mapping[type[Users], str] = {
    OneRowAKey: "test_all_keys_together_give_all_rows",
    SharedClient: "test_copies_are_independent",
    NullsForAbsent: "test_absent_keys_give_no_rows",
    OrderedByHowManyKeys: "test_each_key_alone_gives_its_rows",
}


def test_a_good_table_passes() -> None:
    assert violations(UsersSuite()) == {}


@pytest.mark.parametrize("mutant", TABLES, ids=lambda mutant: mutant.__name__)
def test_a_bad_table_is_caught(mutant: type[Users]) -> None:
    assert "the rule: " in violations(UsersSuite(mutant), [TABLES[mutant]])[TABLES[mutant]]

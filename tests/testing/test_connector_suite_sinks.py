"""The conformance kit objects to transactional sinks that break one rule each, and not to one that keeps them all."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.testing.connector_suite import TransactionalSinkSuite, violations

DATA = pa.schema([("file", pa.string())])


class Folder(TransactionalSink):
    """Each epoch of a writer is a file, which is shown by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return FolderWriter(self, secrets.token_hex(8), context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        for committable in committables:
            for file in committable.data.column("file").to_pylist():
                self.show(self.folder / file)

    def show(self, staged: Path) -> None:
        if staged.exists():
            staged.rename(staged.with_suffix(".json"))

    def describe(self) -> str:
        return "folder"


class FolderWriter(TransactionalWriter):
    def __init__(self, sink: Any, name: str, context: ConnectorContext) -> None:
        self.sink, self.name, self.context = sink, name, context
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: Batch) -> None:
        self.rows += batch.data.to_pylist()

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        rows, self.rows = self.rows, []
        if not rows:
            return []
        file = f"{self.name}-{checkpoint}.staged"
        (self.sink.folder / file).write_text(json.dumps(rows))
        return [Committable(self.name, checkpoint, pa.Table.from_pylist([{"file": file}], DATA))]


class CommitsInPrepare(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                committables = super().prepare(checkpoint)
                self.sink.commit(committables, self.context)
                return committables

        return Writer(self, secrets.token_hex(8), context)


class PublishesAtOnce(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def write(self, batch: Batch) -> None:
                rows = json.dumps(batch.data.to_pylist())
                (self.sink.folder / f"{secrets.token_hex(8)}.json").write_text(rows)

        return Writer(self, secrets.token_hex(8), context)


class CommitsTwice(Folder):
    def show(self, staged: Path) -> None:
        (self.folder / f"{secrets.token_hex(8)}.json").write_text(staged.read_text())


class FailsWhenCommittedTwice(Folder):
    def show(self, staged: Path) -> None:
        staged.rename(staged.with_suffix(".json"))


class CommitsAllThatIsStaged(Folder):
    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        for staged in self.folder.glob("*.staged"):
            self.show(staged)


class CommitsTheWholeWriter(Folder):
    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        for committable in committables:
            for staged in self.folder.glob(f"{committable.writer}-*.staged"):
                self.show(staged)


class CommitsTheNewest(Folder):
    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        super().commit(committables[-1:], context)


class CommitsItsOwn(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        self.name = secrets.token_hex(8)
        return FolderWriter(self, self.name, context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        super().commit([one for one in committables if one.writer == getattr(self, "name", None)], context)


class CleansUpTooMuch(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        for staged in self.folder.glob("*.staged"):
            staged.unlink()
        return super().open(context)


class NamedBySubtask(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return FolderWriter(self, f"writer-{context.subtask}", context)


class StagedInMemory(Folder):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.staged: dict[str, str] = {}

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                committables = super().prepare(checkpoint)
                for file in self.sink.folder.glob(f"{self.name}-*.staged"):
                    self.sink.staged[file.name] = file.read_text()
                    file.unlink()
                return committables

        return Writer(self, secrets.token_hex(8), context)

    def show(self, staged: Path) -> None:
        staged.with_suffix(".json").write_text(self.staged[staged.name])


class DropsPreparedRowsOnClose(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def close(self) -> None:
                for staged in self.sink.folder.glob(f"{self.name}-*.staged"):
                    staged.unlink()

        return Writer(self, secrets.token_hex(8), context)


class PublishesOnClose(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def close(self) -> None:
                self.sink.commit(self.prepare(0), self.context)

        return Writer(self, secrets.token_hex(8), context)


class HoldsALockFile(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        lock = self.folder / "lock"
        lock.open("x").close()

        class Writer(FolderWriter):
            def close(self) -> None:
                lock.unlink(missing_ok=True)

        return Writer(self, secrets.token_hex(8), context)


class KeepsItsRows(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                rows = list(self.rows)
                committables = super().prepare(checkpoint)
                self.rows = rows
                return committables

        return Writer(self, secrets.token_hex(8), context)


class GivesNothingAtCheckpointZero(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                return super().prepare(checkpoint) if checkpoint else []

        return Writer(self, secrets.token_hex(8), context)


class EmptyCommittables(Folder):
    def open(self, context: ConnectorContext) -> TransactionalWriter:
        class Writer(FolderWriter):
            def prepare(self, checkpoint: int) -> Sequence[Committable]:
                return super().prepare(checkpoint) or [Committable(self.name, checkpoint, DATA.empty_table())]

        return Writer(self, secrets.token_hex(8), context)


class EmptiesItsTarget(Folder):
    def prepare(self) -> None:
        super().prepare()
        for shown in self.folder.glob("*.json"):
            shown.unlink()


class MarksTooEarly(Folder):
    """The marker is there before the rows are."""

    def show(self, staged: Path) -> None:
        marker = staged.with_suffix(".done")
        if not marker.exists():
            marker.touch()
            (self.folder / f"{secrets.token_hex(8)}.json").write_text(staged.read_text())


class MarksTooLate(Folder):
    """The rows are there before the marker is."""

    def show(self, staged: Path) -> None:
        marker = staged.with_suffix(".done")
        if not marker.exists():
            (self.folder / f"{secrets.token_hex(8)}.json").write_text(staged.read_text())
            marker.touch()


class HoldsALock(Folder):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = threading.Lock()


class FolderSuite(TransactionalSinkSuite):
    def __init__(self, root: Path, kind: type[Folder] = Folder) -> None:
        self.root, self.kind = root, kind

    def sink(self) -> TransactionalSink:
        return self.kind(self.root / secrets.token_hex(8))

    def read_back(self, sink: TransactionalSink) -> list[dict[str, Any]]:
        assert isinstance(sink, Folder)
        return [row for shown in sink.folder.glob("*.json") for row in json.loads(shown.read_text())]

    def clock(self) -> Clock:
        return ManualClock()


SINKS: Mapping[type[Folder], Sequence[str]] = {
    CommitsInPrepare: ["rows_are_seen_when_they_are_committed", "rows_of_a_failed_attempt_are_never_seen"],
    PublishesAtOnce: ["rows_are_seen_when_they_are_committed", "a_job_that_crashes_shows_every_row_once"],
    CommitsTwice: ["a_commit_may_be_repeated", "a_job_that_crashes_shows_every_row_once"],
    FailsWhenCommittedTwice: ["a_commit_may_be_repeated", "a_commit_may_be_repeated_with_others"],
    CommitsAllThatIsStaged: ["rows_of_a_failed_attempt_are_never_seen", "jobs_do_not_touch_each_others_rows"],
    CommitsTheWholeWriter: ["each_commit_shows_its_own_rows"],
    CommitsTheNewest: ["each_commit_shows_its_own_rows", "prepared_rows_are_committed_after_a_rescale"],
    CommitsItsOwn: ["another_process_commits_for_a_writer_that_died", "prepared_rows_are_committed_after_a_rescale"],
    CleansUpTooMuch: ["prepared_rows_are_committed_after_a_rescale", "jobs_do_not_touch_each_others_rows"],
    NamedBySubtask: ["writers_have_names_of_their_own"],
    StagedInMemory: ["another_process_commits_for_a_writer_that_died"],
    DropsPreparedRowsOnClose: ["another_process_commits_for_a_writer_that_died"],
    PublishesOnClose: ["a_writer_that_is_closed_leaves_nothing"],
    HoldsALockFile: ["rows_of_a_failed_attempt_are_never_seen"],
    KeepsItsRows: ["each_commit_shows_its_own_rows"],
    GivesNothingAtCheckpointZero: ["without_checkpoints_rows_are_seen_at_the_end"],
    EmptyCommittables: ["a_writer_without_rows_commits_nothing"],
    EmptiesItsTarget: ["a_job_goes_on_from_a_savepoint"],
    MarksTooEarly: ["a_crash_while_rows_are_committed_loses_and_doubles_nothing"],
    MarksTooLate: ["a_crash_while_rows_are_committed_loses_and_doubles_nothing"],
    HoldsALock: ["descriptions_are_picklable"],
}


def test_a_good_sink_passes(tmp_path: Path) -> None:
    assert violations(FolderSuite(tmp_path)) == {}


@pytest.mark.parametrize("mutant", SINKS, ids=lambda mutant: mutant.__name__)
def test_a_bad_sink_is_caught(mutant: type[Folder], tmp_path: Path) -> None:
    checks = [f"test_{name}" for name in SINKS[mutant]]
    found = violations(FolderSuite(tmp_path, mutant), checks)
    assert sorted(found) == sorted(checks)
    assert all("the rule: " in message and "what to do: " in message for message in found.values()), found

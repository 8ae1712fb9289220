"""The stimulus log: what is replayed says the same, a changed brain is found out, and nothing of rows is kept."""

from __future__ import annotations

import dataclasses
import enum
import gzip
import types
import typing
from collections.abc import Mapping, Sequence

import pytest

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.store import Claim
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.errors import (
    CheckpointError,
    FencedError,
    PenstockError,
    SinkNotReadyError,
    UserCodeError,
    WorkerLostError,
)
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job import log as logs
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.codec import ENUMS, VALUES, CodecError, decode, describe, encode, error_class, plain_text
from penstock.engine.job.log import LogKeeper
from penstock.engine.job.recovery import Recovery
from penstock.engine.job.replay import ReplayError, Step, replay
from penstock.engine.state.snapshot import Redistribution
from tests.engine.job.shell import Shell


def _replayed(shell: Shell) -> list[Step]:
    return list(replay([(0, shell.log.text().splitlines())]))


def _long_life() -> Shell:
    """A failure, checkpoints, a savepoint, a rescale, a refused request, the end."""
    shell = Shell().run(Claim(2, 5))
    shell.wait(1.1)
    shell.store()
    shell.commit()
    shell.fail((1, 0), UserCodeError("map", 0, "{'user': 'ada'}", "ValueError: no", "Traceback ada@example.com"))
    shell.restart()
    request = shell.ask(ev.TakeSavepoint("s3://key:secret@bucket/savepoints"))
    shell.handle(ev.FolderChecked(request, "s3://bucket/savepoints"))
    shell.store()
    shell.ask(ev.RescaleJob(3))
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    shell.store()
    shell.cancelled()
    shell.deployed()
    shell.ask(ev.RescaleJob(3))
    shell.finish()
    shell.store()
    shell.commit()
    return shell.take_down()


def test_a_replay_says_what_was_said() -> None:
    shell = _long_life()
    steps = _replayed(shell)
    assert [step.difference for step in steps if step.difference] == []
    assert [text for step in steps for text in step.now or ()] == [describe(one) for one in shell.said]
    assert shell.count(say.End) == 1


def test_what_is_left_out_while_a_job_just_runs_would_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = _long_life()
    monkeypatch.setattr(JobBrain, "_is_steady", False)
    assert [step.difference for step in _replayed(shell) if step.difference] == []


def test_another_brain_is_found_out_at_its_first_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = _long_life()
    monkeypatch.setattr(Recovery, "_region", lambda self, place: [place])
    first = next(step.difference for step in _replayed(shell) if step.difference)
    assert "TaskFailed" in first
    assert "recorded Cancel(number=1, places=[1.0, 1.1, 2.0, 2.1]), now Cancel(number=1, places=[1.0])" in first


def test_a_brain_that_raises_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = _long_life()
    monkeypatch.setattr(Recovery, "on_failure", lambda self, failure: 1 / 0)
    steps = _replayed(shell)
    assert "now ZeroDivisionError" in next(step.difference for step in steps if step.difference)
    assert steps[-1].now is None


def test_restart_delays_are_replayed() -> None:
    shell = Shell(restarts=None).run()
    shell.fail()
    shell.cancelled()
    shell.wait(5)
    assert shell.count(say.Deploy) == 2
    assert not [step.difference for step in _replayed(shell) if step.difference]
    assert '"drawn":[0.' in shell.log.text()


def test_nothing_of_rows_secrets_or_tracebacks_is_kept() -> None:
    text = _long_life().log.text()
    assert not [word for word in ("ada", "secret", "Traceback") if word in text]
    assert "s3://bucket/savepoints" in text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("az://c/a?sas_token=abc&x=1", "az://c/a?&x=1"),
        ("first line\nsecond", "first line"),
        ("", ""),
        ("x" * 2000, "x" * 1000),
    ],
)
def test_texts_are_short_and_have_no_credentials(given: str, kept: str) -> None:
    assert plain_text(given) == kept == plain_text(kept)


@pytest.mark.parametrize(
    "error", [FencedError("f"), SinkNotReadyError("s"), WorkerLostError("w"), CheckpointError("c")], ids=str
)
def test_errors_keep_their_class(error: PenstockError) -> None:
    assert type(decode(encode(error))) is type(error)


def test_errors_of_more_than_a_text_become_the_next_class_that_is() -> None:
    error = UserCodeError("map", 0, "row", "ValueError: no", "Traceback")
    assert error_class(error) is PenstockError
    assert "ValueError: no" in str(decode(encode(error)))


def test_what_a_checkpoint_refers_to_is_kept_by_name() -> None:
    file = FileHandle(f"shared/{'a' * 64}-12-1000001-1-0-3.arrow", 77, "a" * 64)
    table = TableHandle(Redistribution.SPLIT, (), (SegmentHandle(file, 9),))
    operator = OperatorHandle("counts", "counts", {"n": table})
    handle = SubtaskHandle(1, 0, 2, (operator,), finished=True)
    back = decode(encode(handle))
    assert [(one.path[-23:], one.length) for one in back.files()] == [("-12-1000001-1-0-3.arrow", 77)]
    assert (back.task, back.subtask, back.parallelism, back.finished) == (1, 0, 2, True)
    assert [one.uid for one in back.operators] == ["counts"]
    assert encode(back) == encode(handle)


def _types_within(hint: object, seen: set[type]) -> None:
    """All classes that a type hint leads to."""
    for argument in typing.get_args(hint):
        _types_within(argument, seen)
    if not isinstance(hint, type) or hint in seen or isinstance(hint, types.GenericAlias):
        return
    seen.add(hint)
    if dataclasses.is_dataclass(hint) and hint is not SubtaskHandle:
        for one in typing.get_type_hints(hint).values():
            _types_within(one, seen)


def test_every_event_can_be_written() -> None:
    """A member of a new type in an event is listed in the codec, or is one that it knows."""
    seen: set[type] = set()
    for event in typing.get_args(ev.Event):
        _types_within(event, seen)
    unknown = {
        one.__name__
        for one in seen
        if not (one in VALUES.values() or one in ENUMS.values() or issubclass(one, PenstockError))
        and one not in (SubtaskHandle, int, float, str, bool, type(None), tuple, frozenset)
        and not issubclass(one, Sequence | Mapping)
    }
    assert unknown == set()


def test_other_values_are_refused() -> None:
    class Colour(enum.Enum):
        RED = 1

    for value in (Colour.RED, object(), FileHandle("a", 1, "b")):
        with pytest.raises(CodecError):
            encode(value)
    for text in ({"is": "Popen"}, {"is": "AbortReason", "name": "NONE"}, {"is": "Ticked", "x": 1}, {}):
        with pytest.raises(CodecError):
            decode(text)


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"format": 99}'])
def test_what_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(ReplayError):
        list(replay([(0, text.splitlines())]))


def test_the_first_and_the_newest_parts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PART_BYTES", 1), ("FIRST_PARTS", 3), ("LAST_PARTS", 2)):
        monkeypatch.setattr(logs, name, value)
    shell, parts = Shell(), dict[int, bytes]()
    keeper = LogKeeper(shell.log)
    shell.handle(ev.Began())
    keeper.write(shell.log.take(), parts.__setitem__, parts.__delitem__)
    shell.handle(ev.Claimed(Claim(1, 1)))
    for _ in range(9):
        keeper.write(shell.log.take(), parts.__setitem__, parts.__delitem__)
        shell.wait(0.01)
    keeper.write(shell.log.take(), parts.__setitem__, parts.__delitem__)
    assert sorted(parts) == [0, 1, 2, 9, 10]
    steps = list(replay((part, gzip.decompress(data).decode().splitlines()) for part, data in sorted(parts.items())))
    assert [step.now is None for step in steps] == [False, False, False, True, True]


def test_what_the_storage_does_not_take_is_written_again() -> None:
    shell, parts = Shell(), dict[int, bytes]()
    keeper = LogKeeper(shell.log)

    def refuse(part: int, data: bytes) -> None:
        raise CheckpointError("no space left")

    shell.run()
    with pytest.raises(CheckpointError):
        keeper.write(shell.log.take(), refuse, parts.__delitem__)
    shell.fail()
    keeper.write(shell.log.take(), parts.__setitem__, parts.__delitem__)
    steps = list(replay([(0, gzip.decompress(parts[0]).decode().splitlines())]))
    assert [step.event.partition("(")[0] for step in steps] == ["Began", "Claimed", "Deployed", "TaskFailed"]


def test_a_log_that_nobody_writes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 3)
    shell = Shell().run()
    shell.wait(1)
    assert (shell.log.is_open, len(shell.log)) == (False, 0)


def test_a_savepoint_to_begin_with_is_in_the_header() -> None:
    shell = Shell(start=_checkpoint()).run()
    assert shell.last(say.Deploy).checkpoint is None
    assert not [step.difference for step in _replayed(shell) if step.difference]


def _checkpoint() -> CompletedCheckpoint:
    handle = SubtaskHandle(1, 0, 2, ())
    kind, mode = SnapshotKind.SAVEPOINT, CheckpointMode.ALIGNED
    return CompletedCheckpoint("old", "job", 9, 1, kind, mode, 128, 0, 0, (handle,), {"s": 2})


def test_the_brain_gets_nothing_that_the_log_does_not_note() -> None:
    assert set(JobBrain.__init__.__annotations__) == {"name", "config", "planner", "chosen", "storage", "return"}

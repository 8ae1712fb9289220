"""The manifest of a checkpoint or savepoint: JSON that lists what it consists of, and that protects itself.

The job store and the savepoint tools write and read it. The last line carries the SHA-256 of all bytes before it, so
any changed, missing or additional byte is found; what is in it is taken apart strictly, and refused with the file's
name.

    {
     "attempt": 3,
     ...
     "subtasks": [
      {"finished": false, ... "subtask": 0, "task": 0},
      {"finished": false, ... "subtask": 1, "task": 0}
     ],
     "sha256": "0f5e..."
    }

This last line, and the member `format`, stay as they are in every later format. White space between members means
nothing to who reads one.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    InFlightHandle,
    JobStory,
    NativeHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, RestoreError
from penstock.engine.graph.scale import Scale
from penstock.engine.state.capture import Expiry
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.content import is_digest
from penstock.savepoints.paths import check_path

FORMAT: Final = 2
"""In format 1, files have a member `sha256` of hexadecimal digits in the place of `digest`; segments have no `keys`."""
LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a manifest: 10,000 subtasks with 80 files each."""

_MOST_ROWS_A_BYTE: Final = 1_000
_SHOWN: Final = 100
"""Characters of a name in a message."""

E = TypeVar("E", bound=enum.Enum)
T = TypeVar("T")
Json = Mapping[str, Any]
"""A JSON object, not yet checked."""


class _UnfitError(Exception):
    """A value is not what belongs there. Its text says where and why."""


@functools.cache
def _version() -> str:
    """What is looked up in the files of the installation is the same for each manifest."""
    return importlib.metadata.version("penstock")


def encode_manifest(checkpoint: CompletedCheckpoint) -> bytes:
    """The manifest of a checkpoint: sorted, readable, the same bytes for equal checkpoints."""
    files = {file.path: file.length for file in checkpoint.files()}
    content = _members_of(checkpoint)
    content |= {"format": FORMAT, "penstock": _version(), "files": len(files), "bytes": sum(files.values())}
    content["subtasks"] = iter(checkpoint.subtasks)
    if checkpoint.scale is not None:
        content["scale"] = {**_members_of(checkpoint.scale), "operators": dict(checkpoint.scale.operators)}
    return seal({name: value for name, value in content.items() if value is not None})


def _members_of(value: Any) -> Any:
    return _taken_apart(value.__class__)(value)


@functools.cache
def _taken_apart(kind: type[Any]) -> Callable[[Any], Any]:
    """Makes of a dataclass its members, by name, but for those that tell no two apart; of an enum its value."""
    if issubclass(kind, enum.Enum):
        return operator.attrgetter("value")
    names = sorted(one.name for one in dataclasses.fields(kind) if one.compare)
    take = operator.attrgetter(*names)
    if kind is SegmentHandle:
        # Few have keys of their own, and a wide job has very many segments.
        return lambda value: {name: one for name, one in zip(names, take(value), strict=True) if one is not None}
    return lambda value: dict(zip(names, take(value), strict=True))


def decode_manifest(data: bytes, where: str) -> CompletedCheckpoint:
    """The checkpoint that a manifest describes.

    Args:
        data: the whole file.
        where: its URL, for messages.

    Raises:
        CheckpointCorruptError: it is not as it was written. Names the file.
        RestoreError: a later version of Penstock has written it.
    """
    content = unseal(data, where)
    try:
        return _checkpoint(content)
    except _UnfitError as unfit:
        raise CheckpointCorruptError(f"{where} is no manifest of a checkpoint or savepoint: {unfit}") from None


def seal(content: Json) -> bytes:
    """A JSON object as text, a line for each member and each element of a list, then the SHA-256 of these lines.

    Lists may be iterators, of which one element at a time is in memory.
    """
    # No `indent` for the whole: json has that in Python only, six times as slow, and a job may have 10,000 subtasks.
    encode = json.JSONEncoder(sort_keys=True, allow_nan=False, default=_members_of).encode
    members = []
    for name, value in sorted(content.items()):
        text = _lines(map(encode, value)) if isinstance(value, list | Iterator) else encode(value)
        members.append(f" {encode(name)}: {text}")
    head = ("{\n" + ",\n".join(members) + ",\n").encode()
    return head + _last_line(head).encode()


def _lines(elements: Iterator[str]) -> str:
    text = ",\n  ".join(elements)
    return f"[\n  {text}\n ]" if text else "[]"


def unseal(data: bytes, where: str) -> Json:
    """The JSON object that `seal` was given; errors as `decode_manifest`."""
    if len(data) > LARGEST:
        raise CheckpointCorruptError(f"{where} has {len(data)} bytes; a manifest has at most {LARGEST}")
    head = data[: -len(_last_line(b""))]
    if data != head + _last_line(head).encode():
        raise CheckpointCorruptError(
            f"{where} is not as it was written: it was cut off, changed, or is no file of a checkpoint; restore it "
            "from a backup, or start from another checkpoint or savepoint"
        )
    try:
        content = json.loads(data, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorruptError(f"{where} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointCorruptError(f"{where} holds no JSON object")
    written = content.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise RestoreError(
            f"{where} has format {written}, written by Penstock {str(content.get('penstock'))[:40]}; this version "
            f"reads formats up to {FORMAT}: upgrade penstock"
        )
    if type(written) is not int or written < 1:
        raise CheckpointCorruptError(f"{where} has no format number")
    return content


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object: of two with one name, readers would take one or the other.

    Raises:
        ValueError: there are such.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"member {twice[:_SHOWN]!r} occurs twice")
    return members


def _last_line(head: bytes) -> str:
    return f' "sha256": "{hashlib.sha256(head).hexdigest()}"\n}}\n'


def _checkpoint(content: Json) -> CompletedCheckpoint:
    whole = _Object(
        content,
        "the manifest",
        {
            "format", "penstock", "job_id", "job_name", "checkpoint", "attempt", "epoch", "kind", "mode",
            "max_parallelism", "triggered_ms", "completed_ms", "split_parallelism", "files", "bytes", "subtasks",
            "sha256", *(name for name in ("story", "scale") if name in content),
        },
    )  # fmt: skip
    whole.text("penstock")
    checkpoint = CompletedCheckpoint(
        job_id=whole.text("job_id"),
        job_name=whole.text("job_name"),
        checkpoint=whole.number("checkpoint", least=1),
        attempt=whole.number("attempt", least=0),
        kind=whole.choice("kind", SnapshotKind),
        mode=whole.choice("mode", CheckpointMode),
        max_parallelism=whole.number("max_parallelism", least=1),
        triggered_ms=whole.number("triggered_ms"),
        completed_ms=whole.number("completed_ms"),
        subtasks=tuple(whole.each("subtasks", _read_subtask)),
        split_parallelism=whole.by_name("split_parallelism", _whole_number),
        epoch=whole.number("epoch", least=0),
        story=_read_story(whole.member("story"), "the story") if "story" in content else None,
        scale=_read_scale(whole.member("scale"), "the scale") if "scale" in content else None,
    )
    _check_once("subtask", [(subtask.task, subtask.subtask) for subtask in checkpoint.subtasks])
    files = {file.path: file.length for file in checkpoint.files()}
    if (whole.number("files"), whole.number("bytes")) != (len(files), sum(files.values())):
        raise _UnfitError("its number of files or bytes is not that of the files it lists")
    return checkpoint


def _read_story(value: object, where: str) -> JobStory:
    found = _Object(value, where, {"completed", "failed", "checkpoints", "restarts", "restart_records"})
    return JobStory(
        completed=found.number("completed", least=0),
        failed=found.number("failed", least=0),
        checkpoints=tuple(found.each("checkpoints", _text)),
        restarts=found.number("restarts", least=0),
        restart_records=tuple(found.each("restart_records", _text)),
    )


def _read_scale(value: object, where: str) -> Scale:
    found = _Object(value, where, {"default", "operators", "most"})
    return Scale(
        default=found.optional("default", _whole_number),
        operators=tuple(sorted(found.by_name("operators", _whole_number).items())),
        most=found.optional("most", _whole_number),
    )


def _check_once(what: str, names: Sequence[object]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise _UnfitError(f"{what} {str(twice[0])[:_SHOWN]} occurs twice")


def _read_subtask(value: object, where: str) -> SubtaskHandle:
    found = _Object(value, where, {"task", "subtask", "parallelism", "finished", "operators", "in_flight"})
    subtask = SubtaskHandle(
        task=found.number("task", least=0),
        subtask=found.number("subtask", least=0),
        parallelism=found.number("parallelism", least=1),
        operators=tuple(found.each("operators", _read_operator)),
        in_flight=tuple(found.each("in_flight", _read_in_flight)),
        finished=found.flag("finished"),
    )
    if subtask.subtask >= subtask.parallelism:
        raise _UnfitError(f"{where}.subtask is {subtask.subtask}, of a parallelism of {subtask.parallelism}")
    _check_once(f"{where}: operator", [operator.uid for operator in subtask.operators])
    return subtask


def _read_operator(value: object, where: str) -> OperatorHandle:
    found = _Object(value, where, {"uid", "name", "watermark", "tables", "native"})
    return OperatorHandle(
        uid=found.text("uid"),
        name=found.text("name"),
        tables=found.by_name("tables", _read_table),
        watermark=found.number("watermark"),
        native=found.optional("native", _read_native),
    )


def _read_table(value: object, where: str) -> TableHandle:
    found = _Object(value, where, {"redistribution", "identity", "expiry", "segments"})
    segments = tuple(found.each("segments", _read_segment))
    _check_once(f"{where}: file", [segment.file.path for segment in segments])
    return TableHandle(
        redistribution=found.choice("redistribution", Redistribution),
        identity=tuple(found.each("identity", _text)),
        segments=segments,
        expiry=found.optional("expiry", _read_expiry),
    )


def _read_segment(value: object, where: str) -> SegmentHandle:
    has_keys = isinstance(value, dict) and "keys" in value
    found = _Object(value, where, {"file", "rows", "first_group", "last_group", *(["keys"] if has_keys else [])})
    file, rows = _read_file(found.member("file"), f"{where}.file"), found.number("rows", least=0)
    if rows > _MOST_ROWS_A_BYTE * file.length:
        raise _UnfitError(f"{where}.rows is {rows}, which a file of {file.length} bytes cannot hold")
    return SegmentHandle(
        file=file,
        rows=rows,
        first_group=found.number("first_group", least=-1),
        last_group=found.number("last_group", least=-1),
        keys=_read_file(found.member("keys"), f"{where}.keys") if has_keys else None,
    )


def _read_expiry(value: object, where: str) -> Expiry:
    found = _Object(value, where, {"column", "below"})
    return Expiry(found.text("column"), found.number("below"))


def _read_native(value: object, where: str) -> NativeHandle:
    found = _Object(value, where, {"format", "files", "metadata"})
    return NativeHandle(found.text("format"), found.by_name("files", _read_file), found.by_name("metadata", _text))


def _read_in_flight(value: object, where: str) -> InFlightHandle:
    found = _Object(value, where, {"exchange", "file"})
    return InFlightHandle(found.text("exchange"), _read_file(found.member("file"), f"{where}.file"))


def _read_file(value: object, where: str) -> FileHandle:
    name = "sha256" if isinstance(value, dict) and "sha256" in value else "digest"
    found = _Object(value, where, {"path", "length", name})
    digest = found.text(name) if name == "digest" else f"sha256:{found.text(name)}"
    if not is_digest(digest):
        raise _UnfitError(f"{where}.{name} is no digest by an algorithm that is known")
    try:
        path = check_path(found.text("path"), where)
    except CheckpointError as error:
        raise _UnfitError(str(error)) from None
    return FileHandle(path, found.number("length", least=0), digest)


class _Object:
    """A JSON object with exactly the members `names`, whose values are checked as they are taken."""

    __slots__ = ("_members", "_where")

    def __init__(self, value: object, where: str, names: set[str]) -> None:
        if not isinstance(value, dict) or value.keys() != names:
            raise _UnfitError(f"{where} must have the members {', '.join(sorted(names))}")
        self._members: Json = value
        self._where = where

    def member(self, name: str) -> object:
        return self._members[name]

    def text(self, name: str) -> str:
        return _text(self._members[name], f"{self._where}.{name}")

    def number(self, name: str, least: int = -(2**63)) -> int:
        value = _whole_number(self._members[name], f"{self._where}.{name}")
        if value < least:
            raise _UnfitError(f"{self._where}.{name} is {value}, which is less than {least}")
        return value

    def flag(self, name: str) -> bool:
        value = self._members[name]
        if not isinstance(value, bool):
            raise _UnfitError(f"{self._where}.{name} must be true or false")
        return value

    def choice(self, name: str, kind: type[E]) -> E:
        try:
            return kind(self._members[name])
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise _UnfitError(f"{self._where}.{name} must be one of {allowed}") from None

    def each(self, name: str, read: Callable[[object, str], T]) -> list[T]:
        values = self._members[name]
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise _UnfitError(f"{self._where}.{name} must be a list")
        return [read(value, f"{self._where}.{name}[{place}]") for place, value in enumerate(values)]

    def by_name(self, name: str, read: Callable[[object, str], T]) -> dict[str, T]:
        values = self._members[name]
        if not isinstance(values, dict):
            raise _UnfitError(f"{self._where}.{name} must be an object")
        return {key: read(value, f"{self._where}.{name}.{key}") for key, value in values.items()}

    def optional(self, name: str, read: Callable[[object, str], T]) -> T | None:
        value = self._members[name]
        return None if value is None else read(value, f"{self._where}.{name}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _UnfitError(f"{where} must be text")
    return value


def _whole_number(value: object, where: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _UnfitError(f"{where} must be a whole number of 64 bits")
    return value

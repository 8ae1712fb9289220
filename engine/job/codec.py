"""Events of a job as JSON, for its stimulus log, and back: what the brain decides by, without what it need not know.

`StimulusLog` writes them and `replay` reads them. Nothing but the values listed here is ever made of a file. Errors
keep their class and first line, URLs lose credentials, and of the state that a checkpoint refers to the ends of its
files' names stay.
"""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeAlias, get_args

from penstock.engine import errors
from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig, RestartStrategy
from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    InFlightHandle,
    JobStory,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.store import Claim
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.errors import PenstockError, summary
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job.layout import Layout, TaskLayout
from penstock.engine.state.snapshot import Redistribution

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value of JSON."""

VALUES: Final[Mapping[str, type]] = {
    one.__name__: one
    for one in (
        *get_args(ev.Event),
        *get_args(ev.Command),
        *get_args(RestartStrategy),
        ev.Moment,
        Claim,
        CompletedCheckpoint,
        JobStory,
        Layout,
        TaskLayout,
        Scale,
        CheckpointConfig,
        FailoverConfig,
    )
}
"""The values that are written member by member."""
ENUMS: Final[Mapping[str, type[enum.Enum]]] = {one.__name__: one for one in (AbortReason, SnapshotKind, CheckpointMode)}
_IS: Final = "is"
"""The member that names what an object of JSON stands for."""
_NAME_KEPT: Final = 40
"""Characters of the end of a file's name that tell it apart from all others of its job (see `savepoints.paths`)."""
_TEXT_KEPT: Final = 1_000
_LIST_KEPT: Final = 200
"""Characters of a list in the text of an instruction; of a longer one, the length and a checksum are kept."""
_CREDENTIALS: Final = re.compile(
    r"(?<=://)[^/@\s]+@|(?<=[?&])[^=&\s]*(?:key|token|secret|passw|sig)[^=&\s]*=[^&\s]*", re.I
)
_WORDS: Final = frozenset({"message", "problem"})
"""Members of instructions that are for people: nothing is decided by them, and they quote errors."""


class CodecError(PenstockError):
    """A value that a stimulus log cannot hold, or that is none of one."""


# Values to JSON


def encode(value: object) -> Json:
    """A value as JSON.

    Raises:
        CodecError: it is of a type that is not listed here.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return plain_text(value)
        case enum.Enum() if type(value).__name__ in ENUMS:
            return {_IS: type(value).__name__, "name": value.name}
        case PenstockError():
            return {_IS: "error", "class": error_class(value).__name__, "text": plain_text(summary(value))}
        case SubtaskHandle():
            return _handle(value)
        case list() | tuple():
            return [encode(one) for one in value]
        case set() | frozenset():
            return {_IS: "set", "of": [encode(one) for one in sorted(value)]}
        case Mapping():
            return {_IS: "map", "of": [[encode(key), encode(one)] for key, one in value.items()]}
        case _ if is_dataclass(value) and type(value).__name__ in VALUES:
            members = {one.name: encode(getattr(value, one.name)) for one in fields(value)}
            return {_IS: type(value).__name__, **members}
        case _:
            raise CodecError(f"a stimulus log cannot hold a {type(value).__name__}; list it in engine/job/codec.py")


def plain_text(text: str) -> str:
    """The first line of a text, in at most 1,000 characters and without the credentials of URLs.

    Example:
        >>> plain_text("s3://key:secret@bucket/orders")
        's3://bucket/orders'
    """
    return _CREDENTIALS.sub("", (text.splitlines() or [""])[0])[:_TEXT_KEPT]


def error_class(error: BaseException) -> type[PenstockError]:
    """The nearest class of `engine/errors.py` that is made of a text alone."""
    known = (one for one in type(error).__mro__ if vars(errors).get(one.__name__) is one)
    return next((one for one in known if not any("__init__" in vars(base) for base in _ours(one))), PenstockError)


def _ours(error: type) -> list[type]:
    return [base for base in error.__mro__ if issubclass(base, PenstockError)]


def _handle(handle: SubtaskHandle) -> Json:
    """Which operators there are, and the files."""
    operators: list[Json] = [[one.uid, [_file(file) for file in one.files()]] for one in handle.operators]
    in_flight: list[Json] = [_file(rows.file) for rows in handle.in_flight]
    head = {"task": handle.task, "subtask": handle.subtask, "parallelism": handle.parallelism}
    return {_IS: "handle", **head, "finished": handle.finished, "operators": operators, "in_flight": in_flight}


def _file(file: FileHandle) -> Json:
    return [file.path[-_NAME_KEPT:], file.length]


# JSON to values


def decode(content: Any) -> Any:
    """The value of what `encode` gave. Sequences are tuples.

    Raises:
        CodecError: it is none.
    """
    if isinstance(content, list):
        return tuple(decode(one) for one in content)
    if not isinstance(content, dict):
        return content
    try:
        return _decode_object(content)
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(f"{str(content)[:100]} is no value of a stimulus log of this version: {error!r}") from error


def _decode_object(content: Mapping[str, Any]) -> Any:
    match content[_IS]:
        case "error":
            return _error(str(content["class"]), str(content["text"]))
        case "handle":
            return _restored_handle(content)
        case "set":
            return frozenset(decode(one) for one in content["of"])
        case "map":
            return {decode(key): decode(one) for key, one in content["of"]}
        case name if name in ENUMS:
            return ENUMS[name][content["name"]]
        case name:
            return VALUES[name](**{key: decode(one) for key, one in content.items() if key != _IS})


def _error(name: str, text: str) -> PenstockError:
    known = vars(errors).get(name)
    if isinstance(known, type) and issubclass(known, PenstockError):
        return error_class(known.__new__(known))(text)
    return PenstockError(text)


def _restored_handle(content: Mapping[str, Any]) -> SubtaskHandle:
    operators = [
        OperatorHandle(uid, "", {"": TableHandle(Redistribution.KEYED, (), tuple(_segments(files)))})
        for uid, files in content["operators"]
    ]
    in_flight = [InFlightHandle("", segment.file) for segment in _segments(content["in_flight"])]
    head = content["task"], content["subtask"], content["parallelism"]
    return SubtaskHandle(*head, tuple(operators), tuple(in_flight), content["finished"])


def _segments(files: Iterable[Sequence[Any]]) -> Iterable[SegmentHandle]:
    return (SegmentHandle(FileHandle(path, length, ""), 0) for path, length in files)


# Instructions as text


def describe(value: object) -> str:
    """An instruction or event on one line, equal for equal decisions, whatever errors and other texts say.

    Example:
        >>> describe(say.Commit(7, ((2, 0), (2, 1))))
        'Commit(checkpoint=7, places=[2.0, 2.1])'
    """
    match value:
        case PenstockError():
            return error_class(value).__name__
        case enum.Enum():
            return value.name
        case str():
            return repr(plain_text(value))
        case FileHandle():
            return f"{value.path[-_NAME_KEPT:]} of {value.length} B"
        case SubtaskHandle():
            return describe([*value.files()])
        case CompletedCheckpoint():
            return f"{value.checkpoint} of attempt {value.attempt} ({value.kind.name}, {describe([*value.files()])})"
        case int(task), int(subtask):
            return f"{task}.{subtask}"
        case list() | tuple() | set() | frozenset():
            told = f"[{', '.join(sorted(map(describe, value)))}]"
            return told if len(told) <= _LIST_KEPT else f"{len(value)} ({zlib.crc32(told.encode()):08x})"
        case _ if is_dataclass(value):
            members = [one.name for one in fields(value) if one.name not in _WORDS]
            return f"{type(value).__name__}({', '.join(f'{one}={describe(getattr(value, one))}' for one in members)})"
        case _:
            return repr(value)

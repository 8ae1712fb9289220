"""Frames of links that ask a subtask for its state, and that answer: packed by one side, and read by the other.

Few keys and their rows travel as Arrow's own messages, which take a third of the time of pickle; what both sides see
again and again, the columns, is read once. All that Arrow cannot send alone, such as dictionaries, is pickled.
"""

from __future__ import annotations

import pickle
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.actors.plain_rows import is_plain, read_rows
from penstock.engine.errors import PenstockError
from penstock.engine.state.snapshot import Redistribution

if TYPE_CHECKING:
    from penstock.savepoints.layout import Layout
    from penstock.savepoints.live_rows import LiveRows, Question, StateAnswer

_ROWS: Final = struct.Struct("<II")
_KEPT: Final = 64
"""The columns of so many states are known at once."""
_PACKED: Final[dict[int, tuple[Layout, bytes]]] = {}


def packed_question(attempt: int, uid: str, state: str, question: Question) -> bytes:
    """The frame that asks an attempt of a subtask. Nothing where pickle cannot do it."""
    keys = question.keys
    try:
        if keys is None or not all(map(is_plain, keys.schema.types)):
            return _pickled((attempt, uid, state, question))
        columns, rows = keys.schema.serialize().to_pybytes(), keys.serialize().to_pybytes()
        wanted = question.wanted
        return _pickled((attempt, uid, state, columns, rows, dict(wanted.where), wanted.limit))
    except Exception:
        return b""


def unpacked_question(frame: bytes) -> tuple[int, str, str, Question]:
    """What a frame asks: attempt, operator, state and question. Any error means that it is to come by a call."""
    from penstock.savepoints.live_rows import Question, ScanFilter

    attempt, uid, state, *asked = pickle.loads(frame)  # noqa: S301  from a process of the same user
    if len(asked) == 1:
        return attempt, uid, state, asked[0]
    columns, rows, where, limit = asked
    return attempt, uid, state, Question(read_rows(columns, rows), ScanFilter(where, limit))


def packed_answer(answer: StateAnswer) -> bytes:
    """An answer that several may get. Nothing as above."""
    try:
        if answer is None or isinstance(answer, PenstockError) or not _is_plain(_packed_layout(answer.layout)):
            return _pickled(answer)
        batches = answer.data.to_batches()
        if len(batches) != 1:
            return _pickled(answer)
        return _pickled(
            (_packed_layout(answer.layout), answer.redistribution.value, batches[0].serialize().to_pybytes())
        )
    except Exception:
        return b""


def rows_frame(begin: int, end: int, packed: bytes) -> bytes:
    """The frame that answers by some rows of an answer."""
    return _ROWS.pack(begin, end) + packed


def unpacked_answer(frame: bytes | bytearray) -> StateAnswer:
    """The answer in a frame; any error means that it can be had by a call alone."""
    told: Any = pickle.loads(memoryview(frame)[_ROWS.size :])  # noqa: S301  from a process of the same user
    if isinstance(told, tuple):
        layout, redistribution, rows = told
        told = _answer(_layout(layout), Redistribution(redistribution), rows)
    return rows_of(told, *_ROWS.unpack_from(frame))


def rows_of(answer: StateAnswer, begin: int, end: int) -> StateAnswer:
    """Some rows of an answer; an error, or nothing, as it is."""
    if answer is None or isinstance(answer, PenstockError) or end - begin == answer.data.num_rows:
        return answer
    return type(answer)(answer.layout, answer.redistribution, answer.data.slice(begin, end - begin))


def _answer(layout: Layout, redistribution: Redistribution, rows: bytes) -> LiveRows:
    from penstock.savepoints.live_rows import LiveRows

    batch = pa.ipc.read_record_batch(pa.py_buffer(rows), layout.schema)
    return LiveRows(layout, redistribution, pa.Table.from_batches([batch]))


def _pickled(what: object) -> bytes:
    return pickle.dumps(what, pickle.HIGHEST_PROTOCOL)


def _packed_layout(layout: Layout) -> bytes:
    """By which object it is: to hash a layout takes longer than to pickle it."""
    kept = _PACKED.get(id(layout))
    if kept is None:
        if len(_PACKED) >= _KEPT:
            _PACKED.clear()
        # Where it is kept, no other object can have its id.
        kept = _PACKED[id(layout)] = layout, _pickled(layout)
    return kept[1]


@lru_cache(_KEPT)
def _is_plain(layout: bytes) -> bool:
    return all(map(is_plain, _layout(layout).schema.types))


@lru_cache(_KEPT)
def _layout(packed: bytes) -> Layout:
    layout: Layout = pickle.loads(packed)  # noqa: S301  from a process of the same user
    return layout

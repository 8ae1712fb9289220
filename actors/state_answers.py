"""What a subtask answers to questions for its state: taken between two steps by the thread of its task.

Each attempt has one, which is given what comes by calls of its actor and by links. Questions for single keys that wait
together are answered by one look into the state. Where an operator has found the keys by itself, the thread of the task
makes the answer as well, which takes less than to wake another one; all else is made a table by another thread. Each
question is answered once, also where the subtask ends before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.actors.links import Reply
from penstock.actors.state_frames import packed_answer, rows_frame, rows_of, unpacked_question
from penstock.engine.errors import PenstockError, StateError, StateNotReadyError, located
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.request import StateRequest

if TYPE_CHECKING:
    from penstock.savepoints.layout import Layout
    from penstock.savepoints.live_rows import LiveRows, Question, StateAnswer

FEW_KEYS: Final = 1000
"""The thread of the task makes answers for so many keys at the most, and links carry questions for them."""
_MOST_LOOKUPS: Final = 1000
_MOST_SCANS: Final = 4
"""How many questions for some keys, and for all, wait at once."""
_TOGETHER: Final = 64
"""How many lookups are answered by one look: each gets the rows of all, of which it takes its own."""
_SHARED_BYTES: Final = 64 * 1024
"""Larger answers are sent by another thread than the task's, and to each its own rows alone."""


@dataclass(frozen=True)
class SharedAnswer:
    """One answer to several questions.

    Args:
        answer: it.
    """

    answer: StateAnswer

    @cached_property
    def packed(self) -> bytes:
        """As links send it; see `packed_answer`."""
        return packed_answer(self.answer)

    def rows(self, begin: int, end: int) -> StateAnswer:
        """Some rows of it; an error, or nothing, as it is."""
        return rows_of(self.answer, begin, end)


Answered: TypeAlias = Callable[[SharedAnswer, int, int], object]
"""Takes the answer to a question, and from which row to which it is its own; once, in any thread."""


def listening_id(actor_id: str) -> str:
    """Under what an actor takes questions for its state by links; see `LinkServer`."""
    return f"{actor_id}-state"


def prepare_for_questions() -> None:
    """Load what reads them, which few subtasks need: not in the thread of the task, which reads those of links."""
    import penstock.savepoints.live_rows  # noqa: F401


class Ask(Protocol):
    """Has an attempt of a subtask answer a question."""

    def __call__(self, attempt: int, uid: str, state: str, question: Question, answered: Answered) -> None:
        """Ask it."""
        ...


def answer_frame(frame: bytes, reply: Reply, ask: Ask) -> None:
    """Have a question answered that came through a link; the answer goes back as `unpacked_answer` reads it."""
    try:
        ask(*unpacked_question(frame), lambda shared, begin, end: reply(rows_frame(begin, end, shared.packed)))
    except Exception:
        # Such as a value of a class in the program's main module, which Ray brings along.
        reply(b"")


def _is_large(answer: StateAnswer) -> bool:
    # Quicker than `nbytes`, and as much: what is looked up are copies.
    held = 0 if answer is None or isinstance(answer, PenstockError) else answer.data.get_total_buffer_size()
    return held > _SHARED_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """One question."""

    uid: str
    state: str
    question: Question
    answered: Answered

    @property
    def is_scan(self) -> bool:
        return self.question.keys is None

    def key_type(self) -> pa.DataType | None:
        """That of the only key, if all its rows are wanted and Arrow can look it up."""
        keys, wanted = self.question.keys, self.question.wanted
        if keys is None or not keys.num_rows == keys.num_columns == 1 or wanted.where or wanted.limit is not None:
            return None
        kind = keys.schema.types[0]
        return kind if pa.types.is_integer(kind) or pa.types.is_string(kind) else None

    def give(self, answer: StateAnswer) -> None:
        rows = 0 if answer is None or isinstance(answer, PenstockError) else answer.data.num_rows
        self.answered(SharedAnswer(answer), 0, rows)


class StateAnswers:
    """The questions to one attempt of a subtask.

    `ask` is called on the event loop, or by the thread of the task between two steps; `end` on the event loop.

    Args:
        task, subtask: whose, for messages.
        read: takes the state of the operator of a uid, by reference; called between two steps.
        command: has the thread of the task call something between two steps.
        loop: the actor's.
    """

    def __init__(
        self,
        task: str,
        subtask: int,
        read: Callable[[str, StateRequest], Mapping[str, TableCapture]],
        command: Callable[[Callable[[], None]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._task = task
        self._subtask = subtask
        self._read = read
        self._command = command
        self._loop = loop
        self._ended = False
        self._layouts: dict[tuple[str, str], Layout] = {}
        self._waiting: deque[_Asked] = deque()
        self._is_called = False
        """Whether the thread is to come for what waits: set behind a question, and cleared before it looks for any."""
        self._under_way: dict[bool, set[_Asked]] = {False: set(), True: set()}

    def ask(self, uid: str, state: str, question: Question, answered: Answered) -> None:
        """Answer a question for a state.

        The answer is `StateNotReadyError` where the subtask has ended, or as many as may be wait already, and
        `StateError` where there is no such operator or state, or a filter does not fit.
        """
        asked = _Asked(uid, state, question, answered)
        under_way, most = self._under_way[asked.is_scan], _MOST_SCANS if asked.is_scan else _MOST_LOOKUPS
        if self._ended:
            self._refuse(asked, "has ended")
        elif len(under_way) >= most:
            self._refuse(asked, f"has {most} requests of this kind to answer")
        else:
            under_way.add(asked)
            self._waiting.append(asked)
            if not self._is_called:
                # Else the thread has yet to come for others, and takes all.
                self._is_called = True
                self._command(self._answer_waiting)

    def end(self) -> None:
        """The thread of the task has ended: what it has not answered never will be."""
        self._ended = True
        while self._waiting:
            self._refuse(self._waiting.popleft(), "has ended")

    def _refuse(self, asked: _Asked, why: str) -> None:
        asked.give(StateNotReadyError(f"subtask {self._subtask} of {self._task!r} {why}; try again"))

    def _answer_waiting(self) -> None:
        """By the thread of the task, between two steps; it may find that all has been answered."""
        self._is_called = False
        together: dict[Any, list[_Asked]] = {}
        while self._waiting:
            asked = self._waiting.popleft()
            kind = asked.key_type()
            if kind is None:
                self._answer(asked)
            else:
                together.setdefault((asked.uid, asked.state, kind), []).append(asked)
        for lookups in together.values():
            for begin in range(0, len(lookups), _TOGETHER):
                self._look_up(lookups[begin : begin + _TOGETHER])

    def _look_up(self, lookups: Sequence[_Asked]) -> None:
        """Answer lookups of keys of one type in one state: by one look, or each alone where that gives no rows."""
        try:
            found = self._found(lookups) if len(lookups) > 1 else None
        except Exception:
            # An error of one must be neither that of all nor the end of the subtask.
            found = None
        if found is None:
            for asked in lookups:
                self._answer(asked)
            return
        rows, begins, ends = found
        self._done(lookups)
        whose = list(zip(lookups, begins, ends, strict=True))
        if _is_large(rows):
            self._elsewhere(partial(self._give_own, rows, whose))
            return
        shared = SharedAnswer(rows)
        for asked, begin, end in whose:
            asked.answered(shared, begin, end)

    def _found(self, lookups: Sequence[_Asked]) -> tuple[LiveRows, list[int], list[int]] | None:
        """The rows of all, and which are whose; None: each is to be answered alone."""
        keys = pa.concat_batches([asked.question.keys for asked in lookups])
        distinct = _distinct(keys.column(0))
        at_once, make = self._taken(lookups[0], pa.RecordBatch.from_arrays([distinct], names=keys.schema.names))
        answer = self._made(lookups[0], make) if at_once else None
        return None if answer is None or isinstance(answer, PenstockError) else _by_key(answer, keys, distinct)

    def _give_own(self, rows: LiveRows, whose: Iterable[tuple[_Asked, int, int]]) -> None:
        for asked, begin, end in whose:
            asked.give(self._made(asked, partial(_own_rows, rows, begin, end)))

    def _answer(self, asked: _Asked) -> None:
        at_once, make = self._taken(asked, asked.question.keys)
        if not at_once:
            self._elsewhere(partial(self._give, asked, make))
            return
        answer = self._made(asked, make)
        give = partial(self._give, asked, lambda: answer)
        if _is_large(answer):
            self._elsewhere(give)
        else:
            give()

    def _elsewhere(self, act: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._loop.run_in_executor, None, act)

    def _give(self, asked: _Asked, make: Callable[[], StateAnswer]) -> None:
        answer = self._made(asked, make)
        self._done([asked])
        asked.give(answer)

    def _done(self, answered: Iterable[_Asked]) -> None:
        for asked in answered:
            self._under_way[asked.is_scan].discard(asked)

    def _taken(self, asked: _Asked, keys: pa.RecordBatch | None) -> tuple[bool, Callable[[], StateAnswer]]:
        """What makes the answer in any thread, and whether it takes little time."""
        from penstock.savepoints.live_rows import rendered_rows, stored_name

        error: PenstockError | None = None
        name: str | None = None
        # An error of a question must not end the subtask.
        try:
            captured = self._read(asked.uid, StateRequest(asked.state, keys))
            name = stored_name(asked.state, list(captured))
        except Exception as raised:
            error = located(raised, self._task, self._subtask)
        if name is None:
            return True, lambda: error
        table = captured[name]
        few = table.exact and keys is not None and keys.num_rows <= FEW_KEYS
        place = asked.uid, name

        def rendered() -> LiveRows:
            rows = rendered_rows(place[1], table, keys, asked.question.wanted, self._layouts.get(place))
            self._layouts[place] = rows.layout
            return rows

        return few, rendered

    def _made(self, asked: _Asked, make: Callable[[], StateAnswer]) -> StateAnswer:
        try:
            return make()
        except PenstockError as error:
            return error
        except Exception as error:
            return StateError(f"operator {asked.uid!r} cannot give its state: {type(error).__name__}: {error}")


def _own_rows(found: LiveRows, begin: int, end: int) -> LiveRows:
    """Copies of some rows: a slice would carry the whole table along."""
    data = found.data.take(pa.array(np.arange(begin, end)))
    return type(found)(found.layout, found.redistribution, data)


def _distinct(keys: pa.Array) -> pa.Array:
    # Mostly all are, and few: to see it takes a tenth of Arrow's time.
    return keys if len(set(keys.to_pylist())) == len(keys) else keys.unique()


def _by_key(found: LiveRows, keys: pa.RecordBatch, distinct: pa.Array) -> tuple[LiveRows, list[int], list[int]]:
    """The rows in the order of their keys, and from which to which row they are those of each of `keys`."""
    (name,) = keys.schema.names
    data = found.data
    if len(distinct) == len(keys) and data.column(name).equals(pa.chunked_array([distinct])):
        # The usual case: different keys, each of which has one row.
        places = range(len(data) + 1)
        return found, list(places[:-1]), list(places[1:])
    of_rows = pc.index_in(data.column(name), value_set=distinct).to_numpy()
    if (of_rows[1:] < of_rows[:-1]).any():
        order = np.argsort(of_rows, kind="stable")
        data, of_rows = data.take(pa.array(order)), of_rows[order]
    numbers = pc.index_in(keys.column(0), value_set=distinct).to_numpy()
    begins, ends = np.searchsorted(of_rows, numbers), np.searchsorted(of_rows, numbers, "right")
    return type(found)(found.layout, found.redistribution, data), begins.tolist(), ends.tolist()

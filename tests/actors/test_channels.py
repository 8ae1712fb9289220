"""Both ends of a channel, without actors: order, duplicates, gaps, credit, and how a message is sent."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError, ActorUnavailableError

from penstock.actors import channels
from penstock.actors.channels import Answered, ReceivingEnd, SendingEnd, packed, unpacked
from penstock.engine.elements import Barrier, Batch, Partials, Watermark
from penstock.engine.errors import PenstockError, WorkerLostError
from penstock.engine.exchange.outputs import Message


class Sent:
    """A sending end whose calls the test answers."""

    def __init__(self, credit: int = 2) -> None:
        self.calls: list[tuple[int, Message, Answered]] = []
        self.failures: list[PenstockError] = []
        self.woken = 0
        self.end = SendingEnd(self._push, credit, self._wake, self.failures.append)

    def _push(self, sequence: int, message: Message, answered: Answered) -> None:
        self.calls.append((sequence, message, answered))

    def _wake(self) -> None:
        self.woken += 1


def test_credit_comes_back_when_the_receiver_has_taken_the_message() -> None:
    sent = Sent(credit=2)
    sent.end.send((Watermark(1),))
    sent.end.send((Watermark(2),))
    assert (sent.end.credits, sent.end.under_way) == (0, 2)
    assert [sequence for sequence, _, _ in sent.calls] == [0, 1]
    sent.calls[0][2](None, None)
    assert (sent.end.credits, sent.end.under_way, sent.woken) == (1, 1, 1)


def test_a_lost_message_fails_the_subtask_unless_the_receiver_is_dead() -> None:
    sent = Sent()
    sent.end.send((Watermark(1),))
    sent.calls[0][2](None, ActorDiedError())
    assert sent.failures == []
    sent.end.send((Watermark(2),))
    sent.calls[1][2](None, ActorUnavailableError("away", None))
    assert [type(failure) for failure in sent.failures] == [WorkerLostError]


def test_a_slice_is_sent_without_its_parent() -> None:
    sent = Sent()
    rows = pa.record_batch({"n": list(range(100_000))})
    whole = Batch(rows, pa.array(range(100_000)), partials=Partials("n"))
    sent.end.send((whole.slice(50_000, 100),))
    (message,) = [message for _, message, _ in sent.calls]
    assert len(pickle.dumps(message)) < 10_000
    assert message[0] == whole.slice(50_000, 100)


def test_a_message_travels_within_its_call_and_comes_out_as_it_was() -> None:
    rows = pa.record_batch({"n": [1, None], "name": ["a", "b"], "list": [[1], []]})
    batch = Batch(rows, pa.array([5, 6]), pa.array([0, 1], pa.int8()))
    pushed = (3, 1, 7, (batch, Watermark(5), Barrier(2)))
    (argument,) = packed(pushed)
    assert isinstance(argument, bytes)
    assert unpacked([argument]) == pushed


def test_a_longer_message_is_in_pieces_that_ray_leaves_within_the_call() -> None:
    pushed = (3, 1, 7, (Batch(pa.record_batch({"n": list(range(50_000))})), Watermark(5)))
    arguments = packed(pushed)
    assert max(len(piece) for piece in arguments) < 100 * 1024
    assert len(arguments) == 5
    assert unpacked(arguments) == pushed


def test_a_large_message_is_left_to_the_object_store() -> None:
    pushed = (3, 1, 7, (Batch(pa.record_batch({"n": list(range(100_000))})),))
    arguments = packed(pushed)
    assert arguments == [pushed]
    assert unpacked(arguments) is pushed


class Cents(pa.ExtensionType):
    """Stands for a type of the user's program."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "penstock.test.cents")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def _listed(cents: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 2]), cents)


def _encoded(cents: pa.Array) -> pa.Array:
    """So deep in a type that is so long that a schema's own text leaves it out."""
    fields = [pa.array([1, 2])] * 20
    rows = pa.StructArray.from_arrays([*fields, cents], [*(f"field {number}" for number in range(20)), "price"])
    return pa.DictionaryArray.from_arrays(pa.array([1, 0]), rows)


@pytest.mark.parametrize("column_of", [lambda cents: cents, _listed, _encoded])
def test_types_of_the_users_program_are_left_to_rays_pickle(column_of: Callable[[pa.Array], pa.Array]) -> None:
    cents: pa.Array = pa.ExtensionArray.from_storage(Cents(), pa.array([1, 2]))
    pushed = (3, 1, 7, (Batch(pa.record_batch([column_of(cents)], ["price"])),))
    assert packed(pushed) == [pushed]


def test_a_field_that_is_called_as_such_a_type_is_none() -> None:
    column = pa.StructArray.from_arrays([pa.array([1, 2])], ["extension<x>"])
    pushed = (3, 1, 7, (Batch(pa.record_batch([column], ["price"])),))
    assert unpacked(packed(pushed)) == pushed
    assert packed(pushed) != [pushed]


def test_columns_that_share_their_memory_do_not_make_a_call_too_long() -> None:
    column = pa.array(list(range(10_000)))
    pushed = (3, 1, 7, (Batch(pa.record_batch([column] * 40, [str(number) for number in range(40)])),))
    assert packed(pushed) == [pushed]


def _nothing(*_: object) -> None:
    pass


def received(sequences: list[int]) -> tuple[list[int], list[int]]:
    """Numbers delivered, and numbers released undelivered, when messages arrive in this order."""
    delivered: list[int] = []
    released: list[int] = []

    async def run() -> None:
        end = ReceivingEnd(lambda message, release: delivered.append(message[0].timestamp), _nothing, _nothing)
        for sequence in sequences:
            end.receive(sequence, (Watermark(sequence),), lambda sequence=sequence: released.append(sequence))

    asyncio.run(run())
    return delivered, released


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=5))
def test_messages_are_delivered_in_order_and_duplicates_are_dropped(order: list[int], again: list[int]) -> None:
    delivered, released = received([*order, *again])
    assert delivered == list(range(8))
    assert released == again


def test_a_message_that_stays_missing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "GAP_SECONDS", 0.0)

    async def run() -> PenstockError:
        given_up: asyncio.Future[PenstockError] = asyncio.get_running_loop().create_future()
        end = ReceivingEnd(_nothing, given_up.set_result, _nothing)
        end.receive(1, (Watermark(1),), _nothing)
        return await asyncio.wait_for(given_up, 10)

    assert "message 0" in str(asyncio.run(run()))


def test_a_message_that_nobody_has_read_yet_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "GAP_SECONDS", 0.0)

    async def run() -> tuple[list[int], list[PenstockError]]:
        delivered: list[int] = []
        given_up: list[PenstockError] = []
        done = asyncio.get_running_loop().create_future()

        def deliver(message: Message, release: Callable[[], None]) -> None:
            delivered.append(message[0].timestamp)  # type: ignore[union-attr]
            if len(delivered) == 2:
                done.set_result(None)

        # The first has come by a link that a thread at work does not read.
        end = ReceivingEnd(deliver, given_up.append, lambda: end.receive(0, (Watermark(0),), _nothing))
        end.receive(1, (Watermark(1),), _nothing)
        await asyncio.wait_for(done, 10)
        await asyncio.sleep(0)
        return delivered, given_up

    assert asyncio.run(run()) == ([0, 1], [])

"""What is in the table when commits are repeated, break off anywhere, and come too late."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Literal

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.postgres import PostgresSink
from penstock.connectors.postgres.commit import Target, apply
from penstock.connectors.postgres.connection import connect
from penstock.engine.connectors import Committable
from penstock.engine.errors import RecordError
from tests.connectors.postgres.tables import Database, breaking_wire, context, rows
from tests.draws import drawn

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
Change = tuple[int, int, int]
"""Row kind, key, value."""

changes = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-(2**31), 2**31 - 1))
epochs = st.lists(st.lists(changes, max_size=8), min_size=1, max_size=4)


def _prepared(sink: PostgresSink, epochs: list[list[Change]], subtask: int = 0) -> list[Committable]:
    """What a writer prepares for one checkpoint after the other, from 1."""
    writer = sink.open(context(subtask))
    prepared: list[Committable] = []
    for checkpoint, epoch in enumerate(epochs, 1):
        for part in (epoch[: len(epoch) // 2], epoch[len(epoch) // 2 :]):
            kinds, keys, values = ([change[place] for change in part] for place in range(3))
            if part:
                writer.write(rows({"k": keys, "v": values}, kinds if sink.mode == "upsert" else None))
        prepared += writer.prepare(checkpoint)
    writer.close()
    return prepared


def _merged(epochs: list[list[Change]]) -> dict[int, int]:
    """One change after the other."""
    held: dict[int, int] = {}
    for kind, key, value in (change for epoch in epochs for change in epoch):
        if kind in (INSERT, UPDATE_AFTER):
            held[key] = value
        elif kind == DELETE:
            held.pop(key, None)
    return held


def _sink(database: Database, mode: Literal["upsert", "append"], **arguments: Any) -> PostgresSink:
    key = "primary key" if mode == "upsert" else ""
    table = database.create(f"k bigint {key}, v int")
    sink = PostgresSink(database.dsn, table, mode=mode, markers=database.new_name("m"), **arguments)
    sink.prepare()
    return sink


def _check(database: Database, sink: PostgresSink, epochs: list[list[Change]]) -> None:
    found = database.ask(f"SELECT k, v FROM {sink.table}")
    if sink.mode == "upsert":
        assert dict(found) == _merged(epochs)
        assert len(found) == len(dict(found))
    else:
        assert sorted(found) == sorted((key, value) for epoch in epochs for _, key, value in epoch)


@settings(max_examples=drawn(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    epochs=epochs,
    mode=st.sampled_from(["upsert", "append"]),
    cuts=st.lists(st.integers(0, 6000), max_size=6),
    together=st.booleans(),
    late=st.lists(st.integers(0, 3), max_size=3),
)
def test_rows_are_there_once_whatever_breaks(
    database: Database,
    epochs: list[list[Change]],
    mode: Literal["upsert", "append"],
    cuts: list[int],
    together: bool,
    late: list[int],
) -> None:
    sink = _sink(database, mode)
    prepared = _prepared(sink, epochs)
    with breaking_wire(database.postgres.port, cuts) as port:
        wired = PostgresSink(database.dsn_at(port), sink.table, mode=mode, markers=sink.markers)
        for place in range(len(prepared)):
            due = prepared[: place + 1] if together else prepared[place : place + 1]
            _insist(wired, due)
            _check(database, sink, epochs[: prepared[place].checkpoint])
        # Whoever was stopped and goes on too late, in any order.
        for place in late:
            if prepared:
                _insist(wired, prepared[place : place + 1] or prepared)
    _check(database, sink, epochs)


def _insist(sink: PostgresSink, committables: list[Committable]) -> None:
    """Commit until it succeeds, as attempt after attempt would; each tries more often than a wire breaks."""
    for _ in range(3):
        with contextlib.suppress(ConnectionError):
            return sink.commit(committables, context())
    raise AssertionError("the wire does not break as often")


def test_every_place_where_the_wire_can_break(database: Database) -> None:
    """In each step of a commit, before and behind its last byte; most of them leave nothing, the last all."""
    sink = _sink(database, "append")
    prepared = _prepared(sink, [[(INSERT, key, key)] for key in range(24)])
    outcomes = set()
    for place, committable in enumerate(prepared):
        with breaking_wire(database.postgres.port, [200 + 110 * place] * 4) as port:
            wired = PostgresSink(database.dsn_at(port), sink.table, mode="append", markers=sink.markers)
            try:
                wired.commit([committable], context())
                outcomes.add("told")
            except ConnectionError:
                count = database.ask(f"SELECT count(*) FROM {sink.table} WHERE k = {place}")[0][0]
                outcomes.add("done" if count else "nothing")
        sink.commit([committable], context(3, 4))
        _check(database, sink, [[(INSERT, key, key)] for key in range(place + 1)])
    assert "nothing" in outcomes


def test_an_answer_that_is_lost_behind_the_commit(database: Database) -> None:
    sink = _sink(database, "append")
    first, second = _prepared(sink, [[(INSERT, 1, 1)], [(INSERT, 2, 2)]])
    sent = 0
    # The longest prefix of what is sent that does not commit yet is one byte shorter than all of it.
    low, high = 0, 20_000
    while high - low > 1:
        middle = (low + high) // 2
        with breaking_wire(database.postgres.port, [middle] * 4) as port:
            wired = PostgresSink(database.dsn_at(port), sink.table, mode="append", markers=sink.markers)
            try:
                wired.commit([first], context())
            except ConnectionError:
                sent += 1
        done = bool(database.ask(f"SELECT 1 FROM {sink.table} WHERE k = 1"))
        low, high = (low, middle) if done else (middle, high)
        database.run(f"DELETE FROM {sink.table}")
        database.run(f"DELETE FROM {sink.markers}")
    assert sent
    with breaking_wire(database.postgres.port, [high]) as port:
        wired = PostgresSink(database.dsn_at(port), sink.table, mode="append", markers=sink.markers)
        wired.commit([first], context())
    assert database.ask(f"SELECT k FROM {sink.table}") == [(1,)]
    sink.commit([second], context())
    assert database.ask(f"SELECT k FROM {sink.table} ORDER BY k") == [(1,), (2,)]


def test_writers_have_markers_of_their_own(database: Database) -> None:
    sink = _sink(database, "append")
    zero = _prepared(sink, [[(INSERT, 0, 0)], [(INSERT, 1, 1)]])
    one = _prepared(sink, [[(INSERT, 2, 2)]], subtask=1)
    sink.commit(zero, context())
    sink.commit([*one, *zero], context())
    assert sorted(database.ask(f"SELECT k FROM {sink.table}")) == [(0,), (1,), (2,)]
    marked = sorted(database.ask(f"SELECT writer, checkpoint FROM {sink.markers}"))
    assert marked == [(zero[0].writer, 2), (one[0].writer, 1)]
    assert [writer.rpartition("/")[0] for writer, _ in marked] == ["run/sink/0", "run/sink/1"]


def test_one_that_is_stopped_before_its_marker_is_ended_by_the_server(database: Database) -> None:
    sink = _sink(database, "append", stuck_timeout="300ms")
    (committable,) = _prepared(sink, [[(INSERT, 1, 1)]])
    with connect(database.dsn, "zombie") as zombie:
        _stop_with_the_lock(zombie, Target(sink.table, (), sink.markers, 300), committable)
        assert zombie.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        # The lock is held by a process that does nothing more.
        sink.commit([committable], context())
        with pytest.raises(psycopg.Error):
            zombie.execute("COMMIT")
    assert database.ask(f"SELECT k FROM {sink.table}") == [(1,)]


class _StoppedError(Exception):
    pass


def _stop_with_the_lock(zombie: psycopg.Connection[Any], target: Target, committable: Committable) -> None:
    """Commit up to the lock of the marker, and go no further; the transaction stays open."""
    execute = zombie.execute

    def execute_and_stop(query: Any, parameters: Any = None) -> Any:
        answer = execute(query, parameters)
        if "FOR UPDATE" in str(query):
            raise _StoppedError
        return answer

    # An outer transaction, which a process that is stopped does not end either.
    execute("SELECT 1")
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_StoppedError):
        patch.setattr(zombie, "execute", execute_and_stop)
        patch.setattr(zombie, "transaction", contextlib.nullcontext)
        apply(zombie, target, [committable])


def test_two_that_commit_the_same_at_once(database: Database) -> None:
    sink = _sink(database, "append")
    prepared = _prepared(sink, [[(INSERT, key, key) for key in range(50)]])
    threads = [threading.Thread(target=sink.commit, args=(prepared, context())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database.ask(f"SELECT k FROM {sink.table}")) == 50


def test_rows_that_a_constraint_refuses_stay_in_the_checkpoint(database: Database) -> None:
    table = database.create("k bigint primary key, v int check (v > 0)")
    sink = PostgresSink(database.dsn, table, markers=database.new_name("m"))
    sink.prepare()
    prepared = _prepared(sink, [[(INSERT, 1, 5), (INSERT, 2, -5)]])
    with pytest.raises(RecordError, match=rf"'out', subtask 0.*table '{table}' .*checkpoint 1: .*check constraint"):
        sink.commit(prepared, context())
    assert database.ask(f"SELECT * FROM {table}") == []
    database.run(f"ALTER TABLE {table} DROP CONSTRAINT {table}_v_check")
    sink.commit(prepared, context())
    assert sorted(database.ask(f"SELECT k, v FROM {table}")) == [(1, 5), (2, -5)]

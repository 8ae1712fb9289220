"""State over Arrow Flight: what REST gives, in many rows, for operators alone, with errors that clients can tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyarrow import flight

from penstock.web import state_reads
from penstock.web.flight import LONGEST_TICKET, MOST_AT_ONCE, StateFlights
from penstock.web.observed import Observed
from penstock.web.security import Access, Role
from penstock.web.state_reads import StateReads
from tests.web.fakes import ORDERS, TOKENS, FakeCluster, orders_metrics

Fly = Callable[..., "Client"]
STATE = {"job": "orders", "uid": "totals", "state": "accumulators"}
VISITS = {"job": "orders-1", "uid": "totals", "state": "visits", "isolation": "checkpoint"}


class Client:
    """Asks a server as programs do."""

    def __init__(self, server: StateFlights, token: str) -> None:
        self.client = flight.connect(f"grpc://127.0.0.1:{server.port}")
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        self.options = flight.FlightCallOptions(headers=headers)

    def rows(self, wanted: dict[str, Any]) -> list[Any]:
        found = self.raw(json.dumps(wanted).encode())
        return sorted(found, key=repr)

    def raw(self, ticket: bytes) -> list[Any]:
        found: list[Any] = self.client.do_get(flight.Ticket(ticket), self.options).read_all().to_pylist()
        return found


@pytest.fixture
def fly(cluster: FakeCluster) -> Iterator[Fly]:
    """Gives clients of servers: on this machine, or with a token from elsewhere."""
    running: list[tuple[StateFlights, Client]] = []

    def flying(open_to: Role = Role.OPERATOR, token: str = "", places: int = MOST_AT_ONCE) -> Client:
        observed = Observed()
        for reading in cluster.read():
            observed.see(reading.info, orders_metrics(10), 10.0, 20_000)
        access = Access(TOKENS, open_to, ())
        server = StateFlights("grpc://127.0.0.1:0", access, observed, StateReads(cluster), places)
        running.append((server, Client(server, token)))
        return running[-1][1]

    yield flying
    for server, client in running:
        client.client.close()
        server.shutdown()


def test_rows_keys_and_filters_of_live_state(fly: Fly, cluster: FakeCluster) -> None:
    client = fly()
    ann, bob = {"user": "ann", "count(*)": 1}, {"user": "bob", "count(*)": 1}
    assert client.rows(STATE) == sorted([ann, bob], key=repr)
    assert client.rows({**STATE, "keys": ["ann", "nobody"]}) == [ann]
    assert client.rows({**STATE, "where": {"user": "bob"}}) == [bob]
    assert len(client.rows({**STATE, "limit": 1})) == 1
    assert cluster.asked[-1] == ("state", ORDERS.id, "totals", "accumulators")


def test_a_live_scan_of_too_many_rows_is_refused_and_not_cut(fly: Fly, monkeypatch: pytest.MonkeyPatch) -> None:
    client = fly()
    monkeypatch.setattr(state_reads, "MOST_LIVE_ROWS", 1)
    with pytest.raises(flight.FlightServerError, match=r"more than 1 such rows.*isolation checkpoint"):
        client.rows(STATE)
    assert len(client.rows({**STATE, "keys": ["ann"]})) == len(client.rows({**STATE, "limit": 1})) == 1


@pytest.mark.usefixtures("checkpointed")
def test_a_checkpoint_comes_from_its_files_and_is_listed(fly: Fly) -> None:
    client = fly()
    assert [row["value"] for row in client.rows(VISITS)] == [1, 2, 3]
    assert client.rows({**VISITS, "keys": [["bob"], "cat"], "where": {"value": [3, 4]}}) == [
        {"user": "cat", "value": 3}
    ]
    assert len(client.rows({**VISITS, "limit": 2})) == 2
    (found,) = client.client.list_flights(b"orders", client.options)
    assert ([part.decode() for part in found.descriptor.path], found.schema.names) == (
        ["orders-1", "totals", "visits"],
        ["user", "value"],
    )
    command = flight.FlightDescriptor.for_command(json.dumps(VISITS).encode())
    ticket = client.client.get_flight_info(command, client.options).endpoints[0].ticket
    assert len(client.raw(ticket.ticket)) == 3
    assert client.client.get_schema(command, client.options).schema == found.schema


def test_what_a_path_names_can_be_read(fly: Fly) -> None:
    client = fly()
    path = flight.FlightDescriptor.for_path("orders", "totals", "accumulators")
    info = client.client.get_flight_info(path, client.options)
    assert info.schema.names == ["user", "count(*)"]
    assert len(client.raw(info.endpoints[0].ticket.ticket)) == 2


@pytest.mark.parametrize(
    ("token", "error", "text"),
    [
        ("", flight.FlightUnauthenticatedError, "bring a token"),
        ("guessed", flight.FlightUnauthenticatedError, "the token is wrong"),
        (TOKENS.viewer, flight.FlightUnauthorizedError, "need the operator's token"),
    ],
)
def test_values_are_for_operators(fly: Fly, token: str, error: type[Exception], text: str) -> None:
    client = fly(Role.NOBODY, token)
    path = flight.FlightDescriptor.for_path("orders", "totals", "accumulators")
    calls: list[Callable[[], Any]] = [
        lambda: client.rows(STATE),
        lambda: client.client.get_flight_info(path, client.options),
        lambda: list(client.client.list_flights(b"orders", client.options)),
    ]
    for call in calls:
        with pytest.raises(error, match=text):
            call()
    # This call of the client has no classes of errors.
    with pytest.raises(OSError, match=text):
        client.client.get_schema(path, client.options)
    assert len(fly(Role.NOBODY, TOKENS.operator).rows(STATE)) == 2


@pytest.mark.parametrize(
    ("ticket", "text"),
    [
        (b"oops", "no JSON"),
        (b"[]", "and nothing else"),
        (json.dumps({**STATE, "of": 1}).encode(), "and nothing else"),
        (json.dumps({"job": "orders"}).encode(), "all three are needed"),
        (json.dumps({**STATE, "job": "nobody's"}).encode(), "there is no job"),
        (json.dumps({**STATE, "isolation": "dirty"}).encode(), "isolation is one of"),
        (json.dumps({**STATE, "limit": 0}).encode(), "limit is a whole number"),
        (json.dumps({**STATE, "keys": "ann"}).encode(), "keys is a list"),
        (json.dumps({**STATE, "keys": [7]}).encode(), "does not fit column 'user'"),
        (json.dumps({**STATE, "keys": [["a", "b"]]}).encode(), "has the keys"),
        (json.dumps({**STATE, "where": {"usr": 1}}).encode(), "no column 'usr'"),
        (b" " * (LONGEST_TICKET + 1), "longer than"),
    ],
)
def test_what_makes_no_sense_is_refused_without_a_trace_of_the_server(fly: Fly, ticket: bytes, text: str) -> None:
    with pytest.raises(flight.FlightServerError, match=text) as raised:
        fly().raw(ticket)
    assert "Traceback" not in str(raised.value)


def test_a_job_that_recovers_and_too_many_who_ask_are_told_to_come_again(fly: Fly, cluster: FakeCluster) -> None:
    with pytest.raises(flight.FlightUnavailableError, match="ask for state already"):
        fly(places=0).rows(STATE)
    client = fly()
    cluster.away = True
    with pytest.raises(flight.FlightUnavailableError, match="away"):
        client.rows(STATE)


def test_nothing_can_be_put_or_done(fly: Fly) -> None:
    client = fly()
    with pytest.raises(NotImplementedError):
        list(client.client.do_action("drop", client.options))

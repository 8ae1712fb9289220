"""State over Arrow Flight: the console's server gives it beside REST, to any client of Flight, as fast as it is read.

`serve.py` starts it where `--flight` says. It knows the same tokens, reads for operators alone, changes nothing, and
has no other calls than those that read; what is asked for is a JSON document (see `read_of`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.engine.errors import ConfigurationError, JobError, PenstockError, StateNotReadyError
from penstock.web.observed import JobView, Observed
from penstock.web.security import Access, Role
from penstock.web.state_reads import ISOLATIONS, StateRead, StateReads

_LOG = logging.getLogger(__name__)
MOST_AT_ONCE: Final = 16
LONGEST_TICKET: Final = 4 * 1024 * 1024
_NAMES: Final = ("job", "uid", "state", "isolation", "keys", "where", "limit")
_SCHEME: Final = "bearer "


class _Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets operators in."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(self, info: Any, headers: Mapping[str, Any]) -> None:
        bearer = str(next(iter(headers.get("authorization", [])), ""))
        token = bearer[len(_SCHEME) :] if bearer.lower().startswith(_SCHEME) else ""
        role = self._access.tokens.role_of(token)
        if token and role is Role.NOBODY:
            raise flight.FlightUnauthenticatedError("the token is wrong")
        role = max(role, self._access.open_to)
        if role is Role.NOBODY:
            raise flight.FlightUnauthenticatedError("bring a token: the header authorization, with Bearer TOKEN")
        if role is not Role.OPERATOR:
            raise flight.FlightUnauthorizedError("values of state are data; they need the operator's token")


class StateFlights(flight.FlightServerBase):  # type: ignore[misc]
    """The server; it listens from the moment that it is made until `shutdown`.

    Args:
        location: where, as `grpc://HOST:PORT`; port 0: a free one, which `port` says.
        access: who is let in.
        observed: the jobs that are known.
        reads: gives their state.
        places: how many are answered at once.
    """

    def __init__(
        self, location: str, access: Access, observed: Observed, reads: StateReads, places: int = MOST_AT_ONCE
    ) -> None:
        super().__init__(location, middleware={"door": _Door(access)})
        self._observed = observed
        self._reads = reads
        self._free = threading.Semaphore(places)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The rows that a ticket asks for."""
        with self._place():
            view, wanted = self._read_of(ticket.ticket)
            schema, batches = self._reads.rows(view, wanted)
            if wanted.isolation == "live":
                # The rows are in memory already, and are sent without Python.
                return flight.RecordBatchStream(pa.Table.from_batches(batches, schema))
        return flight.GeneratorStream(schema, self._sent(batches))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """The columns of what a command asks for, and the ticket that gives it here."""
        return self._info(descriptor, self._columns(descriptor))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of what a command asks for."""
        return flight.SchemaResult(self._columns(descriptor))

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """All states in the newest checkpoint of the job that the criteria name, by name or id."""
        with self._place():
            view = self._job(_text(criteria))
            found = self._reads.whole(lambda: self._listed(view))
        return iter([self._info(descriptor, schema) for descriptor, schema in found])

    def _listed(self, view: JobView) -> list[tuple[Any, pa.Schema]]:
        return [
            (flight.FlightDescriptor.for_path(view.info.id, operator.uid, state.name), state.schema)
            for operator in self._reads.cut(view).operators
            for state in operator.all_states
        ]

    def _columns(self, descriptor: Any) -> pa.Schema:
        with self._place():
            return self._reads.columns(*self._read_of(_ticket_of(descriptor)))

    def _info(self, descriptor: Any, schema: pa.Schema) -> Any:
        endpoint = flight.FlightEndpoint(_ticket_of(descriptor), [])
        return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def _read_of(self, ticket: bytes) -> tuple[JobView, StateRead]:
        job, wanted = read_of(ticket)
        return self._job(job), wanted

    def _job(self, name: str) -> JobView:
        view = self._observed.job(name)
        if view is None:
            raise JobError(f"there is no job {name[:200]!r}; name it by its id, or by its name while it runs")
        return view

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """One of those who are answered at once. Errors leave as those of Flight, and without a trace of the server."""
        if not self._free.acquire(blocking=False):
            raise flight.FlightUnavailableError("as many ask for state already as are answered at once; try again")
        try:
            yield
        except StateNotReadyError as error:
            raise flight.FlightUnavailableError(str(error)) from None
        except PenstockError as error:
            raise flight.FlightServerError(str(error)) from None
        except Exception:
            _LOG.exception("a request for state over Flight failed")
            raise flight.FlightInternalError("the server failed at this request; its log says why") from None
        finally:
            self._free.release()

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._place():
            yield from batches


def read_of(ticket: bytes) -> tuple[str, StateRead]:
    """What a ticket asks for: the job, by name or id, and the state.

    Args:
        ticket: a JSON object with the texts `job`, `uid` and `state`, and any of `isolation` (`live`, `checkpoint`),
            `keys` (a list of keys: values, or lists of values where there are several key columns), `where` (by
            column, a value or a list of them) and `limit`.

    Raises:
        ConfigurationError: it is none of that; says what is wrong.
    """
    if len(ticket) > LONGEST_TICKET:
        raise ConfigurationError(f"the ticket is longer than {LONGEST_TICKET:,} bytes")
    try:
        document = json.loads(ticket)
    except (ValueError, RecursionError):
        raise ConfigurationError(f"the ticket is no JSON; it is an object with {', '.join(_NAMES)}") from None
    if not isinstance(document, dict) or (document.keys() - set(_NAMES)):
        raise ConfigurationError(f"the ticket is an object with {', '.join(_NAMES)}, and nothing else")
    texts = [document.get(name) for name in ("job", "uid", "state")]
    isolation, where, limit = document.get("isolation", "live"), document.get("where", {}), document.get("limit")
    keys = document.get("keys")
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigurationError("job, uid and state are texts, and all three are needed")
    if isolation not in ISOLATIONS:
        raise ConfigurationError(f"isolation is one of {', '.join(ISOLATIONS)}")
    if not isinstance(where, dict) or not (keys is None or isinstance(keys, list)):
        raise ConfigurationError("where is an object of columns, and keys is a list")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigurationError("limit is a whole number from 1 on")
    job, uid, name = map(str, texts)
    return job, StateRead(
        uid,
        name,
        isolation,
        None if keys is None else tuple(tuple(key) if isinstance(key, list) else (key,) for key in keys),
        {column: given if isinstance(given, list) else [given] for column, given in where.items()},
        limit,
    )


def _ticket_of(descriptor: Any) -> bytes:
    """Of a command, it; of a path (job, uid, state), a ticket for all of the state."""
    if descriptor.descriptor_type is flight.DescriptorType.CMD:
        return bytes(descriptor.command)
    path = [_text(part) for part in descriptor.path]
    if len(path) != 3:
        raise ConfigurationError("a path is the job, the uid of the operator and the name of the state")
    return json.dumps(dict(zip(("job", "uid", "state"), path, strict=True))).encode()


def _text(given: bytes) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"names are UTF-8: {error}") from None

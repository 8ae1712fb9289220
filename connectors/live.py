"""What sources share whose server sends records when it likes, and only once: sockets, streams over HTTP, WebSockets.

Their readers take records from a thread that waits for the server, so that the task never does; the thread is at most
some thousand records ahead. What the server has sent before a failure cannot be asked for again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa

from penstock.connectors.records.format import RecordFormat
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, Wait
from penstock.engine.errors import ConfigurationError, RecordError

CONNECT_SECONDS: Final = 8.0
"""How long a server may take to answer the first time."""
_AHEAD: Final = 8_192
_LOOK_SECONDS: Final = 0.01
_PUT_SECONDS: Final = 0.1

Restore: TypeAlias = Literal["refuse", "skip"]


class Records(Protocol):
    """A connection that gives records. Iterated by one thread, closed by another, which ends the iteration."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveSplit:
    """The one connection of a live source."""

    split_id: str = "connection"


class LiveSource(Source):
    """A source with one connection, which cannot be rewound.

    Args:
        format: how a record becomes a row.
        restore: "refuse": the source cannot be part of a job with checkpoints; "skip": it can, and after a failure it
            connects again and continues with what the server sends then (at most once).
        where: names the source in messages.
    """

    def __init__(self, format: RecordFormat, restore: Restore, where: str) -> None:  # noqa: A002
        if not isinstance(format, RecordFormat):
            raise ConfigurationError(f"{where}: format must be a RecordFormat, not {format!r}")
        if restore not in ("refuse", "skip"):
            raise ConfigurationError(f"{where}: restore must be 'refuse' or 'skip', not {restore!r}")
        self._format, self._restore, self._where = format, restore, where

    @abstractmethod
    def connect(self, context: ConnectorContext) -> Records:
        """A new connection.

        Raises:
            ConnectionError: the server cannot be reached within 8 s.
        """

    @property
    def schema(self) -> pa.Schema:
        return self._format.schema

    @property
    def bounded(self) -> bool:
        return False

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[LiveSplit]:
        return [LiveSplit()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        where = f"operator {context.operator!r}, subtask {context.subtask}: {self._where}"
        try:
            records = self.connect(context)
        except OSError as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise ConnectionError(
                f"{where}: no connection: {text}; check the address, that the server runs and can be reached from here"
            ) from None
        return _LiveReader(records, self._format, where, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        """A new connection, whatever the position: what was sent meanwhile is lost."""
        return self.open(split, context)

    @property
    def rewindable(self) -> bool:
        """Whether the user has agreed to lose what is sent between a failure and the next connection."""
        return self._restore == "skip"

    @property
    def rewind_remedy(self) -> str:
        return 'give it restore="skip", by which what is sent between a failure and the next connection is lost'


@dataclass(frozen=True, slots=True)
class _End:
    """Behind the last record: what ended the connection, None for the server's own end."""

    error: BaseException | None


class _LiveReader(SourceReader):
    """Gives what has come since the last call."""

    def __init__(self, records: Records, record_format: RecordFormat, where: str, context: ConnectorContext) -> None:
        self._records, self._format, self._where, self._clock = records, record_format, where, context.clock
        self._count = 0
        self._end: _End | None = None
        self._closed = threading.Event()
        self._queue: queue.Queue[bytes | _End] = queue.Queue(_AHEAD)
        self._thread = threading.Thread(target=self._receive, name=where, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        try:
            for record in self._records:
                self._put(record)
            self._put(_End(None))
        except BaseException as error:
            self._put(_End(error))

    def _put(self, item: bytes | _End) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=_PUT_SECONDS)
                return

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        values = self._take(max_rows)
        if values:
            decoded = self._format.decode(pa.array(values, pa.large_binary()))
            if decoded.bad:
                first = decoded.bad[0]
                raise RecordError(
                    f"{self._where}: record {self._count + first.index} of the connection: {first.reason}; correct the "
                    "server, or read the records with RawFormat and parse them in the program"
                )
            self._count += len(values)
            return decoded.rows
        if self._end is None:
            return Wait(self._clock.monotonic() + _LOOK_SECONDS)
        if self._end.error is not None:
            text = " ".join(str(self._end.error).split()) or type(self._end.error).__name__
            raise ConnectionError(f"{self._where}: the connection broke behind record {self._count}: {text}") from None
        return None

    def _take(self, most: int) -> list[Any]:
        values: list[Any] = []
        while self._end is None and len(values) < most:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(item, _End):
                self._end = item
            else:
                values.append(item)
        return values

    def position(self) -> Position:
        return {}

    def close(self) -> None:
        self._closed.set()
        self._records.close()
        self._thread.join()

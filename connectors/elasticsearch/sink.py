"""The Elasticsearch sink: each row is a document under its id, written as it comes by the bulk API.

Programs build an `ElasticsearchSink`; the engine checks it once and opens a writer in each subtask, which sends the
rows of a batch and waits for the answers, so that all rows before a checkpoint are in the index when it is taken.
OpenSearch has the same API. Source: Elasticsearch's reference, "Bulk API".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.connectors.http.client import Answer, ask, check_headers, check_url, shown_url
from penstock.connectors.records.json_format import JsonFormat
from penstock.engine.changelog import ANY_MODE, ChangelogMode
from penstock.engine.clock import Clock
from penstock.engine.connectors import ConnectorContext, Dataset, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError, nearest

_WHERE: Final = "elasticsearch sink"
_SECONDS: Final = 8.0
_BULK_SECONDS: Final = 60.0
_MOST_BYTES: Final = 5 * 1024**2
_ATTEMPTS: Final = 6
_OVERLOADED: Final = (429, 502, 503, 504)
_FORBIDDEN: Final = (401, 403)
_NOT_FOUND: Final = 404
_UPDATE_BEFORE: Final = 1
_DELETE: Final = 3


@dataclass(frozen=True, slots=True)
class ElasticsearchSink(Sink):
    """Keeps one document for each id: the last row with the id.

    Guarantee: at least once, read uncommitted: documents are written as rows come, also those of a checkpoint that is
    not complete yet. After a failure the rows since the last checkpoint are written again under the same ids, in their
    order; so a document may be an older one for a moment, and in the end is the one that it would have been, if the
    program makes the same rows again. A writer that was stopped and resumes after its replacement runs may write older
    documents over newer ones. Searches see documents when the index is refreshed.

    A document has all columns of the row, as `JsonFormat` writes them; its id is the text of the id column (of several,
    with colons between them; a colon or backslash within one has a backslash before it). Changelog row kinds, as Flink
    numbers them: 3 delete deletes the document, 1 update-before is left out, others are written. Rows of one id must
    come from one subtask to have an order. A request that the server is too busy for is tried six times.

    Args:
        url: `http://host:port` or `https://user:password@host:port`; user and password are never shown.
        index: its name; the server makes it if it is set up to.
        id: the column, or columns, that make the document's id.
        headers: of each request, such as `{"Authorization": "ApiKey ..."}`; never shown.

    Raises:
        ConfigurationError: no such URL, a header that cannot be sent, no index or no id.

    Example:
        >>> ElasticsearchSink("http://localhost:9200", "clicks", id="user").describe()
        'elasticsearch(clicks by user)'
    """

    url: str = field(repr=False)
    index: str
    id: str | Sequence[str] = field(kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_url(self.url, ("http", "https"), _WHERE)
        check_headers(self.headers, _WHERE)
        ids = (self.id,) if isinstance(self.id, str) else tuple(self.id)
        if not ids or not self.index:
            raise ConfigurationError(f"{_WHERE}: name an index, and at least one column for the id")
        object.__setattr__(self, "id", ids)
        object.__setattr__(self, "headers", dict(self.headers))

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        return ANY_MODE

    @property
    def datasets(self) -> Sequence[Dataset]:
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return (Dataset(f"elasticsearch://{parts.hostname}:{port}", self.index),)

    def check(self, schema: pa.Schema | None) -> None:
        """See `Sink.check`; asks the server, within 10 s."""
        if schema is not None:
            _check_columns(schema, tuple(self.id), _WHERE)
        try:
            answer = ask(self.url, self.headers, _SECONDS)
        except ConnectionError as error:
            raise ConfigurationError(f"{_WHERE}: {error}; check the url, and that the server runs") from None
        if answer.status in _FORBIDDEN:
            raise ConfigurationError(
                f"{_WHERE}: {shown_url(self.url)} refuses the user: {answer.shown}; check user and password, or headers"
            )
        if answer.status >= 400:
            raise ConfigurationError(f"{_WHERE}: {shown_url(self.url)} cannot be used: {answer.shown}; check the url")

    def open(self, context: ConnectorContext) -> SinkWriter:
        where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
        return _BulkWriter(_Bulk(self.url, self.headers, where, context.clock), self.index, tuple(self.id), where)

    def describe(self) -> str:
        return f"elasticsearch({self.index} by {', '.join(self.id)})"


def _check_columns(schema: pa.Schema, ids: Sequence[str], where: str) -> None:
    for name in ids:
        if name not in schema.names:
            raise ConfigurationError(
                f"{where}: the rows have no column {name!r}{nearest(name, schema.names)} to be the id; they have "
                f"{', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise ConfigurationError(f"{where}: column {name!r} is {kind}, which cannot be an id; cast it to text")
    JsonFormat(schema)


@dataclass(frozen=True, slots=True)
class _Action:
    """A document to be written, or deleted if it is None."""

    id: str
    document: bytes | None

    def lines(self, index: str) -> bytes:
        target = {"_index": index, "_id": self.id}
        if self.document is None:
            return json.dumps({"delete": target}).encode("utf-8") + b"\n"
        return json.dumps({"index": target}).encode("utf-8") + b"\n" + self.document + b"\n"


class _BulkWriter(SinkWriter):
    """Sends the last row of each id of a batch."""

    def __init__(self, bulk: _Bulk, index: str, ids: tuple[str, ...], where: str) -> None:
        self._bulk, self._index, self._ids, self._where = bulk, index, ids, where
        self._schema: pa.Schema | None = None

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        if self._schema is None or not batch.data.schema.equals(self._schema):
            _check_columns(batch.data.schema, self._ids, self._where)
            self._format = JsonFormat(batch.data.schema)
            self._schema = batch.data.schema
        # One action for each id: those that are tried again must not overtake later ones.
        actions = {action.id: action for action in self._actions(batch)}
        for part in _parts(list(actions.values()), self._index):
            self._bulk.send(part, self._index)

    def _actions(self, batch: Batch) -> Iterator[_Action]:
        ids = self._ids_of(batch.data)
        kinds = [0] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
        documents = self._format.encode(batch.data).to_pylist()
        for name, kind, document in zip(ids, kinds, documents, strict=True):
            if kind != _UPDATE_BEFORE:
                yield _Action(name, None if kind == _DELETE else document)

    def _ids_of(self, rows: pa.RecordBatch) -> list[str]:
        columns = []
        for name in self._ids:
            column = rows.column(name)
            if column.null_count:
                raise RecordError(f"{self._where}: column {name!r}: an id is null; filter such rows out before")
            texts = column.cast(pa.string()).to_pylist()
            one = len(self._ids) == 1
            columns.append(texts if one else [t.replace("\\", "\\\\").replace(":", "\\:") for t in texts])
        return [":".join(values) for values in zip(*columns, strict=True)]


def _parts(actions: Sequence[_Action], index: str) -> Iterator[list[_Action]]:
    """The actions in parts of some megabytes, at least one in each."""
    part: list[_Action] = []
    size = 0
    for action in actions:
        length = len(action.lines(index))
        if part and size + length > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(action)
        size += length
    if part:
        yield part


class _OverloadedError(Exception):
    """The server has no room for some actions now."""


class _Bulk:
    """Sends actions until the server has taken all of them."""

    def __init__(self, url: str, headers: Mapping[str, str], where: str, clock: Clock) -> None:
        self._url = url.rstrip("/") + "/_bulk"
        self._headers = {**headers, "Content-Type": "application/x-ndjson"}
        self._where = where
        self._clock = clock

    def send(self, actions: Sequence[_Action], index: str) -> None:
        """Write the documents; different ids in each.

        Raises:
            RecordError: the server refuses a document; names its id.
            ConnectionError: the server cannot be reached, or refuses the request, or stays too busy.
        """
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

        left = list(actions)

        def attempt() -> None:
            left[:] = self._send(left, index)
            if left:
                raise _OverloadedError

        retrying = Retrying(
            retry=retry_if_exception_type((_OverloadedError, ConnectionError)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(0.1),
            sleep=lambda seconds: self._clock.wait_until(self._clock.monotonic() + seconds),
            reraise=True,
        )
        try:
            retrying(attempt)
        except _OverloadedError:
            raise ConnectionError(
                f"{self._where}: {shown_url(self._url)} is too busy for {len(left)} documents, after {_ATTEMPTS} "
                "attempts; lower the rate, or give the cluster more room"
            ) from None

    def _send(self, actions: Sequence[_Action], index: str) -> list[_Action]:
        """Those of the actions that the server has no room for now."""
        try:
            body = b"".join(action.lines(index) for action in actions)
            answer = ask(self._url, self._headers, _BULK_SECONDS, body)
        except ConnectionError as error:
            raise ConnectionError(f"{self._where}: {error}; check that the server runs") from None
        if answer.status in _OVERLOADED:
            return list(actions)
        if answer.status in _FORBIDDEN:
            raise ConfigurationError(f"{self._where}: {shown_url(self._url)} refuses the user: {answer.shown}")
        if answer.status != 200:
            raise RecordError(f"{self._where}: {shown_url(self._url)} refuses the documents: {answer.shown}")
        return [
            action
            for action, item in zip(actions, self._items(answer, actions), strict=True)
            if self._is_busy(item, action)
        ]

    def _items(self, answer: Answer, actions: Sequence[_Action]) -> list[Any]:
        try:
            items = json.loads(answer.body)["items"]
        except (ValueError, TypeError, KeyError):
            items = None
        if not isinstance(items, list) or len(items) != len(actions):
            raise RecordError(f"{self._where}: {shown_url(self._url)} gave no answer of the bulk API: {answer.shown}")
        return [next(iter(item.values())) for item in items]

    def _is_busy(self, item: Mapping[str, Any], action: _Action) -> bool:
        status = item.get("status", 500)
        if status in _OVERLOADED:
            return True
        if status >= 300 and not (action.document is None and status == _NOT_FOUND):
            error = item.get("error") or {}
            reason = f"{error.get('type')}: {error.get('reason')}" if isinstance(error, dict) else str(error)
            if status in _FORBIDDEN:
                raise ConfigurationError(
                    f"{self._where}: {shown_url(self._url)} takes no documents (status {status}): {reason}; grant the "
                    "user the right to write, or lift the index's block: it is set where disks are full"
                )
            raise RecordError(
                f"{self._where}: the document with id {action.id!r} is refused (status {status}): {reason}; correct "
                "the row before the sink, or the index's mapping"
            )
        return False

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.records import AvroFormat, ConfluentSchemaRegistry, RegistryAvroFormat
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError
from tests.connectors.records.values import decode_rows, values, written_and_read

OLD = {"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "id", "type": "long"}, {"name": "page", "type": ["null", "string"], "default": None}],
}
OTHER = {"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "string"}]}


@dataclass
class ListRegistry:
    """Keeps schemas in a list; the first has number 1."""

    schemas: list[str] = field(default_factory=list)
    asked: int = 0

    def schema(self, schema_id: int) -> str:
        self.asked += 1
        if not 1 <= schema_id <= len(self.schemas):
            raise RecordError(f"no schema {schema_id}")
        return self.schemas[schema_id - 1]

    def register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1


def _written(schema: Any, row: dict[str, Any], schema_id: int) -> bytes:
    form = AvroFormat(schema)
    (datum,) = form.encode(pa.RecordBatch.from_pylist([row], form.schema)).to_pylist()
    return b"\0" + schema_id.to_bytes(4, "big") + bytes(datum)


def test_records_of_any_schema_become_the_columns_of_one() -> None:
    registry = ListRegistry([json.dumps(OLD), json.dumps(NEW)])
    form = RegistryAvroFormat(NEW, registry)
    old, new = _written(OLD, {"id": 1, "gone": "x"}, 1), _written(NEW, {"id": 2**40, "page": "/a"}, 2)
    for _ in range(2):
        assert decode_rows(form, old, new, None) == [
            {"id": 1, "page": None},
            {"id": 2**40, "page": "/a"},
            {"id": None, "page": None},
        ]
    assert registry.asked == 2


def test_bad_records_are_named_and_the_others_go_on() -> None:
    form = RegistryAvroFormat(NEW, ListRegistry([json.dumps(NEW), json.dumps(OTHER)]))
    good = _written(NEW, {"id": 5, "page": None}, 1)
    decoded = form.decode(values(good, b"", b'{"id": 1}', good[:4], b"\0\0\0\0\x63x", good[:-1], good))
    assert decoded.rows.to_pylist() == [{"id": 5, "page": None}] * 2
    reasons = {bad.index: bad.reason for bad in decoded.bad}
    assert list(reasons) == [1, 2, 3, 4, 5]
    assert all("no header of a schema registry" in reasons[index] for index in (1, 2, 3))
    assert reasons[4] == "no schema 99"
    assert "ends within a value" in reasons[5]
    assert [bad.index for bad in form.decode(values(_written(OTHER, {"id": "x"}, 2))).bad] == [0]


def test_what_is_written_is_read_and_names_its_schema() -> None:
    form = RegistryAvroFormat(NEW, ListRegistry([json.dumps(OLD)]), "visits-value")
    rows = pa.RecordBatch.from_pylist([{"id": 1, "page": "/"}, {"id": 2, "page": None}], form.schema)
    assert [value[:5] for value in form.encode(rows).to_pylist()] == [b"\0\0\0\0\2"] * 2
    assert written_and_read(form, rows) == rows
    with pytest.raises(ConfigurationError, match="give the subject"):
        RegistryAvroFormat(NEW, ListRegistry()).encode(rows)


class _Handler(BaseHTTPRequestHandler):
    """The part of the registry's REST interface that formats use, for one user."""

    registry = ListRegistry()

    def do_GET(self) -> None:
        try:
            self._answer(200, {"schema": self.registry.schema(int(self.path.split("?")[0].rsplit("/", 1)[1]))})
        except RecordError:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "incompatible" in self.path:
            self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible"})
        else:
            self._answer(200, {"id": self.registry.register("", body["schema"])})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        if self.headers["Authorization"] != "Basic " + base64.b64encode(b"ann:secret").decode():
            status, body = 401, {"error_code": 401, "message": "Unauthorized secret"}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Tests print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    pytest.importorskip("confluent_kafka.schema_registry", reason="confluent-kafka[schemaregistry] is NOT INSTALLED")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_registry_server_keeps_schemas(url: str) -> None:
    form = RegistryAvroFormat(NEW, ConfluentSchemaRegistry(url, "ann", "secret"), "visits-value")
    rows = pa.RecordBatch.from_pylist([{"id": 1, "page": "/"}], form.schema)
    assert written_and_read(form, rows) == rows
    (bad,) = form.decode(values(b"\0\0\0\0\x63x")).bad
    assert bad.reason == "the schema registry has no schema 99"
    with pytest.raises(ConfigurationError, match="subject 'incompatible': Schema being registered"):
        ConfluentSchemaRegistry(url, "ann", "secret").register("incompatible", json.dumps(NEW))


def test_a_registry_that_refuses_the_user_fails_the_job_and_prints_no_password(url: str) -> None:
    registry = pickle.loads(pickle.dumps(ConfluentSchemaRegistry(url, "bob", "secret")))
    assert "secret" not in repr(registry)
    with pytest.raises(PenstockError, match="check the address") as raised:
        RegistryAvroFormat(NEW, registry).decode(values(b"\0\0\0\0\1x"))
    assert "secret" not in str(raised.value)


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="must start with http"):
        ConfluentSchemaRegistry("localhost:8081")
    with pytest.raises(ConfigurationError, match="both user and password"):
        ConfluentSchemaRegistry("http://localhost:8081", user="ann")

"""Documents in an index. No Elasticsearch can be had here: a server of the standard library speaks its bulk API."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.elasticsearch import ElasticsearchSink
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.recovery import checkpoints, fixed_delay
from tests.connectors.elasticsearch.index import Index
from tests.connectors.http.servers import answer, serve
from tests.connectors.reading import context
from tests.draws import drawn
from tests.large import LARGE

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Index]]:
    index = Index()
    with serve(index.respond) as url:
        yield url, index


@pytest.fixture
def cluster(served: tuple[str, Index]) -> tuple[str, Index]:
    url, index = served
    index.__init__()  # type: ignore[misc]
    return url, index


def _write(sink: ElasticsearchSink, columns: Any, kinds: Sequence[int] | None = None) -> None:
    writer = sink.open(context())
    writer.write(Batch(pa.record_batch(columns), None, None if kinds is None else pa.array(kinds, pa.int8())))
    writer.close()


changes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers()), max_size=12)


@settings(max_examples=drawn(32), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=changes, again=st.integers(0, 12), busy=st.integers(0, 3), busy_requests=st.integers(0, 2))
def test_each_id_has_its_last_row_also_where_rows_are_written_again(
    cluster: tuple[str, Index], changes: list[tuple[int, int, int]], again: int, busy: int, busy_requests: int
) -> None:
    url, index = cluster
    index.__init__()  # type: ignore[misc]
    index.busy, index.busy_requests = busy, busy_requests
    expected: dict[str, Any] = {}
    for kind, key, value in changes:
        if kind in (INSERT, UPDATE_AFTER):
            expected[str(key)] = {"k": key, "v": str(value)}
        elif kind == DELETE:
            expected.pop(str(key), None)
    for part in (changes, changes[max(0, len(changes) - again) :]):
        kinds, keys, values = ([change[place] for change in part] for place in range(3))
        texts = pa.array([str(value) for value in values], pa.string())
        _write(ElasticsearchSink(url, "clicks", id="k"), {"k": pa.array(keys, pa.int64()), "v": texts}, kinds)
    assert index.documents == expected


def test_documents_have_all_columns_and_large_batches_go_in_parts(cluster: tuple[str, Index]) -> None:
    url, index = cluster
    numbers = list(range(3000))
    columns = {"a": numbers, "b": ["x:y"] * 3000, "tags": [["t", None]] * 3000, "text": ["é" * 2000] * 3000}
    _write(ElasticsearchSink(url, "clicks", id=["a", "b"]), columns)
    assert len(index.documents) == 3000
    assert index.documents["17:x\\:y"] == {"a": 17, "b": "x:y", "tags": ["t", None], "text": "é" * 2000}
    assert len(index.sizes) > 1
    assert max(index.sizes) <= 5 * 1024**2


def test_a_job_with_a_failure_ends_with_the_right_documents(cluster: tuple[str, Index], tmp_path: Path) -> None:
    url, index = cluster
    index.token = "t0ken"
    failed = tmp_path / "failed"

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["i"] == 150 and not failed.exists():
            failed.touch()
            raise OSError("once")
        return row

    env = ps.StreamEnvironment(
        parallelism=2,
        runtime="local",
        max_batch_rows=8,
        buffer_timeout="0",
        checkpoints=checkpoints("10ms", str(tmp_path / "checkpoints")),
        restart=fixed_delay(3, "1ms"),
    )
    numbers = env.from_source(ps.DataGenSource({"i": ps.Sequence()}, rows=200)).map(fail, returns={"i": "int64"})
    counts = numbers.with_columns(k=ps.col("i") % 3).key_by("k").aggregate(n=ps.count())
    counts.sink_to(ElasticsearchSink(url, "clicks", id="k", headers={"Authorization": "ApiKey t0ken"}))
    assert "t0ken" not in env.explain()
    env.execute()
    assert failed.exists()
    assert {name: document["n"] for name, document in index.documents.items()} == {"0": 67, "1": 67, "2": 66}


def test_a_document_that_is_refused_is_named(cluster: tuple[str, Index]) -> None:
    url, _ = cluster
    with pytest.raises(
        RecordError, match=r"'test', subtask 0: .*document with id '2' is refused \(status 400\): mapper_parsing"
    ):
        _write(ElasticsearchSink(url, "clicks", id="k"), {"k": [1, 2], "v": ["a", "refuse me"]})
    with pytest.raises(RecordError, match="column 'k': an id is null"):
        _write(ElasticsearchSink(url, "clicks", id="k"), {"k": pa.array([None], pa.int64())})


def test_a_cluster_that_stays_too_busy(cluster: tuple[str, Index]) -> None:
    url, index = cluster
    index.busy = 100
    with pytest.raises(ConnectionError, match="is too busy for 2 documents, after 6 attempts"):
        _write(ElasticsearchSink(url, "clicks", id="k"), {"k": [1, 2]})


def test_a_server_that_is_something_else() -> None:
    page = "gave no answer of the bulk API: HTTP 200: <html>"
    with serve(lambda request: answer(request, b"<html>")) as url, pytest.raises(RecordError, match=page):
        _write(ElasticsearchSink(url, "clicks", id="k"), {"k": [1]})
    gone = "cannot be used: HTTP 404: gone"
    with serve(lambda request: answer(request, b"gone", 404)) as url, pytest.raises(ConfigurationError, match=gone):
        ElasticsearchSink(url, "clicks", id="k").check(None)


def test_servers_and_users_that_cannot_be_used(cluster: tuple[str, Index]) -> None:
    url, index = cluster
    index.token = "t0ken"
    sink = ElasticsearchSink(url, "clicks", id="k", headers={"Authorization": "ApiKey s3cret"})
    with pytest.raises(ConfigurationError, match="refuses the user: HTTP 401") as caught:
        sink.check(None)
    assert "s3cret" not in str(caught.value) + repr(sink)
    with pytest.raises(ConfigurationError, match=r"http://127\.0\.0\.1:1 cannot be reached: .*refused") as caught:
        ElasticsearchSink("http://app:s3cret@127.0.0.1:1", "clicks", id="k").check(None)
    assert "s3cret" not in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionError, match=r"elasticsearch sink: .*cannot be reached"):
        _write(ElasticsearchSink(f"http://127.0.0.1:{port}", "clicks", id="k"), {"k": [1]})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kk": pa.int64()}, r"no column 'k' \(did you mean 'kk'\?\) to be the id"),
        ({"k": pa.float64()}, "column 'k' is double, which cannot be an id"),
        ({"k": pa.list_(pa.int64())}, "which cannot be an id"),
    ],
)
def test_columns_that_cannot_be_ids(columns: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ElasticsearchSink("http://127.0.0.1:1", "clicks", id="k").check(pa.schema(columns))


def test_arguments_that_cannot_be_used() -> None:
    for arguments, message in [(("http://h", ""), "name an index"), (("ftp://h", "i"), "the url cannot be read")]:
        with pytest.raises(ConfigurationError, match=message):
            ElasticsearchSink(*arguments, id="k")
    with pytest.raises(ConfigurationError, match="at least one column for the id"):
        ElasticsearchSink("http://h", "i", id=())


def test_an_index_that_is_full_and_a_user_who_may_not_write(cluster: tuple[str, Index]) -> None:
    url, index = cluster
    sink = ElasticsearchSink(url, "clicks", id="k")
    index.is_blocked = True
    with pytest.raises(ConfigurationError, match=r"takes no documents \(status 403\): cluster_block.*disks are full"):
        _write(sink, {"k": [1]})
    index.token = "t0ken"
    with pytest.raises(ConfigurationError, match=r"'test', subtask 0: .* refuses the user: HTTP 401"):
        _write(sink, {"k": [1]})


@LARGE
def test_a_large_document(cluster: tuple[str, Index], large: int) -> None:
    url, index = cluster
    _write(ElasticsearchSink(url, "clicks", id="k"), {"k": [1, 2], "v": ["x" * large, "y"]})
    assert [len(document["v"]) for document in index.documents.values()] == [large, 1]

"""Files in buckets of an S3 server, as the target of the sink and the input of the source."""

from __future__ import annotations

import http.client
import json
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import obstore
import pyarrow as pa
import pytest

from penstock.connectors.files.node_copy import NodeCopy
from penstock.connectors.files.object_store import locate
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Committable, ConnectorContext, Wait
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointCorruptError, ConfigurationError, RecordError
from penstock.engine.job.events import RescaleJob
from penstock.engine.job.status import JobStatus
from penstock.engine.local.manager import LocalManager
from penstock.savepoints.store import FolderJobStore
from penstock.testing.services import S3
from tests.connectors.files.test_sink_checkpoints import ROWS, Faults, WatchedSink, _build, _environment
from tests.connectors.reading import context, read_rows, read_table

FORMATS = ["parquet", "csv", "json", "avro"]


@pytest.fixture
def guarded(s3: S3, bucket: str) -> Iterator[Callable[[str], None]]:
    """Calling it makes the server check credentials from then on, so that `bucket` may only be read, by that user."""
    client = boto3.client("iam", endpoint_url=s3.endpoint, region_name=s3.region)
    user = f"reader-{secrets.token_hex(4)}"
    client.create_user(UserName=user)
    allow = {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    client.put_user_policy(UserName=user, PolicyName="read", PolicyDocument=policy)
    key = client.create_access_key(UserName=user)["AccessKey"]
    client.close()

    def check(kind: str) -> tuple[str, str]:
        _ask(s3, "0")
        return (key["AccessKeyId"], key["SecretAccessKey"]) if kind == "reader" else ("AKIANOBODYKNOWSIT", "hush-hush")

    yield check
    _ask(s3, "inf")


def _ask(s3: S3, unchecked_calls: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=120.0)
    connection.request("POST", "/moto-api/reset-auth", body=unchecked_calls)
    assert connection.getresponse().status == 200
    connection.close()


def _rows(*values: int) -> Batch:
    return Batch(pa.record_batch({"i": pa.array(values, pa.int64())}))


def _prepared(sink: FileSink, *epochs: Sequence[int]) -> list[Committable]:
    writer = sink.open(_context())
    committables: list[Committable] = []
    for checkpoint, values in enumerate(epochs, 1):
        writer.write(_rows(*values))
        committables += writer.prepare(checkpoint)
    writer.close()
    return committables


def _context() -> ConnectorContext:
    return ConnectorContext("out", 0, 1, ManualClock(), "job/sink")


def _names(url: str, hidden: bool = False) -> list[str]:
    store, _ = locate(url)
    names = [entry["path"] for page in obstore.list(store) for entry in page]
    return sorted(name for name in names if name.rpartition("/")[2].startswith(".") == hidden)


def _put(url: str, data: bytes) -> None:
    store, key = locate(url)
    obstore.put(store, key, data)


def _seen(url: str) -> list[int]:
    return sorted(read_table(FileSource.of(url))["i"].to_pylist()) if _names(url) else []


def _json_rows(url: str, known: dict[str, list[int]]) -> list[int]:
    """The rows of all visible objects, each of which is read once, since it never changes."""
    store, _ = locate(url)
    for name in _names(url):
        if name not in known:
            lines = bytes(obstore.get(store, name).bytes()).splitlines()
            known[name] = [json.loads(line)["i"] for line in lines]
    return [row for rows in known.values() for row in rows]


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_seen_when_their_checkpoint_is_committed_and_once(bucket: str, kind: Any) -> None:
    sink = FileSink(f"{bucket}/a/b", kind)
    sink.check(None)
    sink.prepare()
    first, second = _prepared(sink, [1, 2], [3])
    assert _names(bucket) == []
    assert len(_names(bucket, hidden=True)) == 2
    sink.commit([first], _context())
    assert _seen(f"{bucket}/a/b") == [1, 2]
    for _ in range(2):
        sink.commit([first, second], context(1, 2))
        assert _seen(f"{bucket}/a/b") == [1, 2, 3]
    assert len(_names(bucket)) == 2
    assert _names(bucket, hidden=True) == []


def test_a_commit_that_ended_between_copy_and_removal_is_ended(bucket: str) -> None:
    sink = FileSink(bucket, "csv")
    (committable,) = _prepared(sink, [1])
    (row,) = committable.data.to_pylist()
    store, _ = locate(bucket)
    obstore.copy(store, row["hidden"], row["visible"])
    sink.commit([committable], _context())
    assert _seen(bucket) == [1]
    assert _names(bucket, hidden=True) == []


def test_an_object_that_is_gone_or_changed_is_named(bucket: str) -> None:
    sink = FileSink(bucket, "csv")
    (committable,) = _prepared(sink, [1])
    (name,) = _names(bucket, hidden=True)
    _put(f"{bucket}/{name}", b"x")
    with pytest.raises(CheckpointCorruptError, match=rf"'out', subtask 0.*{name} has 1 bytes.* has 6 bytes"):
        sink.commit([committable], _context())
    store, _ = locate(bucket)
    obstore.delete(store, name)
    with pytest.raises(CheckpointCorruptError, match=rf"{bucket}/part-00000-\S+ is not there, nor .*\.part-0"):
        sink.commit([committable], _context())


def test_large_files_are_uploaded_in_parts(bucket: str) -> None:
    sink = FileSink(bucket, "csv")
    writer = sink.open(_context())
    values = [random.Random(n).randbytes(500).hex() for n in range(1000)]
    for _ in range(12):
        writer.write(Batch(pa.record_batch({"s": values})))
    prepared = writer.prepare(1)
    (row,) = prepared[0].data.to_pylist()
    assert row["length"] > 12_000_000
    sink.commit(prepared, _context())
    writer.close()
    assert read_table(FileSource.of(bucket))["s"].to_pylist() == values * 12


def test_what_was_not_prepared_is_removed(bucket: str) -> None:
    writer = FileSink(bucket, "csv").open(_context())
    writer.write(_rows(1))
    writer.close()
    assert _names(bucket, hidden=True) == _names(bucket) == []


def test_partitions_and_overwriting(bucket: str) -> None:
    sink = FileSink(f"{bucket}/out", "parquet", mode="overwrite", partition_by=["k"])
    _put(f"{bucket}/out/k=old/part-1.parquet", b"x")
    _put(f"{bucket}/out/notes", b"x")
    _put(f"{bucket}/outer/part-1", b"x")
    sink.prepare()
    writer = sink.open(_context())
    writer.write(Batch(pa.record_batch({"k": ["a b", "ü/%", "a b"], "i": [1, 2, 3]})))
    sink.commit(writer.prepare(1), _context())
    writer.close()
    folders = [name.rpartition("/")[0] for name in _names(bucket)]
    assert sorted(folders) == sorted(["out/k=a b", "out/k=ü%2F%25", "out", "outer"])
    assert read_rows(FileSource.of(f"{bucket}/out/k=a b")) == [{"i": 1}, {"i": 3}]
    assert read_rows(FileSource.of(f"{bucket}/out/*/*.parquet"), 10)[-1] == {"i": 2}
    with pytest.raises(ConfigurationError, match=f"{bucket}/out is not empty"):
        FileSink(f"{bucket}/out", "parquet").check(None)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long("another seed"))])
def test_every_row_is_seen_once_and_only_when_its_checkpoint_is_complete(
    bucket: str, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    faults = Faults({rng.randrange(ROWS) for _ in range(2)}, {1: 1, 4: seed})  # commit 1 fails when it is done
    sink = WatchedSink(FileSink(f"{bucket}/out", "json"), faults)
    env = _environment(tmp_path, 2, mode="exactly-once")
    _build(env, sink, faults.at_row)
    store = FolderJobStore(str(tmp_path / "checkpoints"), "files", "files")
    manager = LocalManager(env.program("files"), ManualClock(), random.Random(seed), JobFolder(store, "files"))
    steps, seen = 0, 0
    known: dict[str, list[int]] = {}
    while not manager.brain.ended:
        if steps == 100:
            manager.ask(RescaleJob(3))
        manager.step(1.0)
        steps += 1
        if faults.calls != seen:
            seen = faults.calls
            rows = _json_rows(bucket, known)
            assert len(rows) == len(set(rows)), "a row is seen twice"
            complete = manager.brain.completed
            assert not [row for row in rows if min(sink.epochs[row]) > complete], "a row is seen early"
    assert manager.brain.status is JobStatus.FINISHED, manager.brain.error
    assert sorted(_json_rows(bucket, known)) == list(range(ROWS))


@pytest.mark.parametrize("kind", [*FORMATS, "csv.gz"])
def test_objects_are_read_as_files_are(bucket: str, tmp_path: Path, kind: str) -> None:
    name, _, compression = kind.partition(".")
    local = FileSink(tmp_path, name, compression="gzip" if compression else None)  # type: ignore[arg-type]
    writer = local.open(_context())
    writer.write(_rows(*range(5000)))
    local.commit(writer.prepare(1), _context())
    (path,) = tmp_path.iterdir()
    _put(f"{bucket}/in/x.{kind}", path.read_bytes())
    _put(f"{bucket}/in/.hidden.{kind}", b"x")
    _put(f"{bucket}/in/deeper/y.{kind}", path.read_bytes())
    expected = read_rows(FileSource.of(tmp_path))
    for place in (f"{bucket}/in", f"{bucket}/in/x.{kind}", f"{bucket}/i?/*.{kind}"):
        source = FileSource.of(place)
        assert source.paths == (f"{bucket}/in/x.{kind}",)
        assert read_rows(source) == expected
    assert len(FileSource.of(f"{bucket}/**/*.{kind}").paths) == 2
    source = FileSource.of(f"{bucket}/in")
    (split,) = source.splits(1)
    reader = source.open_at(split, {"row": 4990}, context())
    batch = reader.next_batch(100)
    assert isinstance(batch, pa.RecordBatch)
    assert batch["i"].to_pylist() == list(range(4990, 5000))
    reader.close()


def test_a_watched_folder_gives_objects_as_they_come(bucket: str) -> None:
    clock = ManualClock()
    source = FileSource.of(f"{bucket}/in/*.json", "json", {"i": "int64"}, monitor="10s")
    (split,) = source.splits(1)
    reader = source.open(split, context(clock=clock))
    assert reader.next_batch(10) == Wait(10.0)
    _put(f"{bucket}/in/a.json", b'{"i":1}\n')
    clock.advance(10)
    batch = reader.next_batch(10)
    assert isinstance(batch, pa.RecordBatch)
    assert batch["i"].to_pylist() == [1]
    assert reader.next_batch(10) == Wait(20.0)


def test_what_cannot_be_used_is_refused_before_the_job(s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = f"s3://missing-{secrets.token_hex(4)}"
    for attempt in (lambda: FileSink(missing, "csv").check(None), lambda: FileSource.of(f"{missing}/x.csv")):
        with pytest.raises(ConfigurationError, match=rf"{missing}.*(NoSuchBucket|does not exist).*check the bucket"):
            attempt()
    with pytest.raises(ConfigurationError, match="matches no file"):
        FileSource.of(f"{bucket}/none.csv")
    for url, message in [
        ("s3://user:hush@bucket/x", "credentials and options do not belong"),
        ("s3://bucket/x?token=hush", "credentials and options do not belong"),
        ("s4://bucket/x", "no storage is called 's4'.*one of s3://"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/../x", "no parts '.' and '..'"),
    ]:
        with pytest.raises(ConfigurationError, match=message) as caught:
            FileSink(url, "csv")
        assert "hush" not in str(caught.value)


def test_nobody_but_those_allowed_can_write_and_no_secret_is_shown(
    s3: S3, bucket: str, guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, does in [("reader", "written to"), ("nobody", "listed")]:
        own = f"files-{secrets.token_hex(6)}"  # clients are kept for each bucket
        _ask(s3, "inf")
        s3.create_bucket(own)
        key, secret = guarded(kind)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        sink = FileSink(f"s3://{own}/out", "csv")
        with pytest.raises(ConfigurationError, match=f"s3://{own}/out cannot be {does}.*403") as caught:  # noqa: PT012
            sink.check(None)
            sink.prepare()
        assert key not in str(caught.value)
        assert secret not in str(caught.value)


def test_an_object_that_is_gone_fails_with_its_name(bucket: str) -> None:
    _put(f"{bucket}/x.csv", b"i\n1\n")
    source = FileSource.of(f"{bucket}/x.csv")
    store, _ = locate(bucket)
    obstore.delete(store, "x.csv")
    with pytest.raises(RecordError, match=rf"{bucket}/x\.csv: cannot be read"):
        read_rows(source)


def test_objects_and_folders_are_copied_to_a_node(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/models/v7"
    for name, content in (("weights", b"\x01\x02"), ("deep/labels", b"a,b")):
        store, key = locate(f"{url}/{name}")
        obstore.put(store, key, content)
    folder = NodeCopy.of(url, "model").copy(str(tmp_path))
    assert (folder / "weights").read_bytes() == b"\x01\x02"
    assert (folder / "deep" / "labels").read_bytes() == b"a,b"
    one = NodeCopy.of(f"{url}/weights", "weights").copy(str(tmp_path))
    assert (one.name, one.read_bytes()) == ("weights", b"\x01\x02")
    with pytest.raises(ConfigurationError, match="nothing is at"):
        NodeCopy.of(f"{bucket}/models/v8", "model").copy(str(tmp_path))

"""Files that are copied once to a node: one copy for all who read it, whole, and gone when nobody wants it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncFunction, KeyedProcessFunction, ProcessFunction, ProcessWindowFunction, StreamEnvironment
from penstock.connectors.files import node_copy
from penstock.connectors.files.node_copy import NodeCopy
from penstock.engine.errors import ConfigurationError, JobFailedError
from penstock.engine.functions import RuntimeContext, WindowRuntimeContext
from penstock.engine.windows.assigners import tumbling


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text("to be")
    return file


def entries(directory: Path) -> list[Path]:
    return [one for one in directory.glob("penstock-files-*/*") if one.is_dir()]


def test_processes_of_a_node_share_a_copy_until_the_file_is_another(tmp_path: Path, words: Path) -> None:
    copies = tmp_path / "node"
    first = NodeCopy.of(words, "words").copy(str(copies))
    node_copy._held.cache_clear()  # as in another process
    assert NodeCopy.of(words, "other name").copy(str(copies)) == first
    assert (first.name, first.read_text(), len(entries(copies))) == ("words.txt", "to be", 1)
    words.write_text("or not")
    assert NodeCopy.of(words, "words").copy(str(copies)).read_text() == "or not"
    assert first.read_text() == "to be", "who reads it goes on with what it has"


def test_a_folder_is_copied_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "weights").write_bytes(b"\x01\x02")
    copied = NodeCopy.of(tmp_path / "model", "model").copy(str(tmp_path / "node"))
    assert (copied / "deep" / "weights").read_bytes() == b"\x01\x02"


def test_a_copy_that_nobody_holds_goes_after_a_while(tmp_path: Path, words: Path) -> None:
    copies = tmp_path / "node"
    base = node_copy._folder_of_copies(str(copies))
    left, half = base / "0123", base / "0123.part"
    left.mkdir()
    half.mkdir()
    lock = left.with_suffix(".held")
    lock.touch()
    NodeCopy.of(words, "words").copy(str(copies))
    assert left.exists(), "a restart may want it again"
    os.utime(lock, (time.time() - 7200,) * 2)
    node_copy._held.cache_clear()
    held = NodeCopy.of(words, "words").copy(str(copies))
    assert not left.exists()
    assert not half.exists()
    assert held.exists()


def test_what_a_killed_process_had_copied_is_not_taken_for_the_file(tmp_path: Path, words: Path) -> None:
    copies = tmp_path / "node"
    whole = NodeCopy.of(words, "words").copy(str(copies)).parent
    half = whole.with_suffix(".part")
    whole.rename(half)
    (half / "words.txt").write_text("to")
    node_copy._held.cache_clear()
    assert NodeCopy.of(words, "words").copy(str(copies)).read_text() == "to be"
    assert entries(copies) == [whole]


def test_what_changes_while_it_is_copied_is_no_copy(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(source: str, target: Path) -> None:
        target.write_text("half")
        words.write_text(words.read_text() + "!")

    monkeypatch.setattr(node_copy, "_fetch", fetch)
    with pytest.raises(ConfigurationError, match="changes while it is copied"):
        NodeCopy.of(words, "words").copy(str(tmp_path / "node"))
    assert not entries(tmp_path / "node")


def test_nobody_else_may_have_put_something_there(tmp_path: Path, words: Path) -> None:
    (tmp_path / f"penstock-files-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"penstock-files-{os.getuid()}").chmod(0o777)
    with pytest.raises(ConfigurationError, match="not this user's alone"):
        NodeCopy.of(words, "words").copy(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [("a", "", "a name is a text"), ("s3://key:secret@bucket/a", "m", "credentials"), ("ftp://host/a", "m", "'ftp'")],
)
def test_what_cannot_be_registered_is_refused(path: str, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        StreamEnvironment(runtime="local").register_cached_file(path, name)
    assert "secret" not in str(error.value).replace("register_cached_file", "").replace("secrets", "")


class Reading(ProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.text = context.cached_file("words").read_text()

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"text": self.text}


class KeyedReading(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.text = context.cached_file("words").read_text()

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"text": self.text}


class WindowReading(ProcessWindowFunction):
    def open(self, context: WindowRuntimeContext) -> None:
        self.text = context.cached_file("words").read_text()

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        yield {"text": self.text}


class AsyncReading(AsyncFunction):
    def open(self, context: RuntimeContext) -> None:
        self.text = context.cached_file("words").read_text()

    async def process(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"text": self.text}]


@pytest.mark.parametrize("kind", ["process", "keyed", "window", "async"])
def test_every_function_reads_it_by_name(tmp_path: Path, words: Path, kind: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, state_directory=str(tmp_path / "node"))
    env.register_cached_file(words, "words")
    rows = env.from_collection([{"user": "ada", "at": 0}])
    match kind:
        case "process":
            read = rows.process(Reading, returns={"text": "string"})
        case "keyed":
            read = rows.key_by("user").process(KeyedReading, returns={"text": "string"})
        case "window":
            windows = rows.assign_timestamps("at").key_by("user").window(tumbling("1s"))
            read = windows.process(WindowReading, returns={"text": "string"})
        case _:
            read = rows.map_async(AsyncReading, returns={"text": "string"})
    result = read.collect()
    env.execute()
    assert list(result) == [{"text": "to be"}]


def test_a_name_that_is_not_registered_is_told_with_those_that_are(words: Path) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.register_cached_file(words, "word")
    with pytest.raises(ConfigurationError, match="already"):
        env.register_cached_file(words, "word")
    env.from_collection([{"user": "ada"}]).process(Reading, returns={"text": "string"}).collect()
    with pytest.raises(JobFailedError, match="no cached file 'words'"):
        env.execute()

"""A peer's batch mode: its process takes jobs one by one, its trouble is told, and its jars are those asked for."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from perf import run
from perf.harness import BenchmarkError, Options
from perf.peers import batch, jars
from perf.peers.engines import PeerError, engine
from perf.peers.jars import Jar, JarError, jars_of
from perf.terasort import TeraSort

WRITING = """
import sys
for line in sys.stdin:
    program, given, output = line.rstrip("\\n").split("\\t")
    if program == "failing":
        sys.exit("no such table")
    while program == "endless":
        pass
    print("news of its own")
    open(output, "w").write(program + " of " + given)
    print("done", flush=True)
"""


def test_jobs_run_one_behind_the_other_in_one_process(tmp_path: Path) -> None:
    with batch.started([sys.executable, "-c", WRITING]) as peer:
        for program in ("join", "sort"):
            peer.run(program, Path("input"), tmp_path / program)
            assert (tmp_path / program).read_text() == f"{program} of input"


@pytest.mark.parametrize(("program", "message"), [("failing", "no such table"), ("endless", "within 0.5 s")])
def test_a_job_that_gives_nothing_is_an_error(program: str, message: str, tmp_path: Path) -> None:
    with batch.started([sys.executable, "-c", WRITING], patience=0.5) as peer:
        with pytest.raises(PeerError, match=message):
            peer.run(program, Path("input"), tmp_path / "output")
        with pytest.raises(PeerError, match="has failed"):
            peer.run("sort", Path("input"), tmp_path / "output")


def test_a_peer_without_java_is_told() -> None:
    with pytest.raises(PeerError, match="no penstock-java on the path"), batch.started(["penstock-java"]):
        pass


def test_only_some_peers_run_from_files_to_files() -> None:
    from perf.batch_jobs import in_turns

    with pytest.raises(BenchmarkError, match="bytewax has no programs"):
        list(in_turns([TeraSort()], Options(peer=engine("bytewax")), ""))


def test_results_tell_the_settings_of_the_jobs_that_ran() -> None:
    flink = engine("flink")
    told = {name: run._peer_settings(name, flink)["peer_settings"] for name in ("terasort", "keyed")}
    assert "taskmanager.memory.managed.size=1g" in told["terasort"]
    assert "taskmanager.memory.managed.size=512m" in told["keyed"]
    assert run._peer_settings("terasort", None) == {}


def test_each_jar_is_named_by_version_and_hash() -> None:
    assert jars_of("spark") == []
    assert all(
        len(jar.sha256) == 64 and jar.coordinates.count(":") == 2
        for name in ("flink", "flink-kafka")
        for jar in jars_of(name)
    )
    assert "flink-sql-parquet-2.3.0.jar" in [jar.file for jar in jars_of("flink")]


def test_a_jar_that_is_another_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(jar: Jar, folder: Path) -> None:
        (folder / jar.file).write_bytes(b"classes")

    monkeypatch.setattr(jars, "_copy", copy)
    right = Jar("org.example:right:1", hashlib.sha256(b"classes").hexdigest())
    jars.fetch([right], tmp_path / "jars")
    with pytest.raises(JarError, match=r"wrong:1 has the SHA-256"):
        jars.fetch([right, Jar("org.example:wrong:1", "0" * 64)], tmp_path / "jars")
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["right-1.jar"]

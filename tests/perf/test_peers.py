"""What measures the peers: answers are compared before a time counts, pairs make ratios, a peer's trouble is told."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from perf import checkpoint, harness, latency, run
from perf.harness import BenchmarkError, ComparedResult, Options, Reading
from perf.peers import engines
from perf.peers.digest import Digest, is_digest, of_texts
from perf.peers.engines import ENGINES, Engine, PeerError, engine
from perf.peers.session import (
    Timing,
    check_answer,
    latency_in,
    measure,
    measure_to_the_end,
    printed_by,
    seconds_of,
)
from perf.peers.task import PeerInput, PeerTask
from perf.processes import ProcessTree, crossed

RIGHT = Digest.of([1, 2], [3, 4])
AT_ONCE = Timing(warm_up=0.0, seconds=0.05, every=0.05, patience=5.0)
COUNTING = """
import sys
from pathlib import Path
import numpy as np
folder, parallelism, counters = sys.argv[1:]
assert (Path(folder) / "check" / "job.properties").exists()
print("news of its own")
print("digest {rows} {hash}", flush=True)
slots = np.memmap(counters, np.int64, "r+")
while True:
    slots[0] += 1000
    slots[8] += 1000
"""


@pytest.fixture
def peer(tmp_path: Path) -> Callable[[str], Engine]:
    def of(program: str) -> Engine:
        script = tmp_path / "peer.py"
        script.write_text(program)

        def command(folder: Path, parallelism: int, counters: Path) -> engines.Command:
            return [sys.executable, str(script), str(folder), str(parallelism), str(counters)], {}

        return Engine("other", "other", "other", frozenset({"sum"}), command, 0.0)

    return of


def task() -> PeerTask:
    settings = PeerInput({"rows": 2})
    return PeerTask("sum", settings, settings, lambda: RIGHT)


def counting(digest: Digest) -> str:
    return COUNTING.format(rows=digest.rows, hash=digest.hash)


@pytest.fixture(scope="module")
def shared() -> ModuleType:
    """The module that the programs of Python peers share, which runs without our packages."""
    spec = importlib.util.spec_from_file_location("counters", engines.HERE / "programs" / "counters.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_digest_is_that_of_rows_in_any_order_and_of_no_others() -> None:
    assert Digest.of([1, 2, 2], [3, 4, 4]) == Digest.of([2, 1, 2], [4, 3, 4])
    others = [([1, 2], [4, 3]), ([3, 4], [1, 2]), ([1, 2, 2], [3, 4, 4]), ([1], [3]), ([1, 2], [3, -4])]
    assert all(Digest.of(*columns) != RIGHT for columns in others)
    assert of_texts(["a", "b"]) == of_texts(["b", "a"]) != of_texts(["a", "c"])


def test_the_programs_of_python_peers_compute_the_same_digest(shared: ModuleType) -> None:
    rows = [(5, -7), (2**62, 0)]
    total = sum(shared.row_hash(*row) for row in rows) % 2**64
    assert Digest.of(*zip(*rows, strict=True)) == Digest(2, total)


def test_a_peers_answer_is_read_from_its_line() -> None:
    assert Digest.parse("digest 20000 18446744073709551615\n") == Digest(20_000, 2**64 - 1)
    assert not is_digest("the digest 1 2")


@pytest.mark.parametrize("line", ["", "digest", "digest 1", "digest x 1", "digest 1 2 3", "WARN digest 1 2"])
def test_what_is_no_answer_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a digest"):
        Digest.parse(line)


@pytest.mark.parametrize("wrong", [Digest(RIGHT.rows, RIGHT.hash ^ 1), Digest(RIGHT.rows + 1, RIGHT.hash)])
def test_a_wrong_answer_counts_no_time(wrong: Digest, peer: Callable[[str], Engine]) -> None:
    check_answer("other", "sum", RIGHT, RIGHT)
    with pytest.raises(ValueError, match="its time does not count"):
        check_answer("other", "sum", wrong, RIGHT)
    with pytest.raises(ValueError, match="other, sum: its output is wrong"):
        measure(peer(counting(wrong)), task(), 2, AT_ONCE)


def test_a_peers_rows_and_cost_are_sampled_once_its_answer_is_right(peer: Callable[[str], Engine]) -> None:
    reading = harness.reading(measure(peer(counting(RIGHT)), task(), 2, AT_ONCE))
    assert reading.events_per_second is not None
    assert reading.events_per_second > 0
    assert reading.peak_rss_mb is not None
    assert reading.peak_rss_mb > 1


TIMING = """
import time
end = time.monotonic() + 0.5
while time.monotonic() < end:
    slots[0] += 1000
print("latency 980 1.5 2.5 3.5")
"""


def test_a_peer_that_times_its_rows_by_itself_is_sampled_and_heard_to_the_end(peer: Callable[[str], Engine]) -> None:
    program = counting(RIGHT).partition("while True")[0] + TIMING
    samples, output = measure_to_the_end(peer(program), task(), 2, AT_ONCE)
    assert harness.reading(samples).events_per_second
    assert latency_in(output) == (980, {"p50": 1.5, "p99": 2.5, "p99.9": 3.5})
    assert "latency 980" in printed_by(peer(program), task(), 2, 10.0)
    with pytest.raises(PeerError, match=r"other has not ended after 0\.01 s"):
        printed_by(peer(counting(RIGHT)), task(), 2, 0.01)
    with pytest.raises(PeerError, match="no latency"):
        latency_in("digest 1 2")


def test_a_peer_without_a_program_that_times_rows_or_checkpoints_is_told(peer: Callable[[str], Engine]) -> None:
    beside = Options(peer=peer(""), runtime="local", check_rows=100)
    with pytest.raises(BenchmarkError, match="other has no program for latency"):
        list(latency.run(beside, "timeout 100ms"))
    with pytest.raises(BenchmarkError, match="other has no program for checkpoint running 10 MB every 10s"):
        list(checkpoint.run(beside, "running 10 MB every 10s"))


def test_what_was_set_for_a_peer_stands_beside_its_figures() -> None:
    sql, one_phase = ENGINES["flink-sql"].settings, ENGINES["flink-sql-one-phase"].settings
    assert {setting.partition("=")[2] for setting in {*sql} ^ {*one_phase}} == {"TWO_PHASE", "ONE_PHASE"}
    assert any(setting.startswith("-Xmx") for setting in sql)
    assert any(setting.startswith("taskmanager.memory.managed.size=") for setting in ENGINES["flink"].settings)


@pytest.mark.parametrize("program", ["import sys; sys.exit('no memory left')", "print('digest 1'); 1 / 0"])
def test_a_peer_that_ends_by_itself_is_told_with_its_last_words(program: str, peer: Callable[[str], Engine]) -> None:
    with pytest.raises((PeerError, ValueError), match=r"no memory left|ZeroDivisionError|not a digest"):
        measure(peer(program), task(), 2, AT_ONCE)


def test_a_peer_that_stands_still_is_told(peer: Callable[[str], Engine]) -> None:
    program = counting(RIGHT).replace("+= 1000", "+= 0")
    with pytest.raises(PeerError, match="other stands still: 0 rows"):
        measure(peer(program), task(), 2, Timing(0.0, 0.05, patience=0.1))


def test_a_job_is_written_as_programs_in_any_language_read_it(tmp_path: Path, shared: ModuleType) -> None:
    columns = {
        "key": lambda: pa.array([1, -2]),
        "v": lambda: pa.array([0.5, 2.0]),
        "line": lambda: pa.array(["ab.", "cd."]),
    }
    PeerTask("grep", PeerInput({"pattern": r"\d=[45]", "rows": 7}, columns)).write(tmp_path)
    assert not (tmp_path / "check").exists()
    job = shared.Job(str(tmp_path / "run"))
    assert (job.program, job.rows, job.settings["line_bytes"]) == ("grep", 7, "3")
    assert (list(job.int64s("key")), list(job.float64s("v"))) == ([1, -2], [0.5, 2.0])
    assert (tmp_path / "run" / "line.bin").read_bytes() == b"ab.cd."
    # Java's properties take a backslash for the beginning of an escape.
    assert r"pattern=\\d=[45]" in (tmp_path / "run" / "job.properties").read_text().splitlines()


def test_texts_of_different_lengths_are_no_column_for_a_peer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one length"):
        PeerInput(columns={"line": lambda: pa.array(["a", "bc"])}).write("grep", tmp_path / "job")


def test_the_counters_of_python_peers_are_where_they_are_read(tmp_path: Path, shared: ModuleType) -> None:
    file = tmp_path / "counters"
    file.write_bytes(bytes(1024))
    counters = shared.Counters(str(file))
    counters.set(0, 3)
    counters.set(2, 5)
    assert np.memmap(file, np.int64, "r")[::8][:4].tolist() == [3, 0, 5, 0]
    assert counters.get(2) == 5


def test_pairs_make_a_ratio_of_rates_and_of_cost() -> None:
    pairs = [
        (Reading(10.0, 4.0, 100.0), Reading(5.0, 1.0, 50.0)),
        (Reading(12.0, 4.0, 100.0), Reading(4.0, 2.0, 70.0)),
        (Reading(9.0, 6.0, 130.0), Reading(9.0, 2.0, 60.0)),
    ]
    line = ComparedResult.of_pairs("keyed", "one", "other 1.0", pairs).line({"cores": 2})
    assert list(line) == ["name", "variant", "ours", "peer", "ratio", "ratio_cpu", "spread", "machine"]
    assert line["peer"] == {
        "name": "other 1.0",
        "events_per_second": 5.0,
        "events_per_cpu_second": 2.0,
        "peak_rss_mb": 60.0,
        "latency_ms": {"p50": None, "p99": None},
    }
    assert (line["ratio"], line["ratio_cpu"], line["spread"]) == (2.0, 3.0, 1.0)


def test_latencies_are_compared_the_other_way_round() -> None:
    pairs = [(Reading(latency_ms={"p50": 2.0, "p99": 3.0}), Reading(latency_ms={"p50": 8.0, "p99": 9.0}))]
    result = ComparedResult.of_pairs("startup", "one", "other", pairs)
    assert (result.ratio, result.ratio_cpu, result.spread) == (4.0, None, None)


@pytest.mark.parametrize(
    ("before", "now", "is_crossed"), [(0, 9, False), (9, 10, True), (10, 19, False), (5, 35, True)]
)
def test_a_measurement_of_whole_windows_begins_and_ends_at_their_rows(before: int, now: int, is_crossed: bool) -> None:
    assert crossed(before, now, 10) is is_crossed


def test_an_unknown_peer_and_one_that_is_not_installed_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "ENVIRONMENTS", tmp_path)
    with pytest.raises(PeerError, match="no peer is called 'storm': choose among flink"):
        engine("storm")
    with pytest.raises(SystemExit) as ended:
        run.main(["grep", "--peer", "flink"])
    assert ended.value.code == 2
    assert "make bench-peers ARGS=flink" in capsys.readouterr().err


def test_a_peer_without_a_program_for_the_question_is_told(peer: Callable[[str], Engine]) -> None:
    workloads = [harness.null_workload(lambda env: env.from_collection([{"a": 1}]), PeerTask("lines", PeerInput()))]
    with pytest.raises(BenchmarkError, match="other has no program for grep"):
        list(harness.throughput("grep", workloads, Options(peer=peer(""))))


@pytest.mark.parametrize("name", ["rescale", "end_to_end", "coordinator"])
def test_a_program_that_no_peer_has_is_not_measured_alone_instead(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], peer: Callable[[str], Engine]
) -> None:
    monkeypatch.setattr(run, "_peer", lambda text: peer(""))
    with pytest.raises(SystemExit) as ended:
        run.main([name, "keyed", "--peer", "other"])
    assert ended.value.code == 2
    assert f"{name} cannot be measured beside a peer" in capsys.readouterr().err


WORKER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(worker.pid, file=sys.stderr, flush=True)
sys.exit("crashed")
"""


def test_what_a_peer_has_started_ends_with_it_also_where_it_has_crashed(peer: Callable[[str], Engine]) -> None:
    with pytest.raises(PeerError, match="crashed") as told:
        measure(peer(WORKER), task(), 2, AT_ONCE)
    worker = int(next(line for line in str(told.value).splitlines() if line.isdigit()))
    assert _ends(worker)


def test_a_peer_ends_with_its_workers_when_the_harness_does(tmp_path: Path) -> None:
    program = tmp_path / "peer.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(engines.HERE / 'programs')!r})\n"
        "from counters import end_with_standard_input\n"
        "import subprocess, time\n"
        "end_with_standard_input()\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.stdin.close()
        process.wait(10)
    assert _ends(worker)


def _ends(pid: int) -> bool:
    """Whether a process that is no child of this one has ended, or does within seconds."""
    import psutil
    import ray  # noqa: F401  brings a psutil

    try:
        process = psutil.Process(pid)
        # Nobody may be there to take leave of it.
        return process.status() == psutil.STATUS_ZOMBIE or process.wait(10) is None
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("program", "patience", "message"),
    [
        ("no-such-java", 10.0, "there is no no-such-java on the path"),
        (sys.executable, 0.01, "has given no time within 0.01 s"),
    ],
)
def test_a_start_that_cannot_be_timed_is_told(program: str, patience: float, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        seconds_of([program, "-c", "import time; time.sleep(1000)"], patience)


def test_a_missing_program_is_told(peer: Callable[[str], Engine]) -> None:
    lost = replace(peer(""), command=lambda folder, parallelism, counters: (["java-of-nobody"], {}))
    with pytest.raises(PeerError, match="there is no java-of-nobody on the path: install it"):
        measure(lost, task(), 2, AT_ONCE)


def test_sampling_is_taken_off_the_cost_of_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        tree = ProcessTree(other.pid)
        tree._own = 1000.0
        assert tree.cpu_seconds() >= 0
    own = ProcessTree()
    own._own = 1000.0
    assert own.cpu_seconds() < 0

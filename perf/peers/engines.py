"""The engines: how each is started, which programs it has, and how long it takes to get warm.

Every one is a command that gets a folder (see `perf/peers/task.py`), the parallelism and a file of counters. It prints
the digest of the job in `FOLDER/check`, then runs the one in `FOLDER/run` and counts its rows in the file until its
standard input ends.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from perf.peers.install import ENVIRONMENTS
from perf.peers.jars import jars_of

HERE: Final = Path(__file__).resolve().parent
_JAVA: Final = HERE / "java"
_PROGRAMS: Final = HERE / "programs"
_OPENED: Final = ("lang", "util", "time", "nio")
"""Packages of the JDK, below java, that Flink's serializers look into."""
_HEAP_SHARE: Final = 0.3
"""Of the machine's memory. Flink's containers give 0.4 of theirs to the heap, but have it to themselves."""
_MANAGED_MB: Final = 512
"""SQL's windows gave 0.6 to 1.2 M rows a CPU-second with 2.4 GB, 0.9 with 512 MB, 1.0 with 128 MB: noise."""
_NETWORK_MB: Final = 256
_ROCKSDB: Final = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
_MINI_BATCHES: Final = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1s",
    "table.exec.mini-batch.size": "131072",
}
_BATCH_JVM: Final = ("-Xmx2g", "-XX:+UseParallelGC")
"""As much as an executor of Spark's has; managed memory and the network's come on top."""
_BATCH: Final = {
    "pipeline.object-reuse": "true",
    "taskmanager.memory.managed.size": "1g",
    # As many subtasks as ours, however small the input is.
    "execution.batch.adaptive.auto-parallelism.enabled": "false",
    # Else each of the sort's statements would read all files for itself.
    "table.optimizer.reuse-optimize-block-with-digest-enabled": "true",
}
NO_SETTINGS: Final[Mapping[str, str]] = {}

Command: TypeAlias = tuple[Sequence[str], Mapping[str, str]]
"""Arguments, the program first, and the variables that are added to the environment."""


class PeerError(Exception):
    """A peer cannot be run: it is not installed, or what it needs is missing."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A peer.

    Args:
        name: as `--peer` calls it.
        environment: the virtual environment in `.venv-peers` that has it.
        package: whose version tells its version.
        programs: the names of its programs.
        command: from (folder, parallelism, file of counters) to what is executed, and variables of its environment.
        warm_up: seconds from its first rows on that are not counted.
        seconds: the least that a measurement of it takes.
        settings: what was set for it, for whoever reads its figures.
        batch_settings: the same for whole jobs from files to files; empty where it has no such programs.
    """

    name: str
    environment: str
    package: str
    programs: frozenset[str]
    command: Callable[[Path, int, Path], Command]
    warm_up: float
    seconds: float = 0.0
    settings: Sequence[str] = ()
    batch_settings: Sequence[str] = ()

    def version(self) -> str:
        """The version that is installed.

        Raises:
            PeerError: none is.
        """
        names = [
            path.name for path in _packages(self.environment).glob(f"{self.package.replace('-', '_')}-*.dist-info")
        ]
        if not names:
            raise PeerError(
                f"{self.name} is not installed in .venv-peers/{self.environment}: "
                f"make bench-peers ARGS={self.environment}"
            )
        return names[0].removesuffix(".dist-info").rpartition("-")[2]


def engine(name: str) -> Engine:
    """The peer of that name.

    Raises:
        PeerError: there is none.
    """
    if name not in ENGINES:
        raise PeerError(f"no peer is called {name!r}: choose among {', '.join(ENGINES)}")
    return ENGINES[name]


def classpath() -> str:
    """Flink's jars and our programs.

    Raises:
        PeerError: Flink is not installed, or there is no Java compiler.
    """
    return _compiled("bench")


def flink_batch(parallelism: int) -> Sequence[str]:
    """What runs whole jobs from files to files: see `java/batch/Main.java`.

    Raises:
        PeerError: as for `classpath`, or the jars that read Parquet are missing.
    """
    program = ["batch.Main", str(parallelism), *_pairs(_BATCH)]
    return ["java", *_BATCH_JVM, *_opens(), "-cp", _compiled("batch", _jars("flink", "Parquet")), *program]


def flink_nexmark(parallelism: int, settings: Mapping[str, str] = NO_SETTINGS) -> Sequence[str]:
    """What runs Nexmark's queries from files, with some settings changed: see `java/nexmark/Main.java`.

    Raises:
        PeerError: as for `flink_batch`.
    """
    program = ["nexmark.Main", str(parallelism), *_pairs({**_sql("TWO_PHASE"), **settings})]
    return ["java", *_jvm(), "-cp", _compiled("nexmark", _jars("flink", "Parquet")), *program]


def flink_cases(program: str, *arguments: str) -> Sequence[str]:
    """What runs a program of `java/cases`: `Main` answers patterns, `Memory` weighs partial matches.

    Raises:
        PeerError: as for `classpath`.
    """
    return ["java", *_BATCH_JVM, *_opens(), "-cp", _compiled("cases"), f"cases.{program}", *arguments]


def flink_views(folder: Path, parallelism: int, counters: Path) -> Sequence[str]:
    """What runs the Yahoo benchmark from Kafka to Redis: see `java/views/Main.java`.

    Raises:
        PeerError: as for `classpath`, or the jars of Kafka and Redis are missing.
    """
    shared = [_JAVA / "bench" / f"{name}.java" for name in ("Counters", "Job")]
    classes = _compiled("views", _jars("flink-kafka", "Kafka"), shared)
    program = ["views.Main", str(folder), str(parallelism), str(counters), *_pairs({})]
    return ["java", *_jvm(), "-cp", classes, *program]


def _jars(listed: str, use: str) -> list[Path]:
    """What `requirements/LISTED-jars.txt` has, which Flink needs for that use."""
    jars = [ENVIRONMENTS / "flink" / "jars" / jar.file for jar in jars_of(listed)]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        raise PeerError(f"flink has no {', '.join(missing)}, which it needs for {use}: make bench-peers ARGS=flink")
    return jars


def _compiled(package: str, more: Sequence[Path] = (), shared: Sequence[Path] = ()) -> str:
    """Flink's jars, more of them, and the classes of a package, compiled where these very sources have not been.

    `shared` are sources of other packages.
    """
    jars = _packages("flink") / "pyflink" / "lib"
    if not jars.is_dir():
        raise PeerError("flink is not installed in .venv-peers/flink: make bench-peers ARGS=flink")
    libraries = ":".join([f"{jars}/*", *map(str, more)])
    sources = [*sorted((_JAVA / package).glob("*.java")), *shared]
    # Checkouts may share the environments.
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    classes = ENVIRONMENTS / "flink" / "classes" / digest[:16]
    if not (classes / package / "Main.class").exists():
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", libraries, *map(str, sources)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise PeerError("flink: there is no javac on the path: install a JDK, 17 or newer") from None
        if done.returncode:
            raise PeerError(f"flink: javac refused perf/peers/java:\n{done.stderr}")
    return f"{classes}:{libraries}"


def _jvm() -> list[str]:
    """The options of a JVM: the heap by the machine's size, the collector that has the highest throughput."""
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    heap = f"-Xmx{int(_HEAP_SHARE * memory_mb)}m"
    return [heap, "-XX:+UseParallelGC", *_opens()]


def _opens() -> list[str]:
    return [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]


def flink_options() -> list[str]:
    """The options of a JVM of Flink's that is one of several: its heap is a gigabyte and a half."""
    return ["-Xmx1536m", *_jvm()[1:]]


def _memory() -> dict[str, str]:
    """Of the local cluster, whose own defaults are 128 MB of managed memory and 64 MB of network buffers."""
    return {
        "taskmanager.memory.managed.size": f"{_MANAGED_MB}m",
        "taskmanager.memory.network.min": f"{_NETWORK_MB}m",
        "taskmanager.memory.network.max": f"{_NETWORK_MB}m",
    }


def _pairs(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**_memory(), **settings}.items()]


def _sql(phases: str) -> dict[str, str]:
    # Flink's own Nexmark has distinct aggregates split, too.
    split = {"table.optimizer.distinct-agg.split.enabled": "true"}
    return {**_MINI_BATCHES, **split, "table.optimizer.agg-phase-strategy": phases}


def _flink(api: str, settings: Mapping[str, str], folder: Path, parallelism: int, counters: Path) -> Command:
    storage = f"execution.checkpointing.dir={(folder / 'checkpoints').as_uri()}"
    program = ["bench.Main", api, str(folder), str(parallelism), str(counters), *_pairs(settings), storage]
    return ["java", *_jvm(), "-cp", classpath(), *program], {}


def flink_startup(folder: Path, parallelism: int, counters: Path) -> Sequence[str]:
    """What measures how long a job of Flink's takes to its first row."""
    program = ["bench.Startup", str(folder), str(parallelism), str(counters), *_pairs({})]
    return ["java", *_jvm(), "-cp", classpath(), *program]


def _pyflink(mode: str, folder: Path, parallelism: int, counters: Path) -> Command:
    # PyFlink starts its JVM by itself: the first two are how it can be told of classes and options. The interpreter in
    # that JVM knows nothing of virtual environments.
    environment = {
        "HADOOP_CLASSPATH": classpath().partition(":")[0],
        "JVM_ARGS": " ".join(_jvm()),
        "PYTHONPATH": str(_packages("flink")),
    }
    arguments = [mode, str(folder), str(parallelism), str(counters), *_pairs({})]
    return _python("flink", "pyflink_count.py", *arguments), environment


def pyflink_queries(asked: str, answered: str) -> Sequence[str]:
    """Asks Flink SQL for the queries of a file; `programs/pyflink_queries.py` says what is in both."""
    return _python("flink", "pyflink_queries.py", asked, answered)


def _bytewax(folder: Path, parallelism: int, counters: Path) -> Command:
    return _python("bytewax", "bytewax_count.py", str(folder), str(parallelism), str(counters)), {}


def _python(environment: str, program: str, *arguments: str) -> list[str]:
    return [str(ENVIRONMENTS / environment / "bin" / "python"), str(_PROGRAMS / program), *arguments]


def _packages(environment: str) -> Path:
    """The folder of packages; one that does not exist where nothing is installed."""
    found = sorted((ENVIRONMENTS / environment).glob("lib/python3.*/site-packages"))
    return found[-1] if found else ENVIRONMENTS / environment / "lib"


def _flink_engine(
    name: str, api: str, programs: Iterable[str], settings: Mapping[str, str] = NO_SETTINGS, batch: Sequence[str] = ()
) -> Engine:
    """Flink with programs of one API; compiled code is good after 8 s."""
    told = [*_jvm()[:2], *_pairs(settings)]
    command = partial(_flink, api, settings)
    return Engine(
        name, "flink", "apache-flink", frozenset(programs), command, warm_up=8.0, settings=told, batch_settings=batch
    )


def _pyflink_engine(mode: str) -> Engine:
    command, told = partial(_pyflink, mode), [*_jvm()[:2], *_pairs({})]
    return Engine(f"pyflink-{mode}", "flink", "apache-flink", frozenset({"count"}), command, 10.0, 10.0, told)


_ALL: Final = (
    _flink_engine(
        "flink",
        "datastream",
        {
            "lines",
            "events",
            "grep",
            "keyed",
            "keyed_coalesced",
            "window",
            "count",
            "ad_events",
            "ysb",
            "latency",
            "checkpoint",
            "recovery",
            "patterns",
            "ysb_kafka",
        },
        batch=[*_BATCH_JVM, *_pairs(_BATCH)],
    ),
    _flink_engine("flink-rocksdb", "datastream", {"keyed", "checkpoint"}, _ROCKSDB),
    _flink_engine("flink-bundled", "bundled", {"keyed_coalesced"}),
    _flink_engine("flink-sql", "sql", {"keyed_coalesced", "window", "match_recognize", "nexmark"}, _sql("TWO_PHASE")),
    _flink_engine("flink-sql-one-phase", "sql", {"keyed_coalesced", "window"}, _sql("ONE_PHASE")),
    _pyflink_engine("thread"),
    _pyflink_engine("process"),
    Engine("bytewax", "bytewax", "bytewax", frozenset({"events", "count"}), _bytewax, 3.0, 5.0),
)
ENGINES: Final[Mapping[str, Engine]] = {engine.name: engine for engine in _ALL}

"""The engines: how each is started, which programs it has, and how long it takes to get warm.

Every one is a command that gets a folder (see `perf/peers/task.py`), the parallelism and a file of counters. It prints
the digest of the job in `FOLDER/check`, then runs the one in `FOLDER/run` and counts its rows in the file until its
standard input ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from perf.peers.install import ENVIRONMENTS

HERE: Final = Path(__file__).resolve().parent
_JAVA_SOURCES: Final = HERE / "java" / "bench"
_PROGRAMS: Final = HERE / "programs"
_OPENED: Final = ("lang", "util", "time", "nio")
"""Packages of the JDK, below java, that Flink's serializers look into."""
_JVM: Final = (
    "-Xmx6g",
    "-XX:+UseParallelGC",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
)


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
    """

    name: str
    environment: str
    package: str
    programs: frozenset[str]
    command: Callable[[Path, int, Path], Command]
    warm_up: float
    seconds: float = 0.0

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
    """Flink's jars and our programs, which are compiled where they are newer than their classes.

    Raises:
        PeerError: Flink is not installed, or there is no Java compiler.
    """
    jars = _packages("flink") / "pyflink" / "lib"
    if not jars.is_dir():
        raise PeerError("flink is not installed in .venv-peers/flink: make bench-peers ARGS=flink")
    classes = ENVIRONMENTS / "flink" / "classes"
    sources = sorted(_JAVA_SOURCES.glob("*.java"))
    compiled = classes / "bench" / "Main.class"
    if not compiled.exists() or compiled.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", *map(str, sources)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise PeerError("flink: there is no javac on the path: install a JDK, 17 or newer") from None
        if done.returncode:
            raise PeerError(f"flink: javac refused perf/peers/java:\n{done.stderr}")
    return f"{classes}:{jars}/*"


def _flink(api: str, folder: Path, parallelism: int, counters: Path) -> Command:
    command = ["java", *_JVM, "-cp", classpath(), "bench.Main", api, str(folder), str(parallelism), str(counters)]
    return command, {}


def flink_startup(folder: Path, parallelism: int, counters: Path) -> Sequence[str]:
    """What measures how long a job of Flink's takes to its first row."""
    return ["java", *_JVM, "-cp", classpath(), "bench.Startup", str(folder), str(parallelism), str(counters)]


def _pyflink(mode: str, folder: Path, parallelism: int, counters: Path) -> Command:
    # PyFlink starts its JVM by itself: the first two are how it can be told of classes and options. The interpreter in
    # that JVM knows nothing of virtual environments.
    environment = {
        "HADOOP_CLASSPATH": classpath().partition(":")[0],
        "JVM_ARGS": " ".join(_JVM),
        "PYTHONPATH": str(_packages("flink")),
    }
    return _python("flink", "pyflink_count.py", mode, str(folder), str(parallelism), str(counters)), environment


def _bytewax(folder: Path, parallelism: int, counters: Path) -> Command:
    return _python("bytewax", "bytewax_count.py", str(folder), str(parallelism), str(counters)), {}


def _python(environment: str, program: str, *arguments: str) -> list[str]:
    return [str(ENVIRONMENTS / environment / "bin" / "python"), str(_PROGRAMS / program), *arguments]


def _packages(environment: str) -> Path:
    """The folder of packages; one that does not exist where nothing is installed."""
    found = sorted((ENVIRONMENTS / environment).glob("lib/python3.*/site-packages"))
    return found[-1] if found else ENVIRONMENTS / environment / "lib"


ENGINES: Final[Mapping[str, Engine]] = {
    "flink": Engine(
        "flink",
        "flink",
        "apache-flink",
        frozenset({"lines", "events", "grep", "keyed", "window", "count"}),
        partial(_flink, "datastream"),
        warm_up=8.0,
    ),
    "flink-sql": Engine(
        "flink-sql",
        "flink",
        "apache-flink",
        frozenset({"keyed_coalesced", "window"}),
        partial(_flink, "sql"),
        warm_up=8.0,
    ),
    "pyflink-thread": Engine(
        "pyflink-thread", "flink", "apache-flink", frozenset({"count"}), partial(_pyflink, "thread"), 10.0, 10.0
    ),
    "pyflink-process": Engine(
        "pyflink-process", "flink", "apache-flink", frozenset({"count"}), partial(_pyflink, "process"), 10.0, 10.0
    ),
    "bytewax": Engine("bytewax", "bytewax", "bytewax", frozenset({"events", "count"}), _bytewax, 3.0, 5.0),
}

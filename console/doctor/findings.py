"""What the doctor looks at: each check is a function that gives findings, and none of them changes anything.

The command prints them. A finding is a fact and, where something is wrong, the remedy; a check that cannot find out
says so.
"""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import penstock

_MB: Final = 1 << 20
_LITTLE_MEMORY_MB: Final = 2_000
_LITTLE_DISK_MB: Final = 1_000
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Ray keeps its objects
_FEW_FILES: Final = 1_024
_EXTRAS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "pandas": (("pandas",), "to_pandas(), DataFrames as sources"),
    "kafka": (("aiokafka",), "Kafka"),
    "postgres": (("psycopg",), "PostgreSQL"),
    "redis": (("redis",), "Redis"),
    "avro": (("fastavro",), "Avro files and records"),
    "protobuf": (("google.protobuf",), "Protobuf records"),
    "registry": (("confluent_kafka", "fastavro"), "schema registries"),
    "websocket": (("websockets",), "web sockets"),
    "delta": (("deltalake",), "Delta Lake"),
    "iceberg": (("pyiceberg",), "Iceberg"),
    "rocksdb": (("rocksdict", "msgpack"), "state on disk"),
    "ibis": (("ibis", "packaging"), "expressions of Ibis as tables"),
    "spark": (("pyspark", "raydp"), "batch mode on Spark"),
    "console": (("starlette", "uvicorn"), "the web console"),
}
_LIBRARIES: Final = ("ray", "pyarrow", "numpy", "numba", "narwhals", "obstore")
_PORTS: Final = ((6379, "the head of a Ray cluster"), (8365, "the web console"))


class Level(enum.Enum):
    """How much a finding matters."""

    GOOD = "ok"
    ABSENT = "-"
    """Not there, and only needed by those who want it."""
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact.

    Args:
        subject: what was looked at.
        level: how much it matters.
        fact: what was found.
        remedy: what to do about it; empty where nothing need be done.
    """

    subject: str
    level: Level
    fact: str
    remedy: str = ""


def examined() -> Iterator[Finding]:
    """All findings, in the order in which they are shown."""
    for check in CHECKS:
        yield from check()


def versions() -> Iterator[Finding]:
    """Python, Penstock and the libraries that it cannot do without."""
    yield Finding("penstock", Level.GOOD, f"{penstock.__version__}, in {Path(penstock.__file__).parent}")
    yield Finding("python", Level.GOOD, f"{platform.python_version()} ({sys.executable}), {platform.platform()}")
    for name in _LIBRARIES:
        version = _version(name)
        if version is None:
            yield Finding(name, Level.PROBLEM, "not installed", f"pip install {name}")
        else:
            yield Finding(name, Level.GOOD, version)


def extras() -> Iterator[Finding]:
    """The optional parts, by the name of the extra."""
    for extra, (modules, serves) in _EXTRAS.items():
        missing = [name for name in modules if not _is_there(name)]
        if missing:
            yield Finding(f"extra {extra}", Level.ABSENT, f"not installed ({serves})", _install(extra))
        else:
            yield Finding(f"extra {extra}", Level.GOOD, f"installed ({serves})")


def java() -> Iterator[Finding]:
    """Spark, and Kafka's test server, need Java 17."""
    needed = _is_there("pyspark")
    found = shutil.which("java")
    if found is None:
        level = Level.WARNING if needed else Level.ABSENT
        remedy = "install a Java 17 runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
        yield Finding("java", level, "not on the path; batch mode on Spark needs it", remedy)
        return
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("java", Level.WARNING, f"{found} does not answer: {error}", "see that it runs")
        return
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    major = 0 if version is None else int(version[2] or 0) if version[1] == "1" else int(version[1])
    if major >= 17:
        yield Finding("java", Level.GOOD, f"{major} ({found})")
    else:
        yield Finding("java", Level.WARNING, f"{major or 'unknown'} ({found})", "Spark and Kafka need Java 17 or newer")


def machine() -> Iterator[Finding]:
    """CPUs, memory, shared memory, disk, open files."""
    yield Finding("cpus", Level.GOOD, f"{len(os.sched_getaffinity(0))} usable, of {os.cpu_count()}")
    free = memory_mb(Path("/proc/meminfo"), Path("/sys/fs/cgroup"))
    yield _enough("memory", free, _LITTLE_MEMORY_MB, "each subtask takes 100 to 200 MB: lower the parallelism")
    if _SHARED_MEMORY.exists():
        shared = shutil.disk_usage(_SHARED_MEMORY).free // _MB
        yield _enough(str(_SHARED_MEMORY), shared, 512, "Ray keeps objects there: docker run --shm-size=2g")
    temporary = Path(tempfile.gettempdir())
    disk = shutil.disk_usage(temporary).free // _MB
    yield _enough(f"disk at {temporary}", disk, _LITTLE_DISK_MB, "free some, or set TMPDIR to another disk")
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    remedy = "" if files > _FEW_FILES else "a wide job opens thousands: ulimit -n 65536"
    yield Finding("open files", Level.WARNING if remedy else Level.GOOD, f"at most {files}", remedy)


def ports() -> Iterator[Finding]:
    """Who listens at the ports that are usual."""
    for port, use in _PORTS:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        fact = f"something listens ({use}, usually)" if taken else f"free ({use})"
        yield Finding(f"port {port}", Level.GOOD, fact)


def cluster() -> Iterator[Finding]:
    """Ray clusters of this machine, and where the environment points to."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        yield Finding("RAY_ADDRESS", Level.GOOD, address)
    if _version("ray") is None:
        return
    from penstock.actors.cluster import clusters_here

    here = clusters_here()
    if here.address is not None:
        yield Finding("ray cluster", Level.GOOD, f"one runs here, at {here.address}")
    for refused in here.refused:
        yield Finding("ray cluster", Level.WARNING, refused, "see docs/cli.md, Tokens")
    if here.address is None and not here.refused:
        remedy = "attached jobs start their own; for detached ones: ray start --head"
        yield Finding("ray cluster", Level.ABSENT, "none runs on this machine", remedy)


def token() -> Iterator[Finding]:
    """Whether the token of this user's Ray clusters is the user's own: who has it may run code."""
    if _version("ray") is None:
        return
    from penstock.actors.cluster_token import token_file

    try:
        file = token_file()
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, RuntimeError):
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        fact = f"{file} has mode {mode:04o}: who reads it may run code as you"
        yield Finding("ray token", Level.WARNING, fact, f"chmod 600 {shlex.quote(str(file))}")
    else:
        yield Finding("ray token", Level.GOOD, f"{file}, for its owner alone")


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (versions, extras, java, machine, ports, cluster, token)


def memory_mb(meminfo: Path, cgroup: Path) -> int | None:
    """Memory (MB) that this process can still have: of the machine, or of its container where that is less.

    Args:
        meminfo: as Linux shows it.
        cgroup: folder of the process's control group (version 2).
    """
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(encoding="ascii"), flags=re.MULTILINE)
    except OSError:
        return None
    free = None if found is None else int(found[1]) // 1024
    try:
        limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free
    if not limit.isdigit():
        return free
    of_group = max(0, int(limit) - used) // _MB
    return of_group if free is None else min(free, of_group)


def _enough(subject: str, found_mb: int | None, needed_mb: int, remedy: str) -> Finding:
    if found_mb is None:
        return Finding(subject, Level.WARNING, "unknown on this system")
    fact = f"{found_mb:,} MB free"
    return (
        Finding(subject, Level.GOOD, fact) if found_mb >= needed_mb else Finding(subject, Level.WARNING, fact, remedy)
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _install(extra: str) -> str:
    return f"pip install 'penstock[{extra}]'"

"""Fixtures for all tests: a Ray cluster and servers, one each a session, started when the first test asks for it."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import gc
import importlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from penstock.testing.services import S3, Kafka, Postgres, Redis, ServiceNotInstalledError

_Service = TypeVar("_Service", Kafka, Postgres, Redis, S3)

# A shell that runs the tests in the background makes them, and the programs that they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# What runs in Java here (Spark, Kafka) lives for minutes: to compile it well, and to collect its garbage by many
# threads, costs more than that saves; nor does the code that was installed need to be verified.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
# What tests write is read by them alone: in memory, where there is room, nobody waits for the disk. Ray keeps its logs
# on the disk.
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 4 * 1024**3
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
    os.environ.setdefault("RAY_TMPDIR", tempfile.gettempdir())
    tempfile.tempdir = os.environ["TMPDIR"] = f"{_MEMORY}/penstock-tests-{os.getuid()}"
    # PostgreSQL has a user of its own, who must come through it.
    os.makedirs(tempfile.tempdir, mode=0o711, exist_ok=True)
# The machine's speed decides nothing in property tests. Their examples are others in each run: `make test` draws a
# quarter of what is usual, `make test-all` twice as many (`--hypothesis-profile=long`).
settings.register_profile("penstock", deadline=None, max_examples=25)
settings.register_profile("long", deadline=None, max_examples=200)
settings.load_profile("penstock")
# As on Python 3.10, the oldest that is supported, the text of such a member is its name on each Python: what writes one
# into code, paths or messages as a number must say so.
enum.IntEnum.__str__ = enum.Enum.__str__  # type: ignore[method-assign]


# What one process runs, by the name of that share; the first that fits counts. They are begun in this order.
_SHARES = {
    # Spark, which takes long to start, and what runs a few jobs on the cluster that it needs.
    "tests/actors/spark/": "spark",
    "tests/console/test_jobs.py": "spark",
    "tests/console/test_web_commands.py": "spark",
    "tests/golden/": "spark",
    "tests/property/": "spark",
    "tests/test_batch_mode.py": "spark",
    "tests/transcripts/test_end_to_end.py": "spark",
    "tests/web/test_serve.py": "spark",
    # What kills processes of jobs: two of these tests at once would take each other's time.
    "tests/actors/": "cluster",
    "tests/chaos/": "cluster",
    # Those that need no more of the cluster than its list of processes, or one job.
    "tests/testing/chaos/test_faults.py": "cluster",
    "tests/web/test_slow_jobs.py": "cluster",
    # What needs servers, whose clients wait more than they work; each is started by this process only.
    "tests/connectors/files/test_object_storage.py": "servers",
    "tests/connectors/kafka/": "servers",
    "tests/connectors/lakes/test_delta.py": "servers",
    "tests/connectors/postgres/": "servers",
    "tests/connectors/redis/": "servers",
    "tests/connectors/test_secrets.py": "servers",
    "tests/docs/test_tutorial.py": "servers",
    "tests/examples/": "servers",
    "tests/perf/test_ysb_kafka.py": "servers",
    "tests/testing/chaos/test_kafka_feed.py": "servers",
    "tests/testing/services/": "servers",
    # Long ones, which must not be begun last: the other processes would wait for them in the end.
    "tests/simulation/test_seeds.py": "seeds",
    "tests/simulation/test_mutants.py": "mutants",
    "tests/web/test_browser.py": "browser",
    "tests/web/test_wide_jobs.py": "browser",
}
# The fixtures that start a cluster or a server.
_OF_SHARES = ("ray_cluster", "kafka", "postgres", "redis", "s3")
_ORDER = list(dict.fromkeys(_SHARES.values()))


def _share_of(nodeid: str) -> str:
    """The share of a test, else its file."""
    file = nodeid.split("::", 1)[0]
    return next((share for place, share in _SHARES.items() if file.startswith(place)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the shares."""
    place = {share: number for number, share in enumerate(_ORDER)}
    items.sort(key=lambda item: place.get(_share_of(item.nodeid), len(place)))


class _EndOfShares:
    """Ends the cluster and the servers of a share with its last test.

    Idle, a cluster takes 6 % of a core, and what is in no share takes longer than the shares.
    """

    def __init__(self) -> None:
        self._started: list[tuple[pytest.FixtureDef[Any], Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname in _OF_SHARES:
            self._started.append((fixturedef, request))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        try:
            yield
        finally:
            if nextitem is not None and _share_of(item.nodeid) != _share_of(nextitem.nodeid):
                while self._started:
                    fixture, request = self._started.pop()
                    fixture.finish(request)


def pytest_configure(config: pytest.Config) -> None:
    """Where a process runs all shares, a later one may need what runs: it stays to the end."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_EndOfShares())
    if config.getoption("--hypothesis-profile") is None:
        # Hypothesis draws one value of twenty from the constants of the code under test. To find these takes each
        # process up to six seconds in a new checkout; few of them come up in so few examples.
        providers._get_local_constants = providers.Constants


def _load_part(config: pytest.Config) -> None:
    """Load a part of the test files in each process, each another.

    Each collects all files, in the same order and at the same time: in a new checkout each would compile all of them.
    So it finds most of them compiled by the others. What cannot be loaded, the collection tells.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    files = sorted(file for place in config.args for file in Path(place).resolve().rglob("test_*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if file.is_relative_to(config.rootpath):
            name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Keep what is loaded from the garbage collector, which would look through all of it again and again.

    Ten thousand tests are millions of objects: to collect takes a second with them, the suites for connectors collect
    behind each crash, and pytest five times at the end.
    """
    gc.disable()
    try:
        _load_part(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each of the four processes of `make test` begins with a large share of the tests.

    Four, on the two cores that are thought of: with three, a quarter of these waits, for servers, for processes that
    start, for heartbeats. Two shares need Ray, and run on a cluster each; a third needs Kafka. All that is not in
    a share goes file by file to the process that is free.

    By names, since the process that shares out has nothing else; `--dist loadgroup` does not know pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _share_of(nodeid)

    return Shares(config, log)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster on this machine, shared by all tests of this process that run jobs on it.

    Its processes are forked, as those of a cluster that a program starts for itself; those of `ray start` are what
    `tests/actors/test_machines.py` has.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    import ray

    from penstock.actors.embedded_start import init_embedded

    with _alone():
        init_embedded(num_cpus=8, log_to_driver=False, logging_level=logging.ERROR, object_store_memory=1024**3)
    yield
    ray.shutdown()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other process of these tests starts its cluster now.

    The first cluster of a user makes the token of all: of two at once, one may keep a token that the other has written
    over, and then does not come up.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A Kafka broker, shared by all tests: name topics and groups so that nobody else has them, leave it running."""
    yield from _serve(Kafka)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, shared by all tests: name tables so that nobody else has them."""
    yield from _serve(Postgres)


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """A Redis server, shared by all tests: name keys so that nobody else has them."""
    yield from _serve(Redis)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server, shared by all tests: each makes its own buckets. `s3.environment` is what clients need."""
    yield from _serve(S3)


def _serve(service: Callable[[], _Service]) -> Iterator[_Service]:
    try:
        running = service()
        running.start()
    except ServiceNotInstalledError as error:
        pytest.skip(f"NOT TESTED, A SERVER IS MISSING: {error}")
    yield running
    running.stop()


@pytest.fixture
def as_a_process_of_its_own() -> Iterator[None]:
    """Without the handler that Ray has left for SIGTERM where this process has run it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)

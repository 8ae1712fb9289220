"""Runs a peer beside this process: its answer is checked, then the rows it takes are sampled, as ours are.

Called by the harness for each B of its A B A B.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from perf.peers.digest import Digest, is_digest
from perf.peers.engines import Command, Engine, PeerError, flink_startup, flink_views
from perf.peers.task import PeerTask
from perf.processes import ProcessTree, Sample, crossed

SLOTS: Final = 64
_SLOT_WORDS: Final = 8
"""A counter has a cache line for itself."""
_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 10.0
_CHECK_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Timing:
    """When to measure, in seconds.

    Args:
        warm_up: how long not, from the first rows on.
        seconds: how long then, at the least.
        whole: a measurement begins and ends where a row comes whose number is a multiple of this.
        every: how often to look at the memory.
        patience: how long rows may take to come.
    """

    warm_up: float
    seconds: float
    whole: int = 1
    every: float = 2.0
    patience: float = 120.0


def measure(peer: Engine, task: PeerTask, parallelism: int, timing: Timing) -> list[Sample]:
    """Start the peer, check its answer, and sample its rows and cost; the peer is ended then.

    Raises:
        PeerError: it cannot be started, ends by itself, or gives no rows.
        ValueError: its answer is wrong.
    """
    with _answered(peer, task, parallelism) as run:
        return run.samples(timing)


def measure_to_the_end(peer: Engine, task: PeerTask, parallelism: int, timing: Timing) -> tuple[list[Sample], str]:
    """As `measure`, of a job that ends by itself behind that; and what it has printed.

    Raises:
        PeerError: as for `measure`, or the job does not end.
        ValueError: its answer is wrong.
    """
    with _answered(peer, task, parallelism) as run:
        return run.samples(timing), run.last_words()


def printed_by(peer: Engine, task: PeerTask, parallelism: int, patience: float) -> str:
    """What a peer that measures by itself has printed, once it has ended, within so many seconds.

    Raises:
        PeerError: it cannot be started, or does not end.
        ValueError: its answer is wrong.
    """
    with _answered(peer, task, parallelism) as run:
        return run.last_words(patience)


@contextmanager
def _answered(peer: Engine, task: PeerTask, parallelism: int) -> Iterator[PeerRun]:
    """The peer at work, its answer checked."""
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as name:
        folder = Path(name)
        task.write(folder)
        counters = _counters(folder)
        with _started(peer.command(folder, parallelism, counters), folder) as process:
            run = PeerRun(peer.name, process, folder, ProcessTree(process.pid))
            if task.expected is not None:
                check_answer(peer.name, task.program, run.digest(), task.expected())
            yield run


@contextmanager
def flink_views_run(folder: Path, parallelism: int) -> Iterator[PeerRun]:
    """Flink at the work in `FOLDER/run`; what all processes cost counts that this one has started.

    Raises:
        PeerError: it cannot be started.
    """
    with _started((flink_views(folder / "run", parallelism, _counters(folder)), {}), folder) as process:
        yield PeerRun("flink", process, folder, ProcessTree())


def first_output_seconds(task: PeerTask, parallelism: int) -> float:
    """Seconds from submitting a job to Flink to its first row in the sink, on a cluster that has run it once before.

    Raises:
        PeerError: it cannot be started, or ended with an error.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as name:
        folder = Path(name)
        task.write(folder)
        return seconds_of(flink_startup(folder / "run", parallelism, _counters(folder)))


def seconds_of(command: Sequence[str], patience: float = _CHECK_SECONDS) -> float:
    """What a command of a peer has measured by itself, within so many seconds.

    Raises:
        PeerError: it cannot be started, or has given no time.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except FileNotFoundError:
        raise _is_missing(command[0]) from None
    except subprocess.TimeoutExpired:
        raise PeerError(f"{command[0]} has given no time within {patience:g} s") from None
    return seconds_in(done.stdout, done.stderr)


def seconds_in(output: str, errors: str = "") -> float:
    """What a peer has measured by itself, from its line "seconds N".

    Raises:
        PeerError: there is no such line; the message has the end of `errors`.
    """
    found = [line.removeprefix("seconds ") for line in output.splitlines() if line.startswith("seconds ")]
    if not found:
        raise PeerError(f"flink has given no time:\n{errors[-2000:]}")
    return float(found[0])


def latency_in(output: str) -> tuple[int, dict[str, float | None]]:
    """How many rows a peer has timed, and their quantiles in milliseconds, from its line "latency ROWS P50 P99 P99.9".

    Raises:
        PeerError: there is no such line.
    """
    found = [line.split()[1:] for line in output.splitlines() if line.startswith("latency ")]
    if not found:
        raise PeerError("flink has given no latency")
    rows, *quantiles = found[-1]
    return int(rows), dict(zip(("p50", "p99", "p99.9"), map(float, quantiles), strict=True))


def check_answer(peer: str, program: str, got: Digest, expected: Digest) -> None:
    """Compare a peer's answer with the right one.

    Raises:
        ValueError: they differ.
    """
    if got != expected:
        what = "others than these" if got.rows == expected.rows else f"not {expected.rows}"
        raise ValueError(
            f"{peer}, {program}: its output is wrong ({got.rows} rows, {what}), so its time does not count"
        )


class PeerRun:
    """A peer at work; `tree` are the processes whose cost counts."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], folder: Path, tree: ProcessTree) -> None:
        self._name = name
        self._process = process
        self._slots = np.memmap(folder / "counters", np.int64, "r")
        self._output, self._log = folder / "output", folder / "log"
        self._tree = tree

    def digest(self) -> Digest:
        """The digest, once the peer has printed it."""
        deadline = time.monotonic() + _CHECK_SECONDS
        while time.monotonic() < deadline:
            lines = self._output.read_text(errors="replace").splitlines(keepends=True)
            found = [line for line in lines if is_digest(line)]
            if found and found[0].endswith("\n"):
                # From here on, what is in the counters belongs to the job that is measured.
                return Digest.parse(found[0])
            self._wait(_POLL_SECONDS, "before its answer")
        raise PeerError(f"{self._name} has no answer after {_CHECK_SECONDS:.0f} s{self._news()}")

    def samples(self, timing: Timing) -> list[Sample]:
        self._wait_for_whole(1, timing)
        self._wait(timing.warm_up)
        self._wait_for_whole(timing.whole, timing)
        samples = [self.sample()]
        end = time.monotonic() + timing.seconds
        while (left := end - time.monotonic()) > 0:
            self._wait(min(left, timing.every))
            samples.append(self.sample())
        self._wait_for_whole(timing.whole, timing)
        return [*samples, self.sample()]

    def goes_on(self, seconds: float) -> bool:
        """Let it work for so many seconds; whether it still does then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def last_words(self, patience: float = _CHECK_SECONDS) -> str:
        """What it has printed, once it has ended.

        Raises:
            PeerError: it still runs, or ended with an error.
        """
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{self._name} has not ended after {patience:g} s{self._news()}") from None
        if code:
            raise PeerError(f"{self._name} ended with {code}{self._news()}")
        return self._output.read_text(errors="replace")

    def _wait_for_whole(self, whole: int, timing: Timing) -> None:
        before, deadline = self._rows(), time.monotonic() + timing.patience
        while not crossed(before, self._rows(), whole):
            self._wait(_POLL_SECONDS)
            if time.monotonic() > deadline:
                raise PeerError(
                    f"{self._name} stands still: {self._rows() - before} rows in {timing.patience:.0f} s{self._news()}"
                )

    def sample(self) -> Sample:
        at, rows = time.monotonic(), self._rows()
        return Sample(at, rows, self._tree.cpu_seconds(), self._tree.memory_mb())

    def _rows(self) -> int:
        return int(self._slots[::_SLOT_WORDS].sum())

    def _wait(self, seconds: float, when: str = "while it was measured") -> None:
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise PeerError(f"{self._name} ended {when}, with {code}{self._news()}")

    def _news(self) -> str:
        """The end of what it has written to standard error, and the causes that Java tells before a long trace."""
        written = self._log.read_text(errors="replace").splitlines()
        causes = [line for line in written[:-20] if line.startswith(("Caused by", "Exception in"))]
        lines = [*causes[-5:], *written[-20:]]
        return ":\n" + "\n".join(lines) if lines else ", and said nothing"


@contextmanager
def _started(command: Command, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a peer, which has ended when this context does, its descendants too."""
    with (folder / "output").open("wb") as output, (folder / "log").open("wb") as log:
        arguments, variables = command
        process = _start(arguments, {**os.environ, **variables}, output, log)
        try:
            yield process
        finally:
            # The session is its own: what it has started ends with it, also where it has ended already.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=_END_SECONDS)


def _counters(folder: Path) -> Path:
    """A file of counters, all 0."""
    counters = folder / "counters"
    counters.write_bytes(bytes(SLOTS * _SLOT_WORDS * 8))
    return counters


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], output: BinaryIO, log: BinaryIO
) -> subprocess.Popen[bytes]:
    """The process, whose standard input ends with this one.

    Raises:
        PeerError: there is no such program.
    """
    try:
        return subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=output, stderr=log, env=environment, start_new_session=True
        )
    except FileNotFoundError:
        raise _is_missing(arguments[0]) from None


def _is_missing(program: str) -> PeerError:
    remedy = "a JDK, 17 or newer" if program == "java" else "it"
    return PeerError(f"there is no {program} on the path: install {remedy}")

"""What jobs do for a million rows, counted and not timed: calls, messages, bytes, allocations, beside recorded budgets.

A machine that others use too cannot time a change of 5 %, but it can count: the reference jobs run in this process with
a seeded scheduler and a clock that stands still, so a count is the same each time. `tests/perf/test_counts.py` compares
them with `perf/budgets.json`; `python -m perf.counts` shows them, `--record` writes the budgets anew. Nothing in the
product knows of it: calls are seen by Python's profile hook, allocations by Arrow's own statistics.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pyarrow as pa

from penstock import DataGenSource, DataStream, StreamEnvironment, WatermarkStrategy, col, count, tumbling
from penstock import Sequence as Ascending
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from penstock.actors.channels import Answered, SendingEnd
from penstock.engine.clock import ManualClock
from penstock.engine.config import DEFAULTS
from penstock.engine.elements import Batch
from penstock.engine.exchange.outputs import Message
from penstock.engine.state.keys.index import load_beside
from penstock.engine.state.keys.loading import LOADING_THREAD
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Task
from perf.generators import LINE_PATTERN, Pool, log_lines, uniform_keys, values
from perf.harness import CountingSink
from perf.window import Events

BUDGETS: Final = Path(__file__).with_name("budgets.json")
MOST_GROWTH: Final = 0.01
"""A count may grow by so much: other versions of Python, NumPy and Arrow make a few calls and buffers more or less. One
call more for each batch passes, which nobody would feel; a column of eight bytes that is copied once more is 7 %."""
MOST_FALL: Final = 0.1
"""A count that falls by more is to be recorded, or the budget would allow for its return."""
_MILLION: Final = 1_000_000
_WARM_UP_ROWS: Final = 2**17
_INLINED: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Frames that Python 3.12 has no more (PEP 709)."""
_RECORD: Final = "python -m perf.counts --record"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a job does for a million rows of its input.

    Args:
        messages: sent between subtasks.
        message_bytes: of their rows, without what Arrow and pickle add.
        pickled_bytes: of the messages as an actor's call would carry them.
        steps: of the tasks.
        calls: of Python functions of Penstock within the steps; a generator counts each time that it is resumed.
        built_in_calls: of functions in C (Python's own, NumPy's) by those functions.
        allocations: of memory by Arrow, sending included.
        allocated_bytes: by them.
    """

    messages: int
    message_bytes: int
    pickled_bytes: int
    steps: int
    calls: int
    built_in_calls: int
    allocations: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in one run of a job, or for a million rows: the sums, and the calls of each function."""

    counts: Counts
    functions: Counter[str]

    def of_a_million(self, before: Counted, rows: int) -> Counted:
        """For a million rows, given the counts of a run that had `rows` less."""

        def share(more: int, less: int) -> int:
            return round((more - less) * _MILLION / rows)

        counts = {name: share(total, getattr(before.counts, name)) for name, total in asdict(self.counts).items()}
        functions = {name: share(times, before.functions[name]) for name, times in self.functions.items()}
        return Counted(Counts(**counts), Counter({name: times for name, times in functions.items() if times}))


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """A job whose counts are kept.

    Args:
        stream: builds it for a number of rows.
        rows: how many of them are counted, behind as many that are not.
        batch_rows: the most rows of a batch.
    """

    stream: Callable[[StreamEnvironment, int], DataStream]
    rows: int
    batch_rows: int = DEFAULTS.max_batch_rows


def count_job(job: ReferenceJob) -> Counted:
    """Count what the later half of a job's rows cost, on 2 x 2 subtasks: what is done once is left out."""
    threads = pa.cpu_count()
    # Arrow's kernels allocate more or less as their threads find work.
    pa.set_cpu_count(1)
    try:
        # What is compiled and imported for the first rows of this process must not be in either.
        _run(job, min(job.rows, _WARM_UP_ROWS))
        _await_loading()
        half = _count_run(job, job.rows)
        return _count_run(job, 2 * job.rows).of_a_million(half, job.rows)
    finally:
        pa.set_cpu_count(threads)


def _await_loading() -> None:
    """Have there what jobs of many rows load beside themselves: one that is counted would turn to it at any row."""
    load_beside()
    for thread in threading.enumerate():
        if thread.name == LOADING_THREAD:
            thread.join()


def _count_run(job: ReferenceJob, rows: int) -> Counted:
    seen = _Seen()
    allocations, allocated = _allocated()
    with _profiled(seen):
        _run(job, rows)
    pickled = sum(map(_pickled_bytes, seen.messages))
    allocations_then, allocated_then = _allocated()
    batches = [element for message in seen.messages for element in message if isinstance(element, Batch)]
    counts = Counts(
        messages=len(seen.messages),
        message_bytes=sum(batch.nbytes for batch in batches),
        pickled_bytes=pickled,
        steps=seen.steps,
        calls=sum(seen.functions.values()),
        built_in_calls=seen.built_in_calls,
        allocations=allocations_then - allocations,
        allocated_bytes=allocated_then - allocated,
    )
    return Counted(counts, seen.functions)


def _allocated() -> tuple[int, int]:
    """How often Arrow has allocated memory, and how many bytes: in all pools, as kernels and Python may use others."""
    pools = [getattr(pa, f"{name}_memory_pool")() for name in pa.supported_memory_backends()]
    return sum(pool.num_allocations() for pool in pools), sum(pool.total_bytes_allocated() for pool in pools)


def complaints(name: str, counted: Counted, budget: Counts) -> list[str]:
    """What is wrong with the counts of a job, and what to do; empty where they are within the budget."""
    found = []
    for what, allowed in asdict(budget).items():
        is_now = getattr(counted.counts, what)
        change = f"from {allowed:,} to {is_now:,}{_share(is_now, allowed)}"
        if is_now > allowed * (1 + MOST_GROWTH):
            found.append(
                f"{name}: {what} for a million rows grew {change}: find what does more for each batch or row; "
                f"if it must be so, {_RECORD}, and say why in the commit"
            )
        elif is_now < allowed * (1 - MOST_FALL):
            found.append(f"{name}: {what} for a million rows fell {change}: keep it so by {_RECORD}")
    if any("calls" in complaint for complaint in found):
        busiest = ", ".join(f"{function} {times:,}" for function, times in counted.functions.most_common(8))
        found.append(f"{name}: called most, for a million rows: {busiest}; all of them: python -m perf.counts --calls")
    return found


def _share(now: int, before: int) -> str:
    return f" ({now / before - 1:+.1%})" if before else ""


def read_budgets() -> Mapping[str, Counts]:
    """The recorded counts of each job."""
    return {name: Counts(**counts) for name, counts in json.loads(BUDGETS.read_text()).items()}


# Counting


class _Seen:
    """What the profile hook has seen."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.functions: Counter[str] = Counter()
        self.steps = 0
        self.built_in_calls = 0


@contextmanager
def _profiled(seen: _Seen) -> Iterator[None]:
    """Count what is called within steps of tasks: not what the runtime in this process does around them."""
    step, put = Task.step.__code__, InputGate.put.__code__
    names: dict[CodeType, str | None] = {}
    within = False

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal within
        code = frame.f_code
        if code is step:
            within = event != "return"
            seen.steps += event == "call"
        if not within:
            return
        name = names.get(code, "")
        if name == "":
            name = names[code] = _name(frame)
        if name is None:
            return
        if event == "c_call":
            seen.built_in_calls += 1
        elif event == "call" and code.co_name not in _INLINED:
            seen.functions[name] += 1
            if code is put:
                seen.messages.append(frame.f_locals["message"])

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(before)


def _name(frame: FrameType) -> str | None:
    """Of a function of ours that a subtask would run on a cluster as well; None for any other."""
    module = str(frame.f_globals.get("__name__", ""))
    if not module.startswith("penstock.") or module.startswith("penstock.engine.local.runtime"):
        return None
    return f"{module.removeprefix('penstock.')}.{frame.f_code.co_name}"


def _pickled_bytes(message: Message) -> int:
    """What an actor's call would carry, and all that is copied for it."""
    sizes: list[int] = []

    def push(sequence: int, sent: Message, answered: Answered) -> None:
        sizes.append(len(pickle.dumps(sent, 5)))

    SendingEnd(push, 1, lambda: None, lambda error: None).send(message)
    return sizes[0]


# The jobs


def _run(job: ReferenceJob, rows: int) -> None:
    env = StreamEnvironment(parallelism=2, runtime="local", clock=ManualClock(), seed=7, max_batch_rows=job.batch_rows)
    job.stream(env, rows).sink_to(CountingSink())
    env.submit("count").wait()


def _grep(env: StreamEnvironment, rows: int) -> DataStream:
    source = DataGenSource({"line": Pool(log_lines)}, rows=rows)
    return env.from_source(source).filter(col("line").str.contains(LINE_PATTERN))


def _keyed(keys: int, env: StreamEnvironment, rows: int) -> DataStream:
    columns = {"key": Pool(partial(uniform_keys, keys)), "ts": Ascending(), "v": Pool(values)}
    return env.from_source(DataGenSource(columns, rows=rows)).key_by("key").aggregate(total=sum_of("v"))


def _tumbling(env: StreamEnvironment, rows: int) -> DataStream:
    events = env.from_source(DataGenSource(Events().columns(), rows=rows))
    timed = events.assign_timestamps("ts", WatermarkStrategy.for_bounded_out_of_orderness("4s"))
    windows = timed.key_by("key").window(tumbling("10s"))
    return windows.aggregate(n=count(), total=sum_of("v"), low=min_of("v"), high=max_of("v"))


JOBS: Final[Mapping[str, ReferenceJob]] = {
    "grep": ReferenceJob(_grep, 2**18),
    # Of so many keys a batch has too few rows each to merge them before they travel: each row does.
    "keyed": ReferenceJob(partial(_keyed, 100_000), 2**20),
    "keyed merged": ReferenceJob(partial(_keyed, 1_000), 2**20),
    # As where little comes: each row is a batch.
    "keyed one by one": ReferenceJob(partial(_keyed, 1_000), 2**9, 1),
    "window": ReferenceJob(_tumbling, 2**20),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the counts of all jobs beside their budgets; exits with 1 where one is outside."""
    parser = argparse.ArgumentParser(prog="python -m perf.counts", description="Count what the reference jobs do.")
    parser.add_argument("--record", action="store_true", help=f"write {BUDGETS.name} anew")
    parser.add_argument("--calls", action="store_true", help="show all functions that are called")
    given = parser.parse_args(arguments)
    counted = {name: count_job(job) for name, job in JOBS.items()}
    if given.record:
        BUDGETS.write_text(json.dumps({name: asdict(one.counts) for name, one in counted.items()}, indent=1) + "\n")
    budgets = read_budgets()
    for name, one in counted.items():
        print(f"{name}, for a million rows:")
        for what, allowed in asdict(budgets[name]).items():
            print(f"  {what:16} {getattr(one.counts, what):>15,} of {allowed:,}")
        for function, times in one.functions.most_common() if given.calls else ():
            print(f"    {times:>10,} {function}")
    found = [line for name, one in counted.items() for line in complaints(name, one, budgets[name])]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""A running count per key in PyFlink: `pyflink_count.py thread|process FOLDER PARALLELISM COUNTERS SETTING=VALUE...`.

Source and sink are those of the Java programs, so that Python does what is measured and no more: taking the key, and
counting.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counters import Counters, Job, end_with_standard_input
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink, Source
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

EVERY = 256
"""Rows between two notes of how far a subtask is."""


class CountRows(KeyedProcessFunction):
    """The running count, row by row, and how many rows this subtask has taken."""

    def __init__(self, counters: str) -> None:
        self._file = counters

    def open(self, context: RuntimeContext) -> None:
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._counters = Counters(self._file)
        self._subtask = subtask_of(context)
        self._rows = 0

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        n = (self._count.value() or 0) + 1
        self._count.update(n)
        self._rows += 1
        if self._rows % EVERY == 0:
            self._counters.set(self._subtask, self._rows)
        yield value[0], n


def subtask_of(context: RuntimeContext) -> int:
    """The number of the subtask.

    In thread mode PyFlink 2.3 asks Flink by a method that Flink 2 has no longer, so it is asked by the new one here.
    """
    try:
        return context.get_index_of_this_subtask()
    except AttributeError:
        return context._runtime_context.getTaskInfo().getIndexOfThisSubtask()


def run(mode: str, folder: Path, parallelism: int, counters: str, check: bool) -> None:
    """Run the job in the folder to its end."""
    configuration = Configuration()
    for setting in sys.argv[5:]:
        configuration.set_string(*setting.split("=", 1))
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("python.fn-execution.bundle.size", "10000")
    configuration.set_string("python.state.cache-size", "10000")
    configuration.set_string("pipeline.object-reuse", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    env.add_python_file(str(Path(__file__).with_name("counters.py")))
    bench = get_gateway().jvm.bench
    job = bench.Job(str(folder))
    rows = bench.PoolSource(bench.Events(job), job.rows(), parallelism, counters + "-source")
    three = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])
    stream = env.from_source(Source(rows), WatermarkStrategy.no_watermarks(), "rows", three)
    counted = stream.key_by(lambda row: row[0], Types.LONG()).process(
        CountRows(counters), Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    counted.sink_to(Sink(bench.Python.checkedPairs() if check else bench.Python.droppedPairs()))
    env.execute(Job(str(folder)).program)


def main() -> None:
    mode, folder, parallelism, counters = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    end_with_standard_input()
    # What the source has given may still wait for Python: it is counted in a file that nobody reads.
    Path(counters + "-source").write_bytes(bytes(Path(counters).stat().st_size))
    if (folder / "check").exists():
        run(mode, folder / "check", parallelism, counters, True)
        print(get_gateway().jvm.bench.Digest.line(), flush=True)
        notes = Counters(counters)
        for subtask in range(parallelism):
            notes.set(subtask, 0)
    run(mode, folder / "run", parallelism, counters, False)


if __name__ == "__main__":
    main()

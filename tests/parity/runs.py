"""Runs random programs, several in one job, and says what they gave otherwise than plain Python does."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, cast

from penstock import SparkOptions, StreamEnvironment
from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.hand_over import HandOver, Suspension
from penstock.actors.spark.terminals import commit, terminals
from tests.actors.spark.simulated import Gathered, run_job
from tests.parity.programs import Program, random_program
from tests.parity.rows import Rows

Mode = Literal["local", "parcels", "handed over", "ray", "spark"]
MODES: Final[tuple[Mode, ...]] = ("local", "parcels", "handed over", "ray", "spark")
"""Streaming mode in this process; batch mode without Spark; first rows in batch mode without Spark, others in streaming
mode; streaming mode on Ray; batch mode on Spark."""
OPTIONS: Final = SparkOptions(executors=1, cores=2, memory="512m")
_SHOWN: Final = 6


@dataclass(frozen=True)
class Mismatch:
    """What went wrong: an error, or rows that are others than those of plain Python.

    Args:
        seed: of the program.
        mode: where.
        text: what.
    """

    seed: int
    mode: Mode
    text: str

    def __str__(self) -> str:
        return (
            f"{random_program(self.seed)}\n  {self.mode}: {self.text}\n"
            f"  run it again: python -m tests.parity --seed {self.seed} --mode {self.mode}"
        )


def environment(mode: Mode, seed: int) -> StreamEnvironment:
    """Where jobs of this mode run; batches and credits go by the seed."""
    random = Random(seed)
    rows = random.choice([1, 3, 1000])
    if mode in ("local", "parcels"):
        parallelism = random.randint(1, 3)
        return StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=rows, seed=seed)
    # A subtask is a process on Ray, and takes a second.
    parallelism = random.randint(1, 2) if mode == "ray" else 2
    return StreamEnvironment(parallelism=parallelism, max_batch_rows=rows, spark=OPTIONS)


def mismatches(seeds: Sequence[int], mode: Mode, folder: Path) -> list[Mismatch]:
    """Run the programs of these seeds in one job; where that fails, each alone.

    Args:
        seeds: of the programs.
        mode: where they run.
        folder: a new one, for their files.
    """
    programs = [random_program(seed) for seed in seeds]
    try:
        given = _given(programs, mode, folder)
    except Exception as error:
        if len(seeds) == 1:
            return [Mismatch(seeds[0], mode, f"{type(error).__name__}: {error}")]
        alone = [mismatches([seed], mode, folder / f"alone-{seed}") for seed in seeds]
        found = [mismatch for one in alone for mismatch in one]
        return found or [Mismatch(seeds[0], mode, f"with {seeds[1:]} in one job: {type(error).__name__}: {error}")]
    return [
        Mismatch(program.seed, mode, _difference(program, given[program.seed]))
        for program in programs
        if given[program.seed] != program.expected
    ]


def _given(programs: Sequence[Program], mode: Mode, folder: Path) -> Mapping[int, list[list[str]]]:
    """What each program gave, by seed."""
    env = environment(mode, programs[0].seed)
    if mode == "handed over":
        return {one.seed: one.given(_handed_over(one, folder / str(one.seed)), has_updates=True) for one in programs}
    reads = {program.seed: program.build(env, folder / str(program.seed)) for program in programs}
    if mode == "parcels":
        run_by_parcels(env)
    else:
        env.execute("parity", mode="batch" if mode == "spark" else "streaming")
    has_updates = mode in ("local", "ray")
    return {one.seed: one.given([list(read()) for read in reads[one.seed]], has_updates) for one in programs}


def run_by_parcels(env: StreamEnvironment, savepoint: str | None = None) -> None:
    """Run the environment's program as a batch job without Spark, in this process; its results can be taken then.

    Args:
        env: has the program.
        savepoint: URL of a new folder, for the savepoint to end with.
    """
    graph = env.program("parity").physical()
    handles = Gathered()
    over = None if savepoint is None else HandOver.begun(savepoint, "parity", graph)
    graph.prepare_sinks()
    results = run_job(graph, EndOfTime() if over is None else Suspension(over.url, "parity", cast(Any, handles)))
    if over is not None:
        over.check(graph, handles.value)
    commit(terminals(with_final_updates(graph)).pending, results)
    if over is not None:
        over.complete(graph, handles.value)
    for number, consumer in env._program.consumers.items():
        for batch in results.get(number, ()):
            consumer.accept(batch)


def _handed_over(program: Program, folder: Path) -> list[Rows]:
    """What each end gives of the first rows in batch mode, and then of the others live; parallelism may change."""
    history, live = environment("parcels", program.seed), environment("local", program.seed + 1)
    before = program.build(history, folder / "history", "history")
    after = program.build(live, folder / "live", "live")
    savepoint = (folder / "savepoint").as_uri()
    run_by_parcels(history, savepoint)
    live.execute("live", savepoint=savepoint)
    return [[*one(), *other()] for one, other in zip(before, after, strict=True)]


def _difference(program: Program, given: list[list[str]]) -> str:
    lines = []
    for (end, read), wanted, got in zip(program.ends, program.expected, given, strict=True):
        changed = list(difflib.unified_diff(wanted, got, "plain Python", "here", n=0, lineterm=""))[2:]
        if changed:
            lines += [f"end {end.text} <- {read}: {len(wanted)} rows expected, {len(got)} given", *changed[:_SHOWN]]
    return "\n    ".join(lines)

"""What must run with the dependencies of a bare `pip install` alone: run by test_bare.py, as a process of its own.

The modules whose names are its arguments cannot be imported.
"""

from __future__ import annotations

import importlib.abc
import sys
import tempfile
from pathlib import Path


class Missing(importlib.abc.MetaPathFinder):
    """As if these modules were not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())

import pyarrow as pa  # noqa: E402 - only now nothing of what is missing can come with it

import penstock as ps  # noqa: E402
from penstock import savepoints  # noqa: E402
from penstock.recovery import checkpoints  # noqa: E402

ROWS = [{"k": f"k{n % 3}", "n": n, "x": n / 2, "at": 100 * n} for n in range(100)]
AGGREGATES = {
    "c": ps.count(),
    "s": ps.sum("n"),
    "lo": ps.min("x"),
    "hi": ps.max("at"),
    "m": ps.mean("n"),
    "d": ps.stddev("x"),
    "u": ps.count_distinct("n"),
}


def environment(folder: Path, **settings: object) -> ps.StreamEnvironment:
    return ps.StreamEnvironment(
        runtime="local",
        parallelism=2,
        max_batch_rows=7,
        checkpoints=checkpoints("1s", str(folder / "checkpoints"), savepoints=str(folder / "savepoints")),
        **settings,  # type: ignore[arg-type]
    )


def aggregates(folder: Path) -> None:
    """Running and windowed ones, over keys of several types."""
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    for key in ("k", "n", "at"):
        env = environment(folder)
        assert env.from_collection(ROWS).key_by(key).aggregate(**AGGREGATES).collect().to_arrow().num_rows
        env = environment(folder)
        timed = env.from_collection(ROWS).assign_timestamps(in_order)
        windowed = timed.key_by(key).window(ps.tumbling("1s")).aggregate(**AGGREGATES).collect().to_arrow()
        assert sum(windowed["c"].to_pylist()) == len(ROWS)


def files(folder: Path) -> None:
    """Written, read again, joined with rows that are here."""
    for kind in ("parquet", "csv", "json"):
        env = environment(folder)
        env.from_collection(ROWS).sink_to(ps.FileSink(folder / kind, kind))
        env.execute(f"write {kind}")
        env = environment(folder)
        assert env.from_files(str(folder / kind), kind).collect().to_arrow().num_rows == len(ROWS)


def saved(folder: Path) -> None:
    """A savepoint of aggregates, which is read."""
    env = environment(folder)
    numbers = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rows=None)).uid("numbers")
    numbers.key_by("n").aggregate(c=ps.count()).uid("counts").sink_to(ps.FileSink(folder / "counts", "parquet")).uid(
        "f"
    )
    job = env.submit("saved")
    while not all(operator.rows_in for operator in job.metrics().operators[1:]) and job.pump(0.1):
        pass
    url = job.stop()
    assert isinstance(savepoints.read(url).operator("counts").states[0].to_arrow(), pa.Table)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for part in (aggregates, files, saved):
            part(Path(made) / part.__name__)

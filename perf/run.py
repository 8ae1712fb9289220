"""Runs benchmarks: `python perf/run.py NAME...`; see perf/README.md.

Called by people and by `make bench`. Prints a table, or with `--json` one object a variant on a line of its own; exits
with 1 where an output was wrong or a job did not run, with 2 where an argument is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

ROOT: Final = Path(__file__).resolve().parents[1]
BATCH: Final = ("batch_window", "hash_join", "terasort")
"""Whole jobs from files to files."""

PROGRAMS: Final = (
    "grep", "keyed", "window", "wide", "patterns", "match_recognize", "ysb", "process", "latency", "startup",
    "checkpoint", "recovery",
    "rescale", "ysb_kafka", "end_to_end", *BATCH, "coordinator", "nexmark",
    "lookups", "watched", "trickle", "sine",
)  # fmt: skip

COMPARED: Final = (
    "grep", "keyed", "window", "wide", "patterns", "match_recognize", "ysb", "process", "latency", "checkpoint",
    "recovery", "startup", "nexmark", "ysb_kafka",
    *BATCH,
)  # fmt: skip
"""Those of which a peer has a program."""

if __name__ == "__main__":
    # The programs are the package `perf` here and in Ray's workers, wherever the checkout is and however installed.
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Where Python may not keep what it has compiled, each process of a job compiles everything, for seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

if TYPE_CHECKING:
    from perf.harness import Options, Reading, Result
    from perf.peers.engines import Engine


def main(arguments: Sequence[str] | None = None, results_to: TextIO | None = None) -> int:
    """Run the benchmarks that the command line names.

    Args:
        arguments: None: those of the process.
        results_to: where results are printed; None: standard output.
    """
    from rich.console import Console

    from perf.harness import BenchmarkError
    from perf.processes import machine

    parser = _parser()
    given = parser.parse_args(arguments)
    alone = [name for name in given.names if name not in COMPARED]
    if given.peer is not None and alone:
        parser.error(f"{', '.join(alone)} cannot be measured beside a peer, only {', '.join(COMPARED)} can")
    console, notes = Console(file=results_to), Console(stderr=True)
    for name in given.names:
        results, here = [], {**machine(), **_peer_settings(name, given.peer)}
        try:
            for result in _results(name, given):
                results.append(result)
                if given.json:
                    print(json.dumps(result.line(here)), file=results_to, flush=True)
                else:
                    notes.print(f"{name}: {result.variant} done")
        except BenchmarkError as error:
            notes.print(f"{name}: {error}", style="red", markup=False)
            return 1
        if not results:
            notes.print(f"{name}: no variant's name contains {given.variant!r}", style="red", markup=False)
            return 2
        if not given.json:
            console.print(_table(name, results))
            for line in _details(results):
                console.print(line, highlight=False, markup=False)
        if given.save:
            notes.print(f"{name}: raw results in {_save(name, results, here, given)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    from penstock.engine.config import DEFAULTS
    from perf.peers.engines import ENGINES

    parser = argparse.ArgumentParser(prog="perf/run.py", description="Measure Penstock.")
    parser.add_argument("names", nargs="+", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--json", action="store_true", help="one JSON object a variant instead of tables")
    parser.add_argument("--save", action="store_true", help="keep all readings in perf/results/NAME-DATE.json")
    parser.add_argument("--seconds", type=_positive, default=5.0, help="length of a measurement (default 5)")
    parser.add_argument("--pairs", type=_count, default=3, help="measurements of each variant (default 3)")
    parser.add_argument("--parallelism", type=_count, default=2, help="subtasks of each operator (default 2)")
    parser.add_argument(
        "--batch-rows",
        type=_count,
        default=DEFAULTS.max_batch_rows,
        help="most rows of a batch (default: the engine's)",
    )
    parser.add_argument("--peer", type=_peer, help=f"measure in turns with {', '.join(ENGINES)} (make bench-peers)")
    parser.add_argument("--megabytes", type=_count, default=200, help="input of a batch job (default 200)")
    parser.add_argument("--variant", default="", help="only variants whose name contains this")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="local: one process, to profile")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _peer(text: str) -> Engine:
    from perf.peers.engines import PeerError, engine

    try:
        peer = engine(text)
        peer.version()
    except PeerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return peer


def _options(given: argparse.Namespace) -> Options:
    from perf.harness import Options

    return Options(
        seconds=given.seconds,
        repetitions=given.pairs,
        parallelism=given.parallelism,
        batch_rows=given.batch_rows,
        runtime=given.runtime,
        peer=given.peer,
        megabytes=given.megabytes,
    )


def _options_of(given: argparse.Namespace) -> dict[str, Any]:
    options = _options(given)
    return {**asdict(replace(options, peer=None)), "peer": None if options.peer is None else options.peer.name}


def _results(name: str, given: argparse.Namespace) -> Iterator[Result]:
    results: Iterator[Result] = importlib.import_module(f"perf.{name}").run(_options(given), given.variant)
    return results


def _peer_settings(name: str, peer: Engine | None) -> dict[str, Any]:
    if peer is None:
        return {}
    return {"peer_settings": list(peer.batch_settings if name in BATCH else peer.settings)}


def _table(name: str, results: Sequence[Result]) -> Any:
    from rich.table import Table

    from perf.harness import ComparedResult

    table = Table(title=name)
    table.add_column("variant", no_wrap=True)
    for column in ("events/s", "events/CPU-s", "peak MB", "p50 ms", "p99 ms", "ratio", "by CPU", "spread"):
        table.add_column(column, justify="right")
    for result in results:
        spread = "" if result.spread is None else f"{result.spread:.0%}"
        if isinstance(result, ComparedResult):
            table.add_row(
                result.variant, *_cells(result.ours), _number(result.ratio, 2), _number(result.ratio_cpu, 2), spread
            )
            table.add_row(f"  {result.peer_name}", *_cells(result.peer))
        else:
            table.add_row(result.variant, *_cells(result.ours), "", "", spread)
    return table


def _cells(reading: Reading) -> list[str]:
    return [
        _rate(reading.events_per_second),
        _rate(reading.events_per_cpu_second),
        _number(reading.peak_rss_mb, 0),
        _number(reading.latency_ms["p50"], 1),
        _number(reading.latency_ms["p99"], 1),
    ]


def _details(results: Sequence[Result]) -> Iterator[str]:
    """The figures that only some programs have."""
    from perf.keyed_state import DetailedResult

    for result in results:
        if isinstance(result, DetailedResult):
            yield result.variant
            yield from (f"  {line}" for line in result.lines)


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value / 1e3:.1f} k"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _save(name: str, results: Sequence[Result], here: Mapping[str, Any], given: argparse.Namespace) -> Path:
    folder = ROOT / "perf" / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    raw = [result.raw(here) for result in results]
    path.write_text(json.dumps({"options": _options_of(given), "results": raw}, indent=1) + "\n")
    return path.relative_to(ROOT)


if __name__ == "__main__":
    # Whatever else is printed, such as Ray's news of dead workers, is no result.
    stdout, sys.stdout = sys.stdout, sys.stderr
    sys.exit(main(results_to=stdout))

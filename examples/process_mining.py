"""What happens to the files of a repository, found as patterns in its history: event sequences mined from a stream.

The history is that of two folders of a public repository, in the order in which changes reached the main branch; event
time is when a change was written, up to eight hours before. Three patterns are looked for in the changes of each file:
files that are deleted within a month of their creation (and those that outlive it, as time-outs), days on which a file
is changed again and again, and two authors who change a file in turns.

    python examples/process_mining.py
    python examples/process_mining.py --history commits.jsonl.gz --runtime local
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock import AfterMatchSkipStrategy, Pattern, col

HISTORY = Path(__file__).parent / "data" / "commits.jsonl.gz"
DISORDER = "9h"
OUTLIVED = ps.OutputTag("outlived", {"path": "string"})
SHOWN = 5

SHORT_LIVED = (
    Pattern.begin("added").where(col("op") == "A")
    .followed_by("deleted").where(col("op") == "D")
    .within("30d")
)  # fmt: skip
BUSY_DAY = (
    Pattern.begin("changed", AfterMatchSkipStrategy.skip_past_last_event()).where(col("op") == "M")
    .times(3).consecutive()
    .within("1d")
)  # fmt: skip


def by_another(row: Any, match: Any) -> bool:
    """Whether another author than the first one made the change."""
    return bool(row["author"] != match.events("first")[0]["author"])


def by_the_first(row: Any, match: Any) -> bool:
    """Whether the first author made the change."""
    return bool(row["author"] == match.events("first")[0]["author"])


PING_PONG = (
    Pattern.begin("first", AfterMatchSkipStrategy.skip_past_last_event()).where(col("op") == "M")
    .next("other").where(col("op") == "M").where(by_another)
    .next("back").where(col("op") == "M").where(by_the_first)
    .within("3d")
)  # fmt: skip


def read(history: Path) -> pa.Table:
    """The changes: path, author, op (A added, M modified, D deleted), and event time in milliseconds."""
    with gzip.open(history, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    columns = {name: [row[name] for row in rows] for name in ("path", "author", "op")}
    return pa.table({**columns, "at": [row["author_ts"] * 1000 for row in rows]})


def mine(env: ps.StreamEnvironment, changes: pa.Table) -> dict[str, Any]:
    """Add the three patterns to the program; their results, and the files that outlived a month."""
    strategy = ps.WatermarkStrategy.for_bounded_out_of_orderness(DISORDER)
    files = env.from_collection(changes).assign_timestamps("at", strategy).key_by("path")
    short_lived = files.match(SHORT_LIVED).select(
        lambda match: {"path": match["added"][0]["path"], "days": _days(match["added"][0], match["deleted"][0])},
        returns={"path": "string", "days": "float64"},
        timed_out=OUTLIVED,
        on_timeout=lambda match, at: {"path": match["added"][0]["path"]},
    )
    busy = files.match(BUSY_DAY).select(lambda match: {"path": match["changed"][0]["path"]}, returns={"path": "string"})
    ping_pong = files.match(PING_PONG).select(
        lambda match: {"path": match["first"][0]["path"], "authors": _pair(match)},
        returns={"path": "string", "authors": "string"},
    )
    outlived = short_lived.get_side_output(OUTLIVED)
    return {
        "short-lived": short_lived.collect(),
        "outlived a month": outlived.collect(),
        "busy days": busy.collect(),
        "ping-pong": ping_pong.collect(),
    }


def _days(added: Any, deleted: Any) -> float:
    return float(deleted["at"] - added["at"]) / 86_400_000


def _pair(match: Any) -> str:
    return " and ".join(map(str, sorted(match[name][0]["author"] for name in ("first", "other"))))


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print how often each pattern was found, and where most often."""
    table = Table("pattern", "found", "files", "most often", title="Patterns in the history", title_justify="left")
    for name, rows in found.items():
        files = Counter(row["path"] for row in rows)
        most = ", ".join(f"{path} ({count})" for path, count in files.most_common(SHOWN) if count > 1)
        table.add_row(name, str(len(rows)), str(len(files)), most)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Patterns in the history of a repository.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="local", help="where to run (default: local)")
    parser.add_argument("--history", type=Path, default=HISTORY, help="JSON lines, gzipped (default: a sample)")
    options = parser.parse_args()

    changes = read(options.history)
    started = time.perf_counter()
    env = ps.StreamEnvironment(runtime=options.runtime, parallelism=2)
    results = mine(env, changes)
    env.execute("process mining")
    found = {name: list(rows) for name, rows in results.items()}
    show(found)
    counts = " ".join(f"{name.replace(' ', '_')}={len(rows)}" for name, rows in found.items())
    print(f"changes={changes.num_rows} {counts} seconds={time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

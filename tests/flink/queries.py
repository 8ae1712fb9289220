"""Queries over rows that change, windows and joins, with Flink's answers: `python -m tests.flink.queries` asks anew.

Run by hand, where Flink is installed (`make bench-peers ARGS=flink`): it writes `tests/data/flink-queries.json.gz`;
what is added to `answers` there is asked, too.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from perf.peers.engines import pyflink_queries

FILE: Final = Path(__file__).parents[1] / "data" / "flink-queries.json.gz"


def kept() -> dict[str, Any]:
    """`tables`: statements; `files`: rows by name of a folder; `answers`: queries, and what Flink has given."""
    loaded: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return loaded


def written(files: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """Write the files that the tables read."""
    for name, rows in files.items():
        (folder / name).mkdir()
        (folder / name / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def in_folder(tables: list[str], folder: Path) -> list[str]:
    """The statements for files in this folder."""
    return [table.replace("{folder}", str(folder)) for table in tables]


def main() -> None:
    """Ask Flink for all of them, and keep what it says."""
    data = kept()
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as name:
        folder = Path(name)
        written(data["files"], folder)
        queries = [one["query"] for one in data["answers"]]
        asked, answered = folder / "asked.json", folder / "answered.json"
        asked.write_text(json.dumps({"tables": in_folder(data["tables"], folder), "queries": queries}))
        subprocess.run(pyflink_queries(str(asked), str(answered)), check=True)
        answers = json.loads(answered.read_text())
    differ = sum(old != new for old, new in zip(data["answers"], answers, strict=True))
    FILE.write_bytes(gzip.compress(json.dumps({**data, "answers": answers}, indent=1).encode(), mtime=0))
    sys.stdout.write(f"{len(answers)} queries; {differ} answers are others than before\n")


if __name__ == "__main__":
    main()

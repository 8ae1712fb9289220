"""Expressions with Flink's values and types: `python -m tests.flink.expressions` asks anew.

Run by hand, where Flink is installed (`make bench-peers ARGS=flink`): it writes `tests/data/flink-expressions.json.gz`;
what is added to it there is asked, too: `[expression, value as a text, type]`, or `[expression]` of what Flink refuses.
"""

from __future__ import annotations

import ast
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf.peers.engines import pyflink_queries

FILE: Final = Path(__file__).parents[1] / "data" / "flink-expressions.json.gz"
_AT_ONCE: Final = 20


def kept() -> list[list[str | None]]:
    """The expressions and Flink's answers; they may name the column `zz`, which is 1."""
    loaded: list[list[str | None]] = json.loads(gzip.decompress(FILE.read_bytes()))
    return loaded


def query(expressions: Sequence[str]) -> str:
    """What gives one row: of each expression its value as a text, and its type."""
    columns = [
        f"CAST(({one}) AS STRING) AS v{place}, TYPEOF({one}) AS t{place}" for place, one in enumerate(expressions)
    ]
    return f"SELECT {', '.join(columns)} FROM (VALUES (1)) AS t (zz)"


def packs(expressions: Sequence[str]) -> list[list[str]]:
    """So many as are asked in one query."""
    return [list(expressions[first : first + _AT_ONCE]) for first in range(0, len(expressions), _AT_ONCE)]


def _asked(many: list[list[str]]) -> list[list[list[str | None]]]:
    """Flink's answers to packs of expressions; no more than the expression, where it refuses one of a pack."""
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as name:
        asked, answered = Path(name) / "asked.json", Path(name) / "answered.json"
        asked.write_text(json.dumps({"tables": [], "queries": [query(pack) for pack in many]}))
        subprocess.run(pyflink_queries(str(asked), str(answered)), check=True)
        answers = json.loads(answered.read_text())
    found: list[list[list[str | None]]] = []
    for pack, answer in zip(many, answers, strict=True):
        values = [ast.literal_eval(value) for value in answer["rows"][0][0]] if "rows" in answer else None
        found.append([[one, *(values[2 * place : 2 * place + 2] if values else ())] for place, one in enumerate(pack)])
    return found


def main() -> None:
    """Ask Flink for all of them, and keep what it says."""
    before = {str(one[0]): one for one in kept()}
    known = {one: answer for pack in _asked(packs(list(before))) for one, *answer in pack}
    alone = [str(one) for one, answer in known.items() if not answer]
    known |= {one: answer for pack in _asked([[one] for one in alone]) for one, *answer in pack}
    answers = [[one, *known[one]] for one in before]
    differ = sum(before[str(one[0])] != one for one in answers)
    FILE.write_bytes(gzip.compress(json.dumps(answers, indent=0).encode(), mtime=0))
    sys.stdout.write(f"{len(answers)} expressions; {differ} answers are others than before\n")


if __name__ == "__main__":
    main()

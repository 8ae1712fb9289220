"""The SQL blocks of docs/sql run, and give the rows that the text blocks behind them show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.engine.clock import ManualClock

PAGES = Path(__file__).parents[2] / "docs" / "sql"
NAMES = ("README.md", "statements.md", "queries.md", "match-recognize.md")
_BLOCKS = re.compile(r"^```(sql|text)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", NAMES)
def test_the_blocks_of_the_page_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("orders.json", "clicks.json"):
        (tmp_path / name).write_text(json.dumps({}) + "\n")
    # By a clock that waits for nothing, so that rows which come together stay together on a busy machine.
    env = StreamEnvironment(runtime="local", parallelism=1, clock=ManualClock(1_700_000_000_000))
    shown: list[str] = []
    for kind, block in _BLOCKS.findall((PAGES / page).read_text()):
        if kind == "text":
            assert block.splitlines() == shown
            continue
        shown = _run(env, block)


def _run(env: StreamEnvironment, script: str) -> list[str]:
    shown = []
    for statement, source in env.tables.script(script):
        table = env.tables.run(statement, source)
        if table is not None:
            shown += [" ".join(f"{key}={value}" for key, value in row.items()) for row in table.collect()]
        elif env.tables.has_inserts:
            env.execute()
    return shown

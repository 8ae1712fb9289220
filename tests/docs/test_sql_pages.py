"""The SQL blocks of docs/sql run, and give the rows that the text blocks behind them show; the index has all pages.

The Python of a page is the module `words`, for its CREATE FUNCTION.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.engine.clock import ManualClock

PAGES = Path(__file__).parents[2] / "docs" / "sql"
NAMES = tuple(sorted(page.name for page in PAGES.glob("*.md") if "\n```sql\n" in page.read_text()))
WITHOUT = {"jobs.md"}
"""Pages whose statements need a cluster: tests/console/test_sql_jobs.py runs them."""
_BLOCKS = re.compile(r"^```(sql|text|python)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def _own_words() -> Iterator[None]:
    """The module of a page is forgotten again: other pages, and other tests, have one of that name."""
    yield
    sys.modules.pop("words", None)


@pytest.mark.usefixtures("_own_words")
@pytest.mark.parametrize("page", NAMES)
def test_the_blocks_of_the_page_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("orders.json", "clicks.json"):
        (tmp_path / name).write_text(json.dumps({}) + "\n")
    # By a clock that waits for nothing, so that rows which come together stay together on a busy machine.
    env = StreamEnvironment(runtime="local", parallelism=1, clock=ManualClock(1_700_000_000_000))
    shown: list[str] = []
    for kind, block in _BLOCKS.findall((PAGES / page).read_text()):
        if kind == "text":
            assert block.splitlines() == shown
            continue
        if kind == "python":
            (tmp_path / "words.py").write_text(block)
            continue
        shown = _run(env, block)


def test_the_index_lists_every_page_and_each_has_examples() -> None:
    pages = {page.name for page in PAGES.glob("*.md")}
    listed = re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\) \|", (PAGES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(pages - {"README.md"})
    assert pages - set(NAMES) == WITHOUT


def _run(env: StreamEnvironment, script: str) -> list[str]:
    shown = []
    for statement, source in env.tables.script(script):
        table = env.tables.run(statement, source)
        if table is not None:
            shown += [" ".join(f"{key}={value}" for key, value in row.items()) for row in table.collect()]
        elif env.tables.has_inserts:
            env.execute()
    return shown

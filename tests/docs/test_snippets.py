"""The Python blocks of the README, the guide and the concepts run, from top to bottom of each page."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]


CONCEPTS = ["time", "windows", "state", "queryable-state", "checkpoints", "savepoints", "joins", "pyflink"]


PAGES = [
    "README.md",
    "docs/autoscaling.md",
    "docs/cli.md",
    "docs/guide.md",
    "docs/index.md",
    "docs/cookbook.md",
    "docs/from-bytewax-and-spark.md",
    "docs/sources-and-sinks.md",
    "docs/patterns.md",
    "docs/console.md",
    "docs/notebooks.md",
    "docs/testing.md",
    "docs/sql/README.md",
    "docs/sql/create-function.md",
    "docs/sql/match-recognize.md",
    *(f"docs/concepts/{name}.md" for name in CONCEPTS),
]
ELSEWHERE = {
    "docs/batch-mode.md": "tests/actors/spark/test_page.py",
    "docs/connectors.md": "tests/testing/test_connector_suite_tutorial.py",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
}


def test_no_page_is_left_out() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {str(page.relative_to(ROOT)) for page in pages if "\n```python\n" in page.read_text()}
    assert found == {*PAGES, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


def test_what_tables_and_docstrings_name_is_there() -> None:
    """Code in tables of the pages, and examples of docstrings that do not run, are copied as well."""
    folders = ("engine", "savepoints", "connectors", "actors", "tables", "console", "penstock", "docs")
    files = [ROOT / "README.md"]
    files += [path for name in folders for end in ("py", "md") for path in (ROOT / name).rglob(f"*.{end}")]
    texts = {path: path.read_text() for path in files}
    expression = penstock.col("x")
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path, text in texts.items()
        for pattern, owner in ((r"\bps\.([A-Za-z_]+)", penstock), (r'\bcol\("\w+"\)\.([a-z_]+)', expression))
        for found in re.findall(pattern, text)
        if not hasattr(owner, found)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_the_snippets_of_the_page_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run_snippets(page, monkeypatch)


def run_snippets(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page in the current folder, which gets those that begin with the name of a file."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    module = types.ModuleType("snippets")
    monkeypatch.setitem(sys.modules, "snippets", module)
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        if name := re.match(r"# (\w+\.py)\n", block):
            Path(name[1]).write_text(block)
        exec(compile("\n" * line + block, str(ROOT / page), "exec"), module.__dict__)

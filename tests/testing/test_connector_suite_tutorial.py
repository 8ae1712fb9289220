"""The Python blocks of the tutorial on connectors run, and its connectors are as short as the page says."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"


def _blocks() -> list[tuple[int, str]]:
    """The line and the text of each."""
    text = PAGE.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


def test_the_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("connectors_tutorial")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, block in _blocks():
        exec(compile("\n" * line + block, str(PAGE), "exec"), module.__dict__)


@pytest.mark.parametrize(("name", "most"), [("class PaymentSource", 30), ("class LedgerSink", 60)])
def test_a_connector_is_short(name: str, most: int) -> None:
    (block,) = [block for _, block in _blocks() if name in block]
    code = [line for line in block.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= most

"""The Python of the page on batch mode runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.actors.spark.conftest import Environment, on_spark

pytestmark = on_spark


def test_the_snippets_of_the_page_run(spark: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "batch-mode.md"
    module = {"__name__": "page"}
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        exec(compile(snippet, str(page), "exec"), module)

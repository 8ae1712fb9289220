"""The Python of the page on batch mode runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.actors.spark.conftest import Environment, on_spark

# pytest.mark.ray: of the files that one process runs.
pytestmark = on_spark


def test_the_snippets_of_the_page_run(spark: Environment) -> None:
    page = Path(__file__).parents[3] / "docs" / "batch-mode.md"
    (snippet,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(compile(snippet, str(page), "exec"), {"__name__": "page"})

"""Arrow does without pandas until a program imports it, and knows its objects then."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
import pyarrow as pa
from penstock.actors.pandas_later import load_pandas_later
load_pandas_later()
pa.array([1])
assert "pandas" not in sys.modules
"""
END = """
import pandas as pd
assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1
assert type(pd.__loader__) is type(pd.__spec__.loader) is type(pa.__loader__)
"""


@pytest.mark.parametrize(
    "between",
    [
        "",
        "assert len(pa.table({'a': [1]}).to_pandas()) == 1",
        "import importlib.util; assert importlib.util.find_spec('pandas') is not None",
    ],
    ids=["at once", "behind Arrow", "behind a look for it"],
)
def test_pandas_is_loaded_when_it_is_used(between: str) -> None:
    subprocess.run([sys.executable, "-c", BEGIN + between + END], check=True)


def test_the_modules_of_processes_and_programs_leave_pandas_to_who_uses_it() -> None:
    modules = ("subtask", "job_manager", "client")
    imports = "".join(f"import penstock.actors.{module}\n" for module in modules)
    imports += "import penstock.connectors.files.source, penstock.environment, sys\n"
    script = f"{imports}assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)

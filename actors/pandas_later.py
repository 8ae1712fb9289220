"""Keeps Arrow from loading pandas before somebody uses it: some half a second of each process's start.

Processes of jobs and programs call `load_pandas_later` when they begin. Arrow looks for pandas when it makes its first
array of Python values, to know Series when it meets them; it is told that there is none, and of pandas behind its
import. Other threads find pandas all the while.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow as pa

from penstock.actors.import_hooks import found_behind

_PANDAS: Final = "pandas"


def load_pandas_later() -> None:
    """Let Arrow do without pandas until it is imported; nothing changes where it is, or is not installed."""
    if _PANDAS in sys.modules or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        finder.hidden_from = None


class _PandasFinder(MetaPathFinder):
    """Finds no pandas for the thread that it is hidden from, and otherwise one that tells Arrow when it is loaded.

    It stays: who only asks whether there is a pandas must not use it up, and taking it out of the list while other
    threads import would have them pass over the next finder.
    """

    def __init__(self) -> None:
        self.hidden_from: int | None = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if self.hidden_from == threading.get_ident():
            raise ModuleNotFoundError("pandas is loaded when it is used", name=_PANDAS)
        return found_behind(self, fullname, path, target, _tell_arrow)


def _tell_arrow() -> None:
    # Arrow looks again where pandas is needed.
    pa.lib._pandas_api.pd  # noqa: B018

"""Keeps Arrow from loading pandas before somebody uses it: some half a second of each process's start.

Processes of jobs and programs call `load_pandas_later` when they begin. Arrow looks for pandas when it makes its first
array of Python values, to know Series when it meets them; it is told that there is none, and of pandas behind its
import. Other threads find pandas all the while.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow as pa

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
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _NotifyingLoader(spec.loader)
        return spec


class _NotifyingLoader(Loader):
    """Loads pandas as `loader` does, and lets Arrow know."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Resources of the package are asked of the loader by its own kind.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # Arrow looks again where pandas is needed.
        pa.lib._pandas_api.pd  # noqa: B018

"""What to do once a module has been loaded, by whoever that is: `pandas_later` and `ray_serializers` need it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_loaded(modules: Collection[str], act: Callable[[], None]) -> None:
    """Call `act` behind the import of each of these top-level modules, which have not been loaded yet.

    What it raises, the import raises. Other programs may look for them before; they are found as ever.
    """
    finder = next((finder for finder in list(sys.meta_path) if isinstance(finder, _ActingFinder)), None)
    if finder is None:
        finder = _ActingFinder()
        sys.meta_path.insert(0, finder)
    for module in modules:
        finder.add(module, act)


def found_behind(
    asked: MetaPathFinder,
    fullname: str,
    path: Sequence[str] | None,
    target: ModuleType | None,
    act: Callable[[], None],
) -> ModuleSpec | None:
    """What the finders behind `asked` find, with `act` called when it has been loaded.

    Those before it have been asked, and one that asks others in its turn would ask in a circle.
    """
    behind = itertools.dropwhile(lambda finder: finder is not asked, list(sys.meta_path))
    next(behind, None)
    found = (finder.find_spec(fullname, path, target) for finder in behind)
    spec = next((spec for spec in found if spec is not None), None)
    if spec is not None and spec.loader is not None:
        spec.loader = _ActingLoader(spec.loader, act)
    return spec


class _ActingFinder(MetaPathFinder):
    """It stays: who only asks whether there is such a module must not use it up, and taking it out of the list while
    other threads import would have them pass over the next finder.
    """

    def __init__(self) -> None:
        self._acts: dict[str, list[Callable[[], None]]] = {}

    def add(self, module: str, act: Callable[[], None]) -> None:
        self._acts.setdefault(module, []).append(act)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._acts:
            return None
        return found_behind(self, fullname, path, target, lambda: self._act_on(fullname))

    def _act_on(self, module: str) -> None:
        for act in list(self._acts[module]):
            act()


class _ActingLoader(Loader):
    """Loads a module as `loader` does, and calls `act`."""

    def __init__(self, loader: Loader, act: Callable[[], None]) -> None:
        self._loader = loader
        self._act = act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Resources of the package are asked of the loader by its own kind.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._act()

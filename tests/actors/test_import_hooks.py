"""What is called once a module has been loaded, and that it is found and loaded as ever."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from penstock.actors.import_hooks import found_behind, when_loaded

MODULE = "loaded_by_a_test"


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").touch()
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(MODULE, None)


class _Finder(MetaPathFinder):
    """Another one that has something to do behind the import."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return found_behind(self, fullname, path, target, self._act) if fullname == MODULE else None


def test_all_that_is_to_be_done_for_a_module_is_done_once_when_it_is_loaded() -> None:
    done: list[int] = []
    for number in range(1000):
        when_loaded([MODULE], partial(done.append, number))
    assert importlib.util.find_spec(MODULE) is not None
    assert not done
    module = importlib.import_module(MODULE)
    assert done == list(range(1000))
    assert type(module.__loader__).__module__ != when_loaded.__module__


@pytest.mark.parametrize("place", [0, 1], ids=["before", "behind"])
def test_finders_that_ask_others_do_not_ask_each_other_in_a_circle(place: int) -> None:
    done: list[str] = []
    when_loaded([MODULE], partial(done.append, "ours"))
    sys.meta_path.insert(place, _Finder(partial(done.append, "another's")))
    importlib.import_module(MODULE)
    assert sorted(done) == ["another's", "ours"]

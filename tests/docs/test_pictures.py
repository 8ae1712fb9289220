"""The pictures of the concepts show what the engine gives today, and every page that shows one finds it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["draw"] = module
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_those_that_the_docs_build_draws(draw: ModuleType) -> None:
    for name, make in draw.DRAWN.items():
        assert (DOCS / "concepts" / "pictures" / f"{name}.svg").read_text() == make(), f"run make docs for {name}"


def test_the_pages_show_every_picture(draw: ModuleType) -> None:
    pages = [*(DOCS / "concepts").glob("*.md"), DOCS / "patterns.md"]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.svg\)", page.read_text())}
    assert shown == set(draw.DRAWN)

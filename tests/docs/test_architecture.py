"""The page of the architecture names files and rooms that are there, all rooms of the engine, and its map is whole."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_and_room_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))
    assert len(named) > 30
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_names_every_room_of_the_engine() -> None:
    rooms = {f"engine/{path.parent.name}/" for path in (ROOT / "engine").glob("*/__init__.py")}
    assert sorted(room for room in rooms if f"`{room}`" not in PAGE) == []

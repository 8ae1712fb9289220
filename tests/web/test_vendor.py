"""What is served of others is what they have published, and nothing on the pages comes from elsewhere."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from penstock.web.pages import FOLDER

_LINE = re.compile(r"^\| (\S+) \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)
OWN = [path for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".html")]


def test_vendored_files_are_those_of_their_packages() -> None:
    vendor = FOLDER / "vendor"
    listed = dict(_LINE.findall((vendor / "README.md").read_text(encoding="utf-8")))
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*.[jc]s*")}
    assert listed == there


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_pages_load_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://", text)
    assert not re.search(r"<script>|\son[a-z]+=\"|style=\"", text), "the policy allows for no inline scripts and styles"

"""What browsers get of the pages: few files, at addresses at which they can keep them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.web import pages
from penstock.web.pages import FOLDER, joined_scripts
from tests.web.conftest import Serve

_NAMED = re.compile(r'(?:src|href)="(/pages/[^"]+)"')
_LOADED = re.compile(r'"(/pages/[^"]+\.js)"')
_IMPORTED = re.compile(r'^import .* from "([^"]+)"', re.MULTILINE)


def test_what_the_page_names_is_there_and_is_kept_for_good(serve: Serve) -> None:
    client = serve()
    index = client.get("/")
    named = _NAMED.findall(index.text)
    assert len(named) == 5
    # What not every page needs is named by the scripts that load it.
    loaded = {place for one in named if one.endswith(".js") for place in _LOADED.findall(client.get(one).text)}
    assert "dagre.js" in {Path(place).name for place in loaded}
    assert index.headers["cache-control"] == "no-cache"
    for place in [*named, *loaded]:
        answer = client.get(place)
        assert answer.status_code == 200, place
        assert "immutable" in answer.headers["cache-control"]
        # Of another version it would be kept as if it were of that.
        assert client.get(re.sub("/pages/[0-9a-f]{16}", "/pages/0123456789abcdef", place)).status_code == 404


def test_what_scripts_import_is_asked_for_with_the_page_and_not_behind_them(serve: Serve) -> None:
    client = serve()
    index = client.get("/").text
    scripts = [client.get(place).text for place in _NAMED.findall(index) if place.endswith(".js")]
    imported = {place for script in scripts for place in _IMPORTED.findall(script)}
    assert {place for place in imported if f'<link rel="modulepreload" href="{place}">' not in index} == set()
    assert len(imported) == 1


def test_an_address_changes_with_what_is_there(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _NAMED.findall(serve().get("/").text)
    for path in FOLDER.rglob("*.*"):
        copy = tmp_path / path.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes() + (b"\n/* new */\n" if path.name == "style.css" else b""))
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    assert not {*before} & {*_NAMED.findall(serve().get("/").text)}


def test_all_scripts_are_in_one_each_behind_what_it_needs() -> None:
    joined = joined_scripts()
    own = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js") if path.name != "begin.js"]
    assert all(script.splitlines()[0] in joined for script in own)
    assert joined.index("function Job(") < joined.index("function App(")
    assert not re.search("^export ", joined, re.MULTILINE)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("export const shown = 2;\n", "two scripts export one name"),
        ("export default 3;\n", "parts.js: import as others do"),
        ("export const part = 1, other = 2;\n", "parts.js: import as others do"),
        (
            'import { shown } from "/pages/app.js";\nexport const part = 1;\n',
            "in a ring: app.js, parts.js, app.js",
        ),
        ('import * as all from "/pages/api.js";\n', "parts.js: import as others do"),
    ],
)
def test_scripts_that_cannot_be_joined_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, said: str
) -> None:
    (tmp_path / "app.js").write_text('import { part } from "/pages/parts.js";\nexport const shown = 1;\n')
    (tmp_path / "parts.js").write_text(other)
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=said):
        joined_scripts()

"""The pages of the web console: files of this package, read once; there is no build step and no other host.

A browser gets all scripts of `static` as one, so that a page is there after few requests; they, the styles and what
comes from others are served from memory, at addresses that change with them, and kept by browsers for good. What is in
`static/vendor` comes from npm as it is published; `static/vendor/README.md` has names, licences and hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

FOLDER: Final = Path(__file__).with_name("static")
_PLACE: Final = "/pages/"
_FIRST: Final = "app.js"
"""The script that begins; it leads to all that are served with it."""
_AS_THEY_ARE: Final = ("begin.js", "icon.svg", "vendor/htm-preact-standalone.js", "vendor/dagre.js")
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORT: Final = re.compile(r'^import \{ (.+) \} from "/pages/(.+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:const|function) (\w+))", re.MULTILINE)
_NOT_JOINED: Final = re.compile(
    r"^import\b|^export (?!(async )?(const|function)\b)|^export const [^;\n]*, \w+ = ", re.MULTILINE
)
_KEPT: Final = {"cache-control": "public, max-age=31536000, immutable"}
_ASKED_AGAIN: Final = {"cache-control": "no-cache"}


def page_routes() -> list[BaseRoute]:
    """The page, and what belongs to it."""
    files = _files()
    version = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]

    def placed(content: bytes) -> bytes:
        return content.replace(_PLACE.encode(), f"{_PLACE}{version}/".encode())

    index = placed((FOLDER / "index.html").read_bytes())
    answers = {
        name: Response(placed(content), headers=_KEPT, media_type=_TYPES[Path(name).suffix])
        for name, content in files.items()
    }

    async def page(request: Request) -> Response:
        return Response(index, headers=_ASKED_AGAIN, media_type="text/html")

    async def file(request: Request) -> Response:
        found = answers.get(request.path_params["name"])
        if found is None or request.path_params["version"] != version:
            raise HTTPException(404)
        return found

    return [Route("/", page), Mount(_PLACE.rstrip("/"), routes=[Route("/{version}/{name:path}", file)])]


def _files() -> Mapping[str, bytes]:
    """What is served, by its name."""
    as_they_are = {name: (FOLDER / name).read_bytes() for name in _AS_THEY_ARE}
    return {"console.js": joined_scripts().encode(), "console.css": (FOLDER / "style.css").read_bytes(), **as_they_are}


def joined_scripts() -> str:
    """The scripts of this folder as one module: each in a function of its own, behind those that it imports from.

    What it exports is there for all behind it; what they import from others is imported once, before all.

    Raises:
        ValueError: two scripts export one name, scripts import from one another in a ring, or a script imports in a way
            that is not understood.
    """
    scripts: dict[str, str] = {}
    vendored: dict[str, set[str]] = {}
    _collect((_FIRST,), scripts, vendored)
    exported = [name for script in scripts.values() for name in _EXPORT.findall(script)]
    if len({*exported}) < len(exported):
        raise ValueError(f"two scripts export one name: {', '.join(sorted(exported))}")
    imports = [f'import {{ {", ".join(sorted(names))} }} from "{_PLACE}{place}";' for place, names in vendored.items()]
    return "\n".join([*imports, *map(_enclosed, scripts.values())])


def _collect(led: tuple[str, ...], scripts: dict[str, str], vendored: dict[str, set[str]]) -> None:
    """Add the last of scripts each of which imports from the next, without its imports, behind those that it needs."""
    name = led[-1]
    if name in led[:-1]:
        raise ValueError(f"scripts import from one another in a ring: {', '.join(led[led.index(name) :])}")
    text = (FOLDER / name).read_text(encoding="utf-8")
    for names, place in _IMPORT.findall(text):
        if place.startswith("vendor/"):
            vendored.setdefault(place, set()).update(names.split(", "))
        elif place not in scripts:
            _collect((*led, place), scripts, vendored)
    scripts[name] = _IMPORT.sub("", text)
    if _NOT_JOINED.search(scripts[name]):
        raise ValueError(f"{name}: import as others do, and export constants and functions one by one, where they are")


def _enclosed(script: str) -> str:
    exported = ", ".join(_EXPORT.findall(script))
    body = _EXPORT.sub("", script)
    return f"const {{ {exported} }} = (() => {{\n{body}return {{ {exported} }};\n}})();" if exported else body

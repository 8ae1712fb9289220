"""The pages of the web console: files of this package, served as they are; there is no build step and no other host.

What is in `static/vendor` comes from npm as it is published; `static/vendor/README.md` has names, licences and hashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FOLDER: Final = Path(__file__).with_name("static")


def page_routes() -> list[BaseRoute]:
    """The page, and what belongs to it."""

    async def index(request: Request) -> Response:
        return FileResponse(FOLDER / "index.html", headers={"cache-control": "no-cache"})

    return [Route("/", index), Mount("/pages", StaticFiles(directory=FOLDER))]

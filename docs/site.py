"""What the build of the documentation computes: the error reference, and links to files that are not pages.

mkdocs calls it (`hooks` in mkdocs.yml). The reference is written of the classes themselves, and cannot fall behind.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.engine.errors import PenstockError

_ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_ERRORS: Final = "<!-- errors -->"
_FENCE: Final = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with what is computed in it; files of the repository that are no pages are named, not linked."""
    if _ERRORS in markdown:
        markdown = markdown.replace(_ERRORS, error_reference())
    folder = posixpath.dirname(page.file.src_uri)

    def named(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        inside = posixpath.normpath(posixpath.join(folder, target))
        if files.get_file_from_path(inside) is not None:
            return link[0]
        path = (_ROOT / "docs" / inside).resolve()
        if not path.is_relative_to(_ROOT) or not path.exists():
            # mkdocs says that it leads nowhere.
            return link[0]
        return f"{text} (`{path.relative_to(_ROOT)}`)"

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(named, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(named, markdown[end:])])


def error_reference() -> str:
    """Each class of error: what it means, and what to do."""
    rows = ["| error | means | what to do |", "|---|---|---|"]
    for depth, kind in _classes(PenstockError, 0):
        meaning = (kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ").strip()
        indent = "&nbsp;&nbsp;" * depth
        cells = [f'{indent}<span id="{kind.__name__}">`{kind.__name__}`</span>', meaning, kind.remedy]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _classes(kind: type[PenstockError], depth: int) -> Iterator[tuple[int, type[PenstockError]]]:
    yield depth, kind
    for below in kind.__subclasses__():
        if below.__module__ == PenstockError.__module__:
            yield from _classes(below, depth + 1)

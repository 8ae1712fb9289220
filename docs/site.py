"""What the build of the documentation computes: the error reference, figures, and links to files that are not pages.

mkdocs calls it (`hooks` in mkdocs.yml). The reference is written of the classes themselves, and cannot fall behind.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.engine.errors import PenstockError

_ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_ERRORS: Final = "<!-- errors -->"
_FIGURES: Final = re.compile("<!-- performance: ([a-z]+) -->")
_BENCHMARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "streams": ("grep", "keyed", "window", "wide", "ysb", "process"),
    "batch": ("batch_window", "hash_join", "terasort"),
    "latency": ("latency",),
    "recovery": ("recovery", "startup"),
}
"""Which benchmarks stand in which table of the page on performance."""
_READING: Final = re.compile(r".+-(\d{4}-\d{2}-\d{2})T\d{6}\.json")
_FENCE: Final = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with what is computed in it; files of the repository that are no pages are named, not linked."""
    if _ERRORS in markdown:
        markdown = markdown.replace(_ERRORS, error_reference())
    markdown = _FIGURES.sub(lambda marker: figures(marker[1]), markdown)
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


def figures(table: str) -> str:
    """The newest reading of each benchmark, variant and peer of a table, as `perf/run.py --save` has left it."""
    is_rate = table in ("streams", "batch")
    measured = "M rows/s" if is_rate else "p50 ms | p99 ms"
    rows = [
        f"| benchmark | {measured} | beside | ratio | by CPU | spread | read on |",
        "|---" * (7 + (not is_rate)) + "|",
    ]
    for (name, variant, peer), (day, result) in sorted(_newest(_BENCHMARKS[table]).items()):
        ours, latency = result["ours"], result["ours"]["latency_ms"]
        values = [_number(ours["events_per_second"], 1e6)] if is_rate else [_number(latency[q]) for q in ("p50", "p99")]
        ratios = [_number(result.get(key)) for key in ("ratio", "ratio_cpu")]
        spread = "" if result["spread"] is None else f"{result['spread']:.0%}"
        rows.append("| " + " | ".join([f"{name}, {variant}", *values, peer, *ratios, spread, day]) + " |")
    return "\n".join(rows)


def _newest(names: tuple[str, ...]) -> dict[tuple[str, str, str], tuple[str, Mapping[str, Any]]]:
    """By benchmark, variant and peer: the day and the result of the last file that has it."""
    found = {}
    # The names of the files end with the time.
    for path in sorted((_ROOT / "perf" / "results").glob("*.json"), key=lambda path: path.stem[-17:]):
        reading = _READING.fullmatch(path.name)
        for result in json.loads(path.read_text())["results"] if reading is not None else ():
            peer = (result.get("peer") or {}).get("name", "")
            if result["name"] in names and result["variant"] != "null":
                found[result["name"], result["variant"], peer] = (reading[1], result)
    return found


def _number(value: float | None, unit: float = 1) -> str:
    if value is None:
        return ""
    shown = value / unit
    return f"{shown:,.0f}" if shown >= 1000 else f"{shown:.3g}"

"""The commands that pages have others type into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_JOINED: Final = {"&&", "|", ";"}
_VARIABLE: Final = re.compile(r"[A-Z_]+=.*")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page.

    Args:
        page: its path below the repository.
        words: as the shell hands them on.
    """

    page: str
    words: tuple[str, ...]


def blocks(page: Path) -> Sequence[tuple[str, str]]:
    """The language and the text of each block."""
    return _BLOCK.findall(page.read_text())


def commands() -> Iterator[Command]:
    """All commands of all pages, and those that others of them run elsewhere: `kubectl exec POD -- COMMAND`."""
    for page in PAGES:
        for language, text in blocks(page):
            for line in text.replace("\\\n", " ").splitlines():
                if language not in ("sh", "console", "text") or (language != "sh" and not line.startswith("$ ")):
                    continue
                for words in _commands(line.removeprefix("$ ")):
                    yield Command(str(page.relative_to(ROOT)), tuple(words))


def _commands(line: str) -> Iterator[list[str]]:
    words: list[str] = []
    for word in [*_words(line), ";"]:
        if word not in _JOINED:
            words.append(word)
            continue
        while words and _VARIABLE.fullmatch(words[0]):
            words = words[1:]
        if words:
            yield words
        match words:
            case ["kubectl", "exec", *_]:
                yield words[words.index("--") + 1 :]
            case ["ray", "exec", _, inner]:
                yield from _commands(inner)
        words = []


def _words(line: str) -> list[str]:
    split = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    split.whitespace_split = True
    return list(split)

"""What the `syntax` blocks of docs/sql promise is SQL to the parser: each optional part, and each choice.

Capital words, signs and texts in quotes stand as they are, `[ ]` may be left out, of `{ a | b }` one is taken,
`[, ...]` and `[...]` say that what is before them may come again, and a word in small letters stands for what
`_MEANINGS` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from penstock.engine.errors import SqlError
from penstock.tables.parse.statement_parser import parse_script

PAGES: Final = Path(__file__).parents[2] / "docs" / "sql"
BLOCKS: Final = {
    page.name: re.findall(r"^```syntax\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for page in sorted(PAGES.glob("*.md"))
}
_MEANINGS: Final = {
    **{word: word for word in ("window_start", "window_end")},
    **dict.fromkeys(("gap", "interval", "offset", "size", "slide", "step"), "INTERVAL '1' MINUTE"),
    **dict.fromkeys(("name", "table", "column", "catalog", "database", "variable"), "n"),
    "aggregate": "SUM",
    "call": "SUM(n)",
    "condition": "n > 1",
    "expression": "n + 1",
    "hints": "/*+ STATE_TTL('n' = '1d') */",
    "insert": "INSERT INTO n SELECT 1",
    "mapping": "MAP['INSERT', 'c']",
    "number": "1",
    "pattern": "n n+",
    "query": "SELECT 1 FROM n",
    "statement_set": "EXECUTE STATEMENT SET BEGIN INSERT INTO n SELECT 1; END",
    "type": "INT",
    "window": "PARTITION BY n",
}
_REPEATED: Final = re.compile(r"\[(?:, )?\.\.\.\]")
_TOKEN: Final = re.compile(r"'[^']*'|\w+ =>|\w+|<>|[<>]=|\S")
_CLOSING: Final = {"[": "]", "{": "}"}


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_parser_takes_what_the_page_promises(page: str) -> None:
    for block in BLOCKS[page]:
        for text in _texts(block):
            try:
                parse_script(text)
            except SqlError as error:
                pytest.fail(f"{text}\n{error}")


def test_every_page_has_its_syntax() -> None:
    assert [name for name, blocks in BLOCKS.items() if not blocks] == ["README.md"]


def test_each_part_and_each_choice_is_written_once() -> None:
    assert list(_texts("USE [CATALOG] {column | 'b' [, ...] [, ('c')]};")) == [
        "USE n ;",
        "USE CATALOG n ;",
        "USE 'b' ;",
        "USE 'b' , ( 'c' ) ;",
    ]


def _texts(block: str) -> Iterator[str]:
    """The shortest text of the block, and one for each optional part and choice, with the rest as short as can be."""
    tokens = iter(_TOKEN.findall(_REPEATED.sub("", block)))
    return (" ".join(text.split()) for text in _choices(tokens, ""))


def _choices(tokens: Iterator[str], end: str) -> list[str]:
    """What may stand from here to the end: a choice of sequences."""
    choices: list[list[Sequence[str]]] = [[]]
    for token in tokens:
        if token == end:
            break
        if token == "|":
            choices.append([])
        elif token in _CLOSING:
            inner = _choices(tokens, _CLOSING[token])
            choices[-1].append(["", *inner] if token == "[" else inner)
        else:
            choices[-1].append([_MEANINGS[token] if token.islower() and token.isidentifier() else token])
    return list(chain.from_iterable(_sequence(parts) for parts in choices))


def _sequence(parts: Sequence[Sequence[str]]) -> Iterator[str]:
    shortest = [part[0] for part in parts]
    yield " ".join(shortest)
    for place, part in enumerate(parts):
        for other in part[1:]:
            yield " ".join([*shortest[:place], other, *shortest[place + 1 :]])

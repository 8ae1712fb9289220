"""Where Flink finds others than one would say, by case: docs/patterns.md has the patterns, docs/sql the clauses.

Of patterns Flink is followed (`SURPRISES`), of clauses the standard (`CLAUSES`, with what is found here).
`python -m tests.flink` asks Flink for all of them, too, and `--save` keeps what it says.
"""

from __future__ import annotations

from typing import Any, Final

from tests.engine.patterns.cases import Case

_LOOP: Final = {"quantifier": {"kind": "one_or_more"}}
_TWICE: Final = {"quantifier": {"kind": "times", "n": 2}}
_NONE_TO_TWO: Final = {"quantifier": {"kind": "times_range", "from": 0, "to": 2}}
_OPTIONAL: Final = {"optional": True}


def _stage(contiguity: str | None, letters: str, name: str, **options: Any) -> Case:
    tests = [{"op": "name", "is": letter} for letter in letters]
    return {"contiguity": contiguity, "condition": {"op": "or", "of": tests}, "name": name, **options}


def _group(contiguity: str | None, stages: list[Case], **options: Any) -> Case:
    return {"contiguity": contiguity, "group": stages, **options}


def _case(name: str, stages: list[Case], letters: str, within: int | None = None) -> Case:
    """Events a millisecond apart, all of one key."""
    steps = [["el", "k", letter, 1, 1_000 + number] for number, letter in enumerate(letters)]
    skip = {"kind": "no_skip", "variable": None}
    bound = {"within_ms": within, "within_type": "first_and_last"}
    return {"surprise": name, "pattern": {"stages": stages}, "skip": skip, **bound, "late": True, "steps": steps}


_A: Final = _stage(None, "A", "a")
_NO_B: Final = _stage("notFollowedBy", "B", "n")

SURPRISES: Final = (
    _case(
        "not_followed_by binds the loop before it",
        [_stage(None, "A", "a", **_LOOP), _NO_B, _stage("followedBy", "C", "c")],
        "ABAC",
    ),
    _case(
        "not_followed_by at the end, behind a loop, is known with a further event only",
        [_stage(None, "A", "a", **_LOOP), _NO_B],
        "A",
        10,
    ),
    _case(
        "not_next before an optional end is asked of the event before it",
        [_A, _stage("notNext", "B", "n"), _stage("followedBy", "C", "c", **_OPTIONAL)],
        "AB",
    ),
    _case(
        "an event that completes the match may be of the NOT stage before it",
        [_A, _NO_B, _stage("followedBy", "BC", "c")],
        "AB",
    ),
    _case(
        "what may lie between the rounds of a group may lie behind them",
        [_group(None, [_A, _stage("next", "B", "b")], **_LOOP), _stage("next", "C", "c")],
        "ABXC",
    ),
    _case(
        "the first stage of a group repeats as the group does",
        [_group(None, [_stage(None, "A", "a", **_TWICE, combinations=True), _stage("followedBy", "B", "b")])],
        "AAAB",
    ),
    _case(
        "a greedy loop before an optional end",
        [_A, _stage("followedBy", "B", "b", **_LOOP, greedy=True), _stage("followedBy", "C", "c", **_NONE_TO_TWO)],
        "AB",
    ),
    _case(
        "a bound of time since the event before says nothing behind a NOT stage",
        [_A, _stage("notNext", "B", "n"), _stage("next", "C", "c", gap_ms=2)],
        "AC",
    )
    | {"steps": [["el", "k", "A", 1, 1_000], ["el", "k", "C", 1, 1_009]]},
)


def _clause(name: str, pattern: str, define: str, letters: str, here: list[str], skip: str = "PAST LAST ROW") -> Case:
    """Rows a second apart, all of one key; of a match its first and last row, and how many rows B has."""
    steps = [["el", "k", letter, 1, 1_000 * (number + 1)] for number, letter in enumerate(letters)]
    clause = (
        "PARTITION BY k ORDER BY ts MEASURES FIRST(A.n) AS f, LAST(B.n) AS l, COUNT(B.v) AS c ONE ROW PER MATCH "
        f"AFTER MATCH SKIP {skip} PATTERN ({pattern}) DEFINE {define}"
    )
    return {"surprise": name, "clause": clause, "steps": steps, "here": here}


_A_IS_A: Final = "A AS A.letter = 'A'"
_B_IS_B: Final = "B AS B.letter = 'B'"
_C_IS_C: Final = "C AS C.letter = 'C'"

CLAUSES: Final = (
    _clause(
        "a row that fits a reluctant loop, and a part of no fixed length behind it",
        "A+? B{1,2} C",
        f"A AS A.letter <> 'C', {_B_IS_B}, {_C_IS_C}",
        "ABBC",
        ["k 0 2 2"],
    ),
    _clause(
        "a row that fits a reluctant part, and a part of no fixed length behind it",
        "A{1,3}? B* C",
        f"A AS A.letter <> 'C', {_B_IS_B}, {_C_IS_C}",
        "ABBC",
        ["k 0 2 2"],
    ),
    _clause(
        "a row that fits a greedy loop, and what comes behind it",
        "A B+ C",
        f"{_A_IS_A}, B AS B.letter <> 'A', {_C_IS_C}",
        "ABC",
        ["k 0 1 1"],
    ),
    _clause("a greedy quantifier at the end", "A B+", f"{_A_IS_A}, {_B_IS_B}", "ABBC", ["k 0 2 2"]),
    _clause(
        "a greedy loop before a part that may be left out",
        "A B{2,} C? D",
        f"{_A_IS_A}, {_B_IS_B}, {_C_IS_C}, D AS D.letter = 'D'",
        "ABBD",
        ["k 0 2 2"],
    ),
    _clause(
        "a reluctant loop of a match that begins while another one is under way",
        "A B*? C",
        f"{_A_IS_A}, C AS C.n > 6 - 3 * A.n",
        "AABBBBBB",
        ["k 0 6 6", "k 1 3 2"],
        "TO NEXT ROW",
    ),
    _clause("an alternation", "A (B | C) D", f"{_A_IS_A}, {_B_IS_B}, D AS D.letter = 'D'", "ABD", ["k 0 1 1"]),
)

"""Patterns of random programs: their matches are those of the definition (`tests/engine/patterns/definition.py`).

Rows of one key and time come in any order, so that windows of a millisecond make one event of them before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from penstock import DataStream
from tests.engine.patterns.cases import Case, pattern_of
from tests.engine.patterns.definition import Definition
from tests.parity.rows import Row, Rows, schema_of
from tests.parity.verbs import Verb
from tests.parity.windows import MOMENTS, NORMAL, aggregates, by_key, normal_row, summed, window_rows

_LETTERS: Final = "ABC"
_OF_EVENTS: Final = {"name": "string", "value": "int64", "at": "int64"}


def matched(random: Random, kind: str) -> Verb:
    """A row of each match."""
    case = _case(random)
    texts = [" ".join(map(str, stage.values())) for stage in case["pattern"]["stages"]]

    def build(stream: DataStream) -> Sequence[DataStream]:
        moments = stream.key_by("k").window(MOMENTS.make()).aggregate(**aggregates(NORMAL, kind))
        events = moments.map(_event, returns={**schema_of(kind), **_OF_EVENTS})
        return [events.key_by("k").match(pattern_of(case)).select(_of_match, returns=schema_of(kind))]

    def model(rows: Rows) -> Sequence[Rows]:
        events = [_event(row) for row in window_rows(MOMENTS, ["k"], NORMAL, rows)]
        return [[row for of_key in by_key(events, ["k"]).values() for row in _matches(case, of_key)]]

    return Verb(f"match within {case['within_ms']}ms: {'; '.join(texts)}", build, model)


def _matches(case: Case, events: Rows) -> Rows:
    ordered = sorted(events, key=lambda row: row["t"])
    found = []
    for way in Definition(case, ordered).matches:
        match: dict[str, Rows] = {}
        for name, place in way:
            match.setdefault(name, []).append(ordered[place])
        found.append(_of_match(match))
    return found


def _event(result: Row) -> Row:
    row = normal_row(result)
    return {**row, "name": _LETTERS[row["j"] % 3], "value": row["v"] or 0, "at": row["t"]}


def _of_match(match: Mapping[str, Any]) -> Row:
    rows = [row for rows in match.values() for row in rows]
    return {**summed(rows), "t": max(row["t"] for row in rows)}


def _case(random: Random) -> Case:
    stages = [_stage(random, "v0", None, _LETTERS)]
    for number in range(1, random.randint(1, 3)):
        letters = _LETTERS
        if random.random() < 0.3 and "quantifier" not in stages[-1]:
            absent = random.choice(_LETTERS)
            stages.append(_absent(random, f"n{number}", absent))
            letters = letters.replace(absent, "")
        stage = _stage(random, f"v{number}", random.choice(["next", "followedBy", "followedByAny"]), letters)
        if random.random() < 0.4 and letters == _LETTERS:
            stage |= random.choice(_REPEATED)
        stages.append(stage)
    return {
        "pattern": {"stages": stages},
        "skip": {"kind": "no_skip", "variable": None},
        "within_ms": random.choice([60, 300]),
        "within_type": "first_and_last",
    }


_REPEATED: Final[list[Case]] = [
    {"quantifier": {"kind": "one_or_more"}, "consecutive": True},
    {"quantifier": {"kind": "times", "n": 2}},
    {"quantifier": {"kind": "times_range", "from": 1, "to": 3}},
    {"quantifier": {"kind": "times_range", "from": 1, "to": 2}, "optional": True},
]


def _stage(random: Random, name: str, contiguity: str | None, letters: str) -> Case:
    chosen = random.sample(letters, random.randint(1, 2))
    condition: Case = {"op": "or", "of": [{"op": "name", "is": letter} for letter in chosen]}
    if random.random() < 0.2:
        condition = {"op": "and", "of": [condition, {"op": "gt", "c": 1}]}
    return {"contiguity": contiguity, "name": name, "condition": condition}


def _absent(random: Random, name: str, letter: str) -> Case:
    condition: Case = {"op": "or", "of": [{"op": "name", "is": letter}]}
    return {"contiguity": random.choice(["notNext", "notFollowedBy"]), "name": name, "condition": condition}

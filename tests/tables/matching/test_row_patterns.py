"""Random clauses over random rows find what the definition says, wherever batches are cut and jobs restored."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import SqlError
from penstock.engine.patterns.rows.syntax import (
    Alternatives,
    Repeated,
    RowPattern,
    Sequence,
    Variable,
    shown,
    variables_of,
)
from penstock.tables.lower.base import schema_of
from penstock.tables.lower.matching.operator import MatchRecognizeSpec
from penstock.tables.plan.nodes import MatchRecognize, walk_plan
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import ChangelogJob
from tests.tables.matching.definition import Holds, Meaning, Rows, moment

_CASES = int(os.environ.get("PATTERNS", drawn(60)))
"""`PATTERNS=2000` tries more; a case is a seed."""
_NAMES = ("A", "B", "C")
_ALONE = 3
"""So many definitions, the first ones, ask of the row alone."""


def _of(name: str, rows: Rows, start: int, taken: list[str]) -> list[int]:
    """The values of the rows of a variable."""
    return [rows[start + place][1] for place, variable in enumerate(taken) if variable == name]


def _last(name: str, offset: int = 0) -> Any:
    def value(rows: Rows, start: int, taken: list[str]) -> int | None:
        values = _of(name, rows, start, taken)
        return values[-1 - offset] if offset < len(values) else None

    return value


def _value(rows: Rows, start: int, taken: list[str]) -> int:
    return rows[start + len(taken) - 1][1]


def _less(one: Any, other: Any) -> Holds:
    def holds(rows: Rows, start: int, taken: list[str]) -> bool:
        left, right = one(rows, start, taken), other(rows, start, taken)
        return left is not None and right is not None and left < right

    return holds


def _before(rows: Rows, start: int, taken: list[str]) -> int | None:
    row = start + len(taken) - 2
    return rows[row][1] if row >= 0 else None


def _and(one: Holds, other: Holds) -> Holds:
    return lambda rows, start, taken: one(rows, start, taken) and other(rows, start, taken)


def _definitions(name: str) -> list[tuple[str, Holds]]:
    others = [other for other in _NAMES if other != name]
    large = _less(lambda *_: 1, _value)
    return [
        ("TRUE", lambda rows, start, taken: True),
        (f"{name}.v > 1", large),
        ("v < 2", _less(_value, lambda *_: 2)),
        (f"{name}.v > LAST({others[0]}.v)", _less(_last(others[0]), _value)),
        (f"{name}.v + 0 > {others[1]}.v", _less(_last(others[1]), _value)),
        (
            f"LAST({name}.v, 1) IS NULL OR {name}.v > LAST({name}.v, 1)",
            lambda rows, start, taken: (
                _last(name, 1)(rows, start, taken) is None or _less(_last(name, 1), _value)(rows, start, taken)
            ),
        ),
        (f"SUM({name}.v) < 4", _less(lambda *given: sum(_of(name, *given)), lambda *_: 4)),
        (f"COUNT(*) < 4 AND {name}.v > 1", _and(large, lambda rows, start, taken: len(taken) < 4)),
        (
            f"{name}.v <= FIRST({others[0]}.v)",
            lambda rows, start, taken: bool(
                _of(others[0], rows, start, taken)
                and _value(rows, start, taken) <= _of(others[0], rows, start, taken)[0]
            ),
        ),
        ("v > PREV(v)", _less(_before, _value)),
    ]


def _pattern(random: Random, depth: int = 0) -> RowPattern:
    kind = random.choice(["one", "sequence", "sequence", "repeated", "alternatives"] if depth else ["sequence"])
    if kind == "one" or depth == 3:
        return Variable(random.choice(_NAMES))
    if kind == "repeated":
        least, most = random.choice([(0, None), (1, None), (1, None), (0, 1), (2, 2), (1, 2), (2, None)])
        return Repeated(_pattern(random, depth + 1), least, most, random.random() < 0.6)
    parts = tuple(_pattern(random, depth + 1) for _ in range(random.randint(2, 3)))
    return Sequence(parts) if kind == "sequence" else Alternatives(parts)


_ALL_ROWS = "MEASURES CLASSIFIER() AS c, MATCH_ROWTIME() AS m, FINAL COUNT(*) AS n ALL ROWS PER MATCH"


def spec_of(
    pattern: str, names: list[str], texts: list[str], meaning: Meaning, results: str = _ALL_ROWS
) -> MatchRecognizeSpec:
    """The operator of a clause.

    Args:
        texts: the definitions of `names`.
        results: the clause between ORDER BY and AFTER MATCH.
    """
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE given (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'filesystem', 'path' = 'none', 'format' = 'json')"
    )
    bound = "" if meaning.within is None else f"WITHIN INTERVAL '{meaning.within / 1000}' SECOND"
    skip = "PAST LAST ROW" if meaning.past_last_row else "TO NEXT ROW"
    defined = ", ".join(f"{name} AS {text}" for name, text in zip(names, texts, strict=True))
    table = env.sql(
        f"SELECT * FROM given MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts {results} AFTER MATCH SKIP {skip} "
        f"PATTERN ({pattern}) {bound} DEFINE {defined})"
    )
    assert table is not None
    node = next(node for node in walk_plan(table.plan) if isinstance(node, MatchRecognize))
    return MatchRecognizeSpec(
        schema_of(node.input.columns), ("k",), True, node.order, node.match, schema_of(node.columns), "UTC"
    )


def random_clause(random: Random, alone: bool = False) -> tuple[list[str], list[str], Meaning]:
    """The variables, their definitions as texts, and what they mean.

    Args:
        alone: whether definitions ask of each row alone.
    """
    pattern = _pattern(random)
    names = list(variables_of(pattern))
    texts, definitions = [], {}
    for name in names:
        fitting = [
            (text, holds)
            for text, holds in _definitions(name)[: _ALONE if alone else None]
            # What a definition reads of a variable that is not in the pattern cannot be written.
            if not any(f"{other}.v" in text for other in _NAMES if other not in names)
        ]
        text, definitions[name] = random.choice(fitting)
        texts.append(text)
    return names, texts, Meaning(pattern, definitions, random.random() < 0.5, random.choice([None, None, 4, 9]))


def wanted(meaning: Meaning, rows: list[tuple[str | None, int, int]]) -> list[tuple[Any, ...]]:
    """Key, time, variable, rows of the match and value of each row of each match, by the definition."""
    found = []
    for key in ("x", "y", None):
        own = [(time, value) for k, value, time in rows if k == key]
        for start, taken in meaning.matches(own):
            for place, name in enumerate(taken):
                time, value = own[start + place]
                found.append((key, moment(time), name, len(taken), value))
    return sorted(found, key=repr)


def random_rows(random: Random) -> list[tuple[str | None, int, int]]:
    """Key, value, time."""
    rows, time = [], 0
    for _ in range(random.randint(4, 24)):
        time += random.randint(1, 2)
        rows.append((random.choice(["x", "x", None]), random.randint(0, 3), time))
    return rows


def found_in_steps(spec: MatchRecognizeSpec, rows: list[tuple[str | None, int, int]], random: Random) -> list[Any]:
    """What the operator finds, row by row, with watermarks, restarts and rescales between."""
    job = ChangelogJob(spec, [spec.input], 2)
    for key, value, time in rows:
        job.send([("+I", (key, value, moment(time)))], times=[time])
        step = random.choice(["", "", "watermark", "restart", "rescale"])
        if step:
            job.advance(time)
        if step in ("restart", "rescale"):
            job.restart(random.choice([1, 3]) if step == "rescale" else None)
    job.advance(MAX_TIMESTAMP)
    return job.log


def found_at_once(spec: MatchRecognizeSpec, rows: list[tuple[str | None, int, int]]) -> list[Any]:
    """What the operator finds in one batch of rows, the last one first."""
    job = ChangelogJob(spec, [spec.input], 1)
    job.send([("+I", (k, v, moment(at))) for k, v, at in rows[::-1]], times=[at for *_, at in rows[::-1]])
    job.advance(MAX_TIMESTAMP)
    return job.log


def test_random_clauses_find_what_the_definition_says() -> None:
    matches = 0
    for seed in range(_CASES):
        random = Random(seed)
        names, texts, meaning = random_clause(random)
        if next(meaning.empty_ways(), None) is not None:
            continue
        spec = spec_of(shown(meaning.pattern), names, texts, meaning)
        rows = random_rows(random)
        whole = found_at_once(spec, rows)
        found = [(key, at, name, count, value) for _, (key, at, name, _, count, value) in whole]
        assert sorted(found, key=repr) == wanted(meaning, rows), f"seed {seed}: {shown(meaning.pattern)} {texts}"
        # With times of matches: they do not depend on watermarks either.
        assert sorted(found_in_steps(spec, rows, random), key=repr) == sorted(whole, key=repr), f"seed {seed}"
        matches += len(found)
    assert matches > _CASES


@pytest.mark.parametrize("pattern", ["A*", "A? B*", "(A | B*)", "A{0,2}"])
def test_a_pattern_of_no_rows_is_refused(pattern: str) -> None:
    with pytest.raises(SqlError, match="may be a match of no rows at all"):
        spec_of(pattern, ["A"], ["TRUE"], Meaning(Variable("A"), {}, False, None))


@pytest.mark.parametrize("condition", ["v > 1", "v > PREV(v)"], ids=["columns", "objects"])
def test_columns_of_partitions_may_have_the_names_of_what_is_kept_beside_them(condition: str) -> None:
    names = ("v0", "__time", "__place", "__answers", "__key_group", "__deleted")
    columns, partition = ", ".join(f"{name} STRING" for name in names), ", ".join(names)
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        f"CREATE TABLE given ({columns}, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'filesystem', 'path' = 'none', 'format' = 'json')"
    )
    table = env.sql(
        f"SELECT * FROM given MATCH_RECOGNIZE (PARTITION BY {partition} ORDER BY ts MEASURES A.v AS a, B.v AS b "
        f"PATTERN (A B) DEFINE B AS {condition})"
    )
    assert table is not None
    node = next(node for node in walk_plan(table.plan) if isinstance(node, MatchRecognize))
    spec = MatchRecognizeSpec(
        schema_of(node.input.columns), names, True, node.order, node.match, schema_of(node.columns), "UTC"
    )
    job = ChangelogJob(spec, [spec.input], 2)
    keys = tuple(f"of {name}" for name in names)
    for value in (1, 2):
        job.send([("+I", (*keys, value, moment(value)))], times=[value])
        # Once before its time has come, and once behind it.
        job.restart(3)
        job.advance(value)
        job.restart(2)
    assert job.log == [("+I", (*keys, 1, 2))]

"""Random MATCH_RECOGNIZE of what Flink and Penstock both have, and what is found by it here.

Left out is most of what Flink refuses (docs/sql/match-recognize.md), and where it does otherwise (`surprises.py`): rows
that fit a greedy loop and what may come behind it, or a reluctant part and a part of no fixed length behind it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from penstock import StreamEnvironment
from penstock.tables.catalog.catalog import StreamTable
from penstock.tables.environment import stream_columns
from tests.engine.patterns.cases import Case
from tests.tables.matching.definition import moment

_LETTERS = "ABCD"
_GREEDY = ("", "", "+", "*", "?", "{2}", "{1,2}", "{2,}", "{0,2}")
_RELUCTANT = ("+?", "*?", "{1,3}?", "{2,}?", "{0,2}?")


def random_clause(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    count = random.randint(2, 4)
    names = [f"V{number}" for number in range(count)]
    quantifiers = [random.choice(_GREEDY + _RELUCTANT) for _ in names]
    # Flink refuses a greedy loop at the end, and patterns of no rows.
    quantifiers[-1] = random.choice(["", "", "{2}"])
    letters = _letters(random, quantifiers)
    defined = [_definition(random, names, place, letters[place]) for place in range(count)]
    must = [place for place in range(1, count) if not quantifiers[place].startswith(("*", "?", "{0"))]
    skips = ["PAST LAST ROW", "TO NEXT ROW", f"TO FIRST V{random.choice(must)}", f"TO LAST V{random.choice(must)}"]
    if any(one.startswith(("*", "?", "{0")) for one in quantifiers[: must[0]]):
        # A match may begin with that row, which fails the job.
        skips = skips[:2]
    within = random.choice(["", "", "WITHIN INTERVAL '4' SECOND", "WITHIN INTERVAL '9' SECOND"])
    last = names[-1]
    clause = (
        f"PARTITION BY k ORDER BY ts MEASURES FIRST({last}.n) AS f, LAST({last}.n) AS l, "
        f"{', '.join(_measure(random, name) for name in names)} ONE ROW PER MATCH "
        f"AFTER MATCH SKIP {random.choice(skips)} PATTERN "
        f"({' '.join(name + quantifier for name, quantifier in zip(names, quantifiers, strict=True))}) {within} "
        f"DEFINE {', '.join(f'{name} AS {text}' for name, text in zip(names, defined, strict=True))}"
    )
    return {"seed": seed, "clause": clause, "steps": _steps(random)}


def _letters(random: Random, quantifiers: list[str]) -> list[str]:
    """Which rows fit each variable: none of a loop's fit what may come right behind it, unless that is one row."""
    letters = [""] * len(quantifiers)
    for place in reversed(range(len(quantifiers))):
        behind = set()
        for after in range(place + 1, len(quantifiers)):
            behind |= set(letters[after])
            if not quantifiers[after].startswith(("*", "?", "{0")):
                break
        is_single = quantifiers[place] in ("", "{2}")
        is_fixed = is_single or (quantifiers[place] in _RELUCTANT and quantifiers[place + 1] in ("", "{2}"))
        free = [letter for letter in _LETTERS if is_fixed or letter not in behind]
        if not free:
            # Nothing is left for a greedy part: it is a single row.
            quantifiers[place], free = "", list(_LETTERS)
        letters[place] = "".join(random.sample(free, random.randint(1, min(2, len(free)))))
    return letters


def _definition(random: Random, names: list[str], place: int, letters: str) -> str:
    name = names[place]
    fits = " OR ".join(f"{name}.letter = '{letter}'" for letter in letters)
    more = [
        "",
        "",
        f" AND {name}.v > 0",
        f" AND (LAST({name}.v, 1) IS NULL OR {name}.v >= LAST({name}.v, 1))",
        f" AND SUM({name}.v) < 6",
    ]
    if place:
        other = random.choice(names[:place])
        more += [f" AND ({other}.v IS NULL OR {name}.v <> {other}.v)"]
        more += [f" AND {name}.v >= COALESCE(FIRST({other}.v), 0)"]
    return f"({fits}){random.choice(more)}"


def _measure(random: Random, name: str) -> str:
    given = [f"COUNT({name}.v)", f"SUM({name}.v)", f"MAX({name}.n)", f"FIRST({name}.n, 1)"]
    return f"{random.choice(given)} AS m{name}"


def _steps(random: Random) -> list[list[Any]]:
    at, steps = 0, []
    for _ in range(random.randint(8, 30)):
        at += random.choice([1, 1, 2]) * 1_000
        steps.append(["el", random.choice("jkk"), random.choice(_LETTERS), random.randint(0, 4), at])
    return steps


def found_here(given: Case) -> list[str]:
    """The rows as Flink's side writes them, in order of texts."""
    rows = [
        {"k": key, "letter": letter, "v": value, "n": number, "ts": moment(at)}
        for number, (_, key, letter, value, at) in enumerate(given["steps"])
    ]
    env = StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_collection(rows).assign_timestamps("ts")
    env.tables.catalog.add(StreamTable("events", stream, stream_columns(stream, "ts")))
    table = env.sql(f"SELECT * FROM events MATCH_RECOGNIZE ({given['clause']})")
    assert table is not None
    texts = [" ".join("null" if value is None else str(value) for value in row.values()) for row in table.collect()]
    return sorted(texts)

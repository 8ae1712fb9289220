"""SQL programs of our own in the form of Flink's, with results worked out by hand from what Flink's documentation says.

They have what Flink's sample of programs has not: each a feature, with a savepoint between two halves of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Step: TypeAlias = dict[str, Any]

_KINDS = ("+I", "-U", "+U", "-D")
_CHANGES = {"changelog-mode": "I,UB,UA,D"}
_UPSERTS = {"changelog-mode": "I,UA,D"}


def at(second: int) -> dict[str, str]:
    """A TIMESTAMP(3) of one minute."""
    return {"$LocalDateTime": f"2020-01-01T08:00:{second:02d}"}


def source(
    name: str,
    columns: Sequence[str],
    before: Sequence[Row],
    after: Sequence[Row],
    options: dict[str, str] | None = None,
) -> Step:
    """A table of two halves of rows; those that begin with a kind are of that kind, others are inserted."""
    rows = [[_row(row) for row in half] for half in (before, after)]
    step = {"step": "SourceTestStep", "name": name, "schemaComponents": list(columns), "options": options or {}}
    return {**step, "dataBeforeRestore": rows[0], "dataAfterRestore": rows[1]}


def _row(row: Row) -> Step:
    kind, values = (row[0], row[1:]) if row[0] in _KINDS else ("+I", row)
    return {"kind": kind, "values": list(values)}


def sink(columns: Sequence[str], before: Sequence[str], after: Sequence[str], name: str = "sink_t") -> Step:
    """A table and the changes that it gets, without the kind for what is inserted."""
    texts = [[row if row[:2] in _KINDS else f"+I[{row}]" for row in half] for half in (before, after)]
    step = {"step": "SinkTestStep", "name": name, "schemaComponents": list(columns)}
    return {**step, "expectedBeforeRestoreStrings": texts[0], "expectedAfterRestoreStrings": texts[1]}


def _program(name: str, *steps: Step | str) -> dict[str, Any]:
    made = [{"step": "SqlTestStep", "sql": step} if isinstance(step, str) else step for step in steps]
    return {"id": name, "class": "OwnPrograms", "run": made}


_LETTERS = source(
    "letters",
    ["a INT", "b STRING"],
    [(2, "a"), (4, "b"), (6, "c"), (1, "a"), (3, "b"), (5, "c")],
    [(2, "d"), (7, "e"), (0, "f")],
)
_LETTER = ["a INT", "b STRING"]

_LIMITS = (
    _program(
        "limit",
        _LETTERS,
        sink(_LETTER, ["2, a", "4, b", "6, c"], []),
        "INSERT INTO sink_t SELECT * FROM letters LIMIT 3",
    ),
    _program(
        "limit-and-offset-over-both-halves",
        _LETTERS,
        sink(_LETTER, ["1, a", "3, b", "5, c"], ["2, d", "7, e"]),
        "INSERT INTO sink_t SELECT * FROM letters LIMIT 5 OFFSET 3",
    ),
    _program(
        "sort-limit-ascending",
        _LETTERS,
        sink(_LETTER, ["1, a", "2, a", "3, b"], ["-D[3, b]", "0, f"]),
        "INSERT INTO sink_t SELECT * FROM letters ORDER BY a, b LIMIT 3",
    ),
    _program(
        "sort-limit-descending",
        _LETTERS,
        sink(_LETTER, ["6, c", "5, c", "4, b"], ["-D[4, b]", "7, e"]),
        "INSERT INTO sink_t SELECT * FROM letters ORDER BY a DESC LIMIT 3",
    ),
)

_TIMED = ["at TIMESTAMP(3)", "name STRING", "n INT", "clock AS PROCTIME()"]
_CHANGING = source(
    "changing",
    [*_TIMED, "WATERMARK FOR at AS at"],
    [
        (at(1), "a", 1),
        (at(2), "b", 2),
        ("-U", at(1), "a", 1),
        ("+U", at(3), "a", 5),
        (at(4), "b", 3),
        ("-D", at(2), "b", 2),
    ],
    [(at(7), "a", 4), ("-D", at(7), "a", 4), (at(12), "b", 6)],
    _CHANGES,
)
_WINDOW = ["ws TIMESTAMP(3)", "we TIMESTAMP(3)", "name STRING", "c BIGINT", "s INT"]
_TABLE_WINDOWS = (
    "INSERT INTO sink_t SELECT window_start, window_end, name, COUNT(*), SUM(n) FROM TABLE({}) GROUP BY name, "
)
_DAY = "2020-01-01T08:00"


def _window(start: str, end: str, rest: str) -> str:
    shown = [_DAY if second == "00" else f"{_DAY}:{second}" for second in (start, end)]
    return f"{', '.join(shown)}, {rest}"


_WINDOWS = (
    _program(
        "tumbling-windows-of-rows-that-change",
        _CHANGING,
        sink(
            _WINDOW,
            [],
            [_window("00", "05", "a, 1, 5"), _window("00", "05", "b, 1, 3"), _window("10", "15", "b, 1, 6")],
        ),
        _TABLE_WINDOWS.format("TUMBLE(TABLE changing, DESCRIPTOR(at), INTERVAL '5' SECOND)")
        + "window_start, window_end",
    ),
    _program(
        "hopping-windows-of-rows-that-change",
        _CHANGING,
        sink(
            _WINDOW,
            [],
            [
                "2020-01-01T07:59:55, 2020-01-01T08:00:05, a, 1, 5",
                "2020-01-01T07:59:55, 2020-01-01T08:00:05, b, 1, 3",
                _window("00", "10", "a, 1, 5"),
                _window("00", "10", "b, 1, 3"),
                _window("05", "15", "b, 1, 6"),
                _window("10", "20", "b, 1, 6"),
            ],
        ),
        _TABLE_WINDOWS.format("HOP(TABLE changing, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND)")
        + "window_start, window_end",
    ),
    *(
        _program(
            f"sessions-of-rows-that-change-{name}",
            _CHANGING,
            # Rows that were taken back hold no session together: that of a begins with second 3, that of b with 4.
            sink(
                _WINDOW,
                [],
                [_window("03", "05", "a, 1, 5"), _window("04", "06", "b, 1, 3"), _window("12", "14", "b, 1, 6")],
            ),
            query,
        )
        for name, query in (
            (
                "by-table-function",
                _TABLE_WINDOWS.format("SESSION(TABLE changing PARTITION BY name, DESCRIPTOR(at), INTERVAL '2' SECOND)")
                + "window_start, window_end",
            ),
            (
                "by-group",
                "INSERT INTO sink_t SELECT SESSION_START(at, INTERVAL '2' SECOND), SESSION_END(at, INTERVAL '2' "
                "SECOND), name, COUNT(*), SUM(n) FROM changing GROUP BY name, SESSION(at, INTERVAL '2' SECOND)",
            ),
        )
    ),
    _program(
        "sessions-by-what-is-computed",
        source(
            "said",
            ["w STRING", "n INT", "at TIMESTAMP(3)", "WATERMARK FOR at AS at"],
            [("a", 1, at(1)), ("B", 2, at(2)), ("A", 3, at(4)), ("b", 4, at(8))],
            [("a", 5, at(9)), ("c", 6, at(30))],
        ),
        sink(
            ["w STRING", "s TIMESTAMP(3)", "n INT"],
            [f"A, {_DAY}:01, 4", f"B, {_DAY}:02, 2"],
            [f"B, {_DAY}:08, 4", f"A, {_DAY}:09, 5", f"C, {_DAY}:30, 6"],
        ),
        "INSERT INTO sink_t SELECT UPPER(w), SESSION_START(at, INTERVAL '3' SECOND), SUM(n) FROM said GROUP BY "
        "UPPER(w), SESSION(at, INTERVAL '3' SECOND)",
    ),
    _program(
        "windows-by-the-watermark-of-the-source",
        source(
            "timed",
            ["at TIMESTAMP(3)", "n INT", "WATERMARK FOR at AS SOURCE_WATERMARK()"],
            [(at(1), 1), (at(4), 2), (at(11), 3)],
            [(at(12), 4), (at(21), 5)],
        ),
        sink(["ws TIMESTAMP(3)", "s INT"], [f"{_DAY}, 3"], [f"{_DAY}:10, 7", f"{_DAY}:20, 5"]),
        "INSERT INTO sink_t SELECT window_start, SUM(n) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '10' "
        "SECOND)) GROUP BY window_start, window_end",
    ),
    _program(
        "windows-that-begin-earlier",
        source("timed", ["at TIMESTAMP(3)", "n INT", "WATERMARK FOR at AS at"], [(at(1), 1), (at(4), 2)], [(at(9), 3)]),
        sink(["ws TIMESTAMP(3)", "n INT"], ["2020-01-01T07:59:54, 1", f"{_DAY}:04, 2"], [f"{_DAY}:04, 3"]),
        "INSERT INTO sink_t SELECT window_start, n FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '10' "
        "SECOND, -INTERVAL '6' SECOND))",
    ),
    _program(
        "the-clock-joins-rows-that-change-with-a-lookup",
        source("rates", ["name STRING", "rate INT"], [("a", 10), ("b", 20)], []),
        _CHANGING,
        sink(
            ["name STRING", "value_ INT"],
            ["a, 10", "b, 40", "-U[a, 10]", "+U[a, 50]", "b, 60", "-D[b, 40]"],
            ["a, 40", "-D[a, 40]", "b, 120"],
        ),
        "INSERT INTO sink_t SELECT c.name, c.n * r.rate FROM changing AS c JOIN rates FOR SYSTEM_TIME AS OF c.clock AS "
        "r ON c.name = r.name",
    ),
)

_SCORES = source(
    "scores",
    ["name STRING", "score BIGINT", "PRIMARY KEY (name) NOT ENFORCED"],
    [("A", 1), ("B", 2), ("-U", "A", 1), ("+U", "A", 3)],
    [("-D", "B", 2), ("C", 5)],
    _CHANGES,
)
_SCORE = ["name STRING", "score BIGINT"]
_EVENTS = source(
    "events",
    ["op STRING", "id INT", "name STRING"],
    [("c", 1, "A"), ("c", 2, "B"), ("u", 1, "A2")],
    [("d", 2, None), ("u", 1, "A3"), ("c", 3, "C")],
)
_CODES = "op_mapping => MAP['c', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE']"
_CHANGELOGS = (
    _program(
        "changelog-there-and-back",
        _SCORES,
        "CREATE VIEW said AS SELECT * FROM TO_CHANGELOG(input => TABLE scores)",
        sink(_SCORE, ["A, 1", "B, 2", "-U[A, 1]", "+U[A, 3]"], ["-D[B, 2]", "C, 5"]),
        "INSERT INTO sink_t SELECT * FROM FROM_CHANGELOG(input => TABLE said)",
    ),
    _program(
        "to-changelog-with-keys-in-front",
        _SCORES,
        sink(
            ["score BIGINT", "what STRING", "name STRING"],
            ["1, INSERT, A", "2, INSERT, B", "1, UPDATE_BEFORE, A", "3, UPDATE_AFTER, A"],
            ["2, DELETE, B", "5, INSERT, C"],
        ),
        "INSERT INTO sink_t SELECT * FROM TO_CHANGELOG(TABLE scores PARTITION BY score, DESCRIPTOR(what))",
    ),
    _program(
        "from-changelog-of-updates-by-key",
        _EVENTS,
        sink(
            ["id INT", "name STRING"],
            ["1, A", "2, B", "-U[1, A]", "+U[1, A2]"],
            ["-D[2, B]", "-U[1, A2]", "+U[1, A3]", "3, C"],
        ),
        f"INSERT INTO sink_t SELECT * FROM FROM_CHANGELOG(input => TABLE events PARTITION BY id, {_CODES})",
    ),
    _program(
        "from-changelog-without-what-is-not-known",
        source("events", ["id INT", "op STRING"], [(1, "c"), (2, "x"), (3, None)], [(4, "c"), (1, "d")]),
        sink(["id INT"], ["1"], ["4", "-D[1]"]),
        "INSERT INTO sink_t SELECT * FROM FROM_CHANGELOG(input => TABLE events, op_mapping => MAP['c', 'INSERT', 'd', "
        "'DELETE'], error_handling => 'SKIP')",
    ),
    _program(
        "versions-behind-a-condition",
        source(
            "asked",
            ["k STRING", "at TIMESTAMP(3)", "WATERMARK FOR at AS at"],
            [("a", at(2)), ("a", at(5)), ("b", at(6))],
            [("a", at(12)), ("b", at(12)), ("b", at(20))],
        ),
        source(
            "rates",
            ["k STRING PRIMARY KEY NOT ENFORCED", "r INT", "at TIMESTAMP(3)", "WATERMARK FOR at AS at"],
            [("+U", "a", 1, at(1)), ("+U", "a", 9, at(4)), ("+U", "b", 2, at(5))],
            [("+U", "a", 3, at(10)), ("-D", "b", 2, at(15)), ("+U", "c", 4, at(30))],
            {"changelog-mode": "I,UA,D"},
        ),
        "CREATE VIEW small AS SELECT k, r, at FROM rates WHERE r < 5",
        sink(
            ["k STRING", "at TIMESTAMP(3)", "r INT"],
            ["a, 2020-01-01T08:00:02, 1", "a, 2020-01-01T08:00:05, null"],
            [
                "b, 2020-01-01T08:00:06, 2",
                "a, 2020-01-01T08:00:12, 3",
                "b, 2020-01-01T08:00:12, 2",
                "b, 2020-01-01T08:00:20, null",
            ],
        ),
        "INSERT INTO sink_t SELECT a.k, a.at, r FROM asked a LEFT JOIN small FOR SYSTEM_TIME AS OF a.at "
        "ON a.k = small.k",
    ),
    _program(
        "conditions-that-are-asked-once-over-updates-by-key",
        source(
            "updated",
            ["a STRING PRIMARY KEY NOT ENFORCED", "b INT", "at TIMESTAMP(3)", "WATERMARK FOR at AS at"],
            [("+U", "x", 1, at(1)), ("+U", "y", 2, at(2)), ("+U", "x", 12, at(3)), ("+U", "z", 30, at(4))],
            [("+U", "z", 3, at(5)), ("-D", "y", None, None), ("+U", "x", 11, at(6)), ("+U", "z", 4, at(7))],
            {"changelog-mode": "I,UA,D"},
        ),
        sink(["a STRING", "b INT"], ["y, 2"], ["-D[y, 2]", "z, 4"]),
        "INSERT INTO sink_t SELECT a, b FROM updated WHERE b < 10 AND RAND() >= 0",
    ),
    _program(
        "to-changelog-of-a-table-with-such-a-column",
        source("kept", ["op STRING", "n INT"], [("x", 1)], [("y", 2)]),
        sink(["op STRING", "n INT", "of STRING"], ["INSERT, 1, x"], ["INSERT, 2, y"]),
        "INSERT INTO sink_t SELECT op, n, op0 FROM TO_CHANGELOG(input => TABLE kept)",
    ),
    _program(
        "nulls-where-a-connector-promises-none",
        source("promised", ["a INT NOT NULL", "b INT"], [(1, 1), (None, 2)], [(3, None), (None, 4)]),
        sink(["a INT NOT NULL", "b INT"], ["1, 1"], ["3, null"]),
        "SET 'table.exec.sink.not-null-enforcer' = 'DROP'",
        "INSERT INTO sink_t SELECT a, b FROM promised WHERE b IS NULL OR b > 0",
    ),
    _program(
        "lists-without-nulls",
        source("words", ["k STRING", "v INT"], [("a", 1), ("a", None), ("b", None)], [("a", 2)]),
        sink(
            ["k STRING", "l ARRAY<INT>", "n ARRAY<INT>"],
            ["a, [1], [1, null]", "b, null, [null]"],
            ["-U[a, [1], [1, null]]", "+U[a, [1, 2], [1, null, 2]]"],
        ),
        "INSERT INTO sink_t SELECT k, ARRAY_AGG(v IGNORE NULLS), ARRAY_AGG(v RESPECT NULLS) FROM words GROUP BY k",
    ),
    _program(
        "aggregate-of-updates-by-key",
        _EVENTS,
        sink(["c BIGINT", "m STRING"], ["2, B"], ["-D[2, B]", "2, C"]),
        f"INSERT INTO sink_t SELECT COUNT(*), MAX(name) FROM FROM_CHANGELOG(input => TABLE events PARTITION BY id, "
        f"{_CODES})",
    ),
)

_NUMBERS = source("numbers", ["a INT"], [(1,), (5,), (None,)], [])
_BOUNDS = source("bounds", ["b INT"], [(2,), (4,)], [(9,), (None,)])
_QUANTIFIED = tuple(
    _program(
        name,
        _NUMBERS,
        _BOUNDS,
        sink(["a INT"], before, after),
        f"INSERT INTO sink_t SELECT a FROM numbers WHERE {condition} (SELECT b FROM bounds)",
    )
    for name, condition, before, after in (
        ("greater-than-any", "a > ANY", ["5"], []),
        ("greater-than-some", "a > SOME", ["5"], []),
        ("greater-than-all", "a > ALL", ["5"], ["-D[5]"]),
        ("not-greater-than-any", "NOT a > ANY", ["1"], ["-D[1]"]),
        ("not-greater-than-all", "NOT a > ALL", ["1"], ["5"]),
    )
)

_MOVES = source(
    "moves",
    ["id INT", "team STRING", "score INT", "PRIMARY KEY (id) NOT ENFORCED"],
    [(1, "a", 5), (2, "b", 6), (3, "c", 7), ("+U", 1, "b", 5), ("+U", 2, "a", 6), ("+U", 3, "a", 7)],
    [("+U", 1, "c", 5), ("+U", 2, "c", 1), ("+U", 3, "b", 7)],
    _UPSERTS,
)
_KEYED = {"sink-changelog-mode-enforced": "I,UA,D"}
_MOVED = {
    **sink(
        ["id INT PRIMARY KEY NOT ENFORCED", "team STRING", "s INT"],
        ["1, b, 5", "2, a, 6", "3, a, 7"],
        ["+U[1, c, 5]", "+U[2, c, 1]", "+U[3, b, 7]"],
    ),
    "options": _KEYED,
}
_KEPT = (
    # What a row of a key was goes away in one partition, and what it is comes in another, perhaps before.
    _program(
        "first-rows-that-change-their-partition",
        _MOVES,
        _MOVED,
        "INSERT INTO sink_t SELECT id, team, score FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY team ORDER BY score "
        "DESC) AS n FROM moves) WHERE n <= 3",
    ),
    _program(
        "over-rows-that-change-their-partition",
        _MOVES,
        {
            **_MOVED,
            "expectedBeforeRestoreStrings": ["+I[1, b, 5]", "+I[2, a, 6]", "+I[3, a, 13]"],
            "expectedAfterRestoreStrings": ["+U[1, c, 5]", "+U[2, c, 6]", "+U[3, b, 7]"],
        },
        "INSERT INTO sink_t SELECT id, team, SUM(score) OVER (PARTITION BY team ORDER BY id) FROM moves",
    ),
    _program(
        "joined-rows-that-change-their-key",
        _MOVES,
        source("teams", ["team STRING", "s INT"], [("a", 1), ("b", 2), ("c", 3)], []),
        {
            **_MOVED,
            "expectedBeforeRestoreStrings": ["+I[1, b, 2]", "+I[2, a, 1]", "+I[3, a, 1]"],
            "expectedAfterRestoreStrings": ["+U[1, c, 3]", "+U[2, c, 3]", "+U[3, b, 2]"],
        },
        "INSERT INTO sink_t SELECT id, team, s FROM moves JOIN teams USING (team)",
    ),
    _program(
        "percentiles",
        _LETTERS,
        # By weight, there are n values n: 21 of them, and then 30.
        sink(["m ARRAY<DOUBLE>", "w DOUBLE"], ["[1.0, 3.5], 5.0"], ["-U[[1.0, 3.5], 5.0]", "+U[[0.0, 3.0], 5.0]"]),
        "INSERT INTO sink_t SELECT PERCENTILE(a, ARRAY[0.0, 0.5]), PERCENTILE(a, 0.5, a) FROM letters",
    ),
    _program(
        "percentile-of-large-weights",
        _LETTERS,
        sink(["w DOUBLE"], ["3.0"], []),
        "INSERT INTO sink_t SELECT PERCENTILE(a, 0.5, CASE a WHEN 3 THEN 9000000000000 ELSE 1 END) FROM letters",
    ),
    _program(
        "percentile-of-rows-that-change",
        _SCORES,
        sink(["p DOUBLE"], ["2.25"], ["-U[2.25]", "+U[3.5]"]),
        "INSERT INTO sink_t SELECT PERCENTILE(score, 0.25) FROM scores",
    ),
    _program(
        "updates-that-leave-a-condition-are-deletes",
        _SCORES,
        {
            **sink(
                ["name STRING PRIMARY KEY NOT ENFORCED", "score BIGINT"], ["A, 1", "B, 2", "-D[A, 1]"], ["-D[B, 2]"]
            ),
            "options": _KEYED,
        },
        "INSERT INTO sink_t SELECT name, score FROM scores WHERE score < 3",
    ),
    _program(
        "groups-that-leave-having-are-deletes",
        _LETTERS,
        {
            **sink(
                ["b STRING PRIMARY KEY NOT ENFORCED", "n INT"],
                ["a, 2", "+U[a, 3]", "b, 4", "-D[b, 4]"],
                ["d, 2", "f, 0"],
            ),
            "options": _KEYED,
        },
        "INSERT INTO sink_t SELECT b, SUM(a) FROM letters GROUP BY b HAVING SUM(a) < 5",
    ),
    _program(
        "without-the-row-before",
        _SCORES,
        {
            **sink(
                ["name STRING PRIMARY KEY NOT ENFORCED", "score BIGINT"],
                ["A, 1", "B, 2", "+U[A, 3]"],
                ["-D[B, 2]", "C, 5"],
            ),
            "options": _KEYED,
        },
        "INSERT INTO sink_t SELECT name, score FROM scores",
    ),
    _program(
        "deletes-by-key-alone",
        source(
            "scores",
            ["name STRING", "score BIGINT", "PRIMARY KEY (name) NOT ENFORCED"],
            [("A", 1), ("+U", "B", 2), ("+U", "A", 3)],
            [("-D", "B", None), ("-D", "Z", None), ("+U", "A", 4)],
            {**_UPSERTS, "source.produces-delete-by-key": "true"},
        ),
        sink(["s BIGINT", "c BIGINT"], ["5, 2"], ["-D[5, 2]", "4, 1"]),
        "INSERT INTO sink_t SELECT SUM(score), COUNT(*) FROM scores",
    ),
)

_PLAYERS = source(
    "players",
    ["name STRING", "score INT", "PRIMARY KEY (name) NOT ENFORCED"],
    [("A", 1), ("B", 2), ("+U", "A", 3), ("C", 4), ("D", 5), ("-D", "D", 5)],
    [("+U", "C", 0), ("E", 9), ("+U", "B", 8), ("-D", "E", 9)],
    _UPSERTS,
)
_PLAYER = ["name STRING PRIMARY KEY NOT ENFORCED", "score INT"]
_FIRST = "SELECT *, ROW_NUMBER() OVER (ORDER BY score DESC) AS n FROM players"
_FIRST_ROWS = tuple(
    # What leaves the first rows leaves a table of their keys, though another row takes its rank.
    _program(
        name,
        _PLAYERS,
        {**sink(_PLAYER, ["C, 4", "A, 3"], ["-D[C, 4]", "B, 8"]), "options": _KEYED},
        f"INSERT INTO sink_t SELECT name, score FROM {query}",
    )
    for name, query in (
        ("first-rows-by-another-key-than-their-rank", f"({_FIRST}) WHERE n <= 2"),
        ("sorted-rows-by-another-key-than-their-rank", "players ORDER BY score DESC LIMIT 2"),
    )
)

_COLLECTIONS = source(
    "baskets",
    ["who STRING", "items ARRAY<ROW<item STRING, n INT>>", "tags MAP<STRING, INT>", "words MULTISET<STRING>"],
    [("Bob", [["pen", 1], ["cup", 2]], [("a", 1), ("b", 2)], [("x", 2)]), ("Nil", None, None, None)],
    [("Ann", [["hat", 3]], [("c", None)], [("y", 1)])],
)
_ELEMENTS = tuple(
    _program(
        name,
        _COLLECTIONS,
        sink(["who STRING", *columns], before, after),
        f"INSERT INTO sink_t SELECT who, {selected} FROM baskets {joined}",
    )
    for name, columns, selected, joined, before, after in (
        (
            "elements-with-their-numbers",
            ["item STRING", "n INT", "place INT"],
            "item, n, place",
            "CROSS JOIN UNNEST(items) WITH ORDINALITY AS u (item, n, place)",
            ["Bob, pen, 1, 1", "Bob, cup, 2, 2"],
            ["Ann, hat, 3, 1"],
        ),
        (
            "entries-of-maps",
            ["k STRING", "v INT"],
            "k, v",
            "LEFT JOIN UNNEST(tags) AS u (k, v) ON TRUE",
            ["Bob, a, 1", "Bob, b, 2", "Nil, null, null"],
            ["Ann, c, null"],
        ),
        ("elements-of-multisets", ["word STRING"], "u.*", ", UNNEST(words) AS u", ["Bob, x", "Bob, x"], ["Ann, y"]),
        (
            "a-query-over-the-elements-of-each-row",
            ["item STRING", "m INT"],
            "m.item, m.m",
            "CROSS JOIN LATERAL (SELECT UPPER(item), n + CHAR_LENGTH(who) FROM UNNEST(items) WHERE n > 1) "
            "AS m (item, m)",
            ["Bob, CUP, 5"],
            ["Ann, HAT, 6"],
        ),
        (
            "a-query-of-elements-that-keeps-rows-without-any",
            ["item STRING", "n INT"],
            "item, n",
            "LEFT JOIN LATERAL (SELECT * FROM UNNEST(items)) ON TRUE",
            ["Bob, pen, 1", "Bob, cup, 2", "Nil, null, null"],
            ["Ann, hat, 3"],
        ),
        (
            "a-query-of-elements-with-names-of-its-own",
            ["n INT"],
            "n + 1",
            ", LATERAL (SELECT who AS n FROM UNNEST(items) AS u (item, who))",
            ["Bob, 2", "Bob, 3"],
            ["Ann, 4"],
        ),
    )
)

PROGRAMS = (*_LIMITS, *_WINDOWS, *_CHANGELOGS, *_QUANTIFIED, *_KEPT, *_FIRST_ROWS, *_ELEMENTS)

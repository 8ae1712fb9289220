"""Regular expressions of SQL: what Flink 2.3 finds by them, and which of Java's have no counterpart here."""

from __future__ import annotations

from typing import Any, Final

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError, SqlValidationError
from penstock.tables.functions.java_patterns import java_pattern

_CALLS: Final = "REGEXP(t, p) AS there, REGEXP_EXTRACT(t, p) AS found, REGEXP_REPLACE(t, p, '_') AS rest"


def _found(text: str, pattern: str) -> tuple[Any, ...]:
    quoted, literal = (value.replace("'", "''") for value in (text, pattern))
    calls = _CALLS.replace("p)", f"'{literal}')").replace("p, ", f"'{literal}', ")
    table = StreamEnvironment(runtime="local", parallelism=1).sql(f"SELECT {calls} FROM (VALUES '{quoted}') AS v (t)")
    assert table is not None
    return tuple(next(iter(table.collect())).values())


@pytest.mark.parametrize(
    ("text", "pattern", "wanted"),
    [
        ("aé1", r"\p{L}+", (True, "aé", "_1")),
        ("aé1", r"[\p{L}]+", (True, "aé", "_1")),
        ("aé1", r"[^\p{L}]+", (True, "1", "aé_")),
        ("aé1", r"\P{L}", (True, "1", "aé_")),
        ("aé1", r"\pL", (True, "a", "__1")),
        ("aé1", r"[\P{L}a]+", (True, "a", "_é_")),
        ("aé1", r"\p{Alpha}+", (True, "a", "_é1")),
        ("aé1", r"[\p{Lower}\d]+", (True, "a", "_é_")),
        ("É", r"\p{IsLu}", (True, "É", "_")),
        ("€", r"\p{Sc}", (True, "€", "_")),
        ("aé1", r"\w+", (True, "a", "_é_")),
        ("é", r"\w", (False, None, "é")),
        ("٣", r"\d", (False, None, "٣")),
        ("aÉ", "(?i)é", (False, None, "aÉ")),
        ("é", r"\bé\b", (True, "é", "_")),
        ("a\xa0b", r"\h", (True, "\xa0", "a_b")),
        ("a\xa0b", r"\s", (False, None, "a\xa0b")),
        ("a\r\nb", r"\R", (True, "\r\n", "a_b")),
        ("xa\n", r"a\Z", (True, "a", "x_\n")),
        ("xa\n", r"a\z", (False, None, "xa\n")),
        ("xA", r"\x{41}", (True, "A", "x_")),
        ("xA", r"\0101", (True, "A", "x_")),
        ("a\x1b", r"\e", (True, "\x1b", "a_")),
        ("a.b", r"\Q.b", (True, ".b", "a_")),
        ("a]b", r"[\Q]\E]", (True, "]", "a_b")),
        ("aa", r"(?<n>a)\k<n>", (True, "aa", "_")),
        ("a]", "[]a]", (True, "a", "__")),
        ("a&b", "[a&b]+", (True, "a&b", "_")),
        ("a-b", r"[\w-]+", (True, "a-b", "_")),
        ("a.b-c@d", r"[\w-\.]+", (True, "a.b-c", "_@_")),
        ("a-\xa0y", r"[\h-z]+", (True, "-\xa0", "a_y")),
        ("a|b", "[|~|]", (True, "|", "a_b")),
        ("aBc", "a(?i:b)c", (True, "aBc", "_")),
        ("(", "[(?:]", (True, "(", "_")),
        *(
            (text, text, (False, None, None))
            for text in ("(", "a{,2}", "{", "(?#c)a", "(?P<n>a)", "(?<n_>a)", r"\y", "a{2,1}", "(" * 9_000)
        ),
    ],
)
def test_a_pattern_finds_what_it_does_in_java(text: str, pattern: str, wanted: tuple[Any, ...]) -> None:
    assert _found(text, pattern) == wanted


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"\p{IsGreek}", "the property 'IsGreek'"),
        ("[a-z&&[^b]]", "a set within a set"),
        ("[a[b]]", "a set within a set"),
        (r"\Ga", r"\\\\G"),
        (r"a(?i)b", "flags that it has not there"),
        (r"(?iu)é", "flags that it has not there"),
        (r"[\H]", r"\\\\H"),
        ("(?<=a+)b", "a look-behind of no fixed length"),
    ],
)
def test_what_java_has_alone_is_refused(pattern: str, what: str) -> None:
    for call in (f"REGEXP('a', '{pattern}')", f"STR_TO_MAP('a', '{pattern}')"):
        with pytest.raises(SqlValidationError, match=what):
            StreamEnvironment(runtime="local").sql(f"SELECT {call}")
    table = StreamEnvironment(runtime="local").sql(f"SELECT REGEXP('a', p) FROM (VALUES '{pattern}') AS t (p)")
    assert table is not None
    with pytest.raises(JobFailedError, match=what):
        list(table.collect())


def test_complements_and_categories_cover_all_characters() -> None:
    for pattern in (r"[\p{L}\P{L}]", r"[\p{Punct}\P{Punct}]"):
        found = java_pattern(pattern)
        assert found is not None
        assert all(found.fullmatch(sign) for sign in ("\0", "a", "é", "!", "\U0010ffff"))

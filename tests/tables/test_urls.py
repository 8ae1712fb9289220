"""PARSE_URL: parts of addresses as Flink 2.3 answers."""

from __future__ import annotations

from typing import Final

import pytest

from penstock import StreamEnvironment

_URL: Final = "http://Us:pw@Example.COM:80/p/a?k=a%20b+c&k=2&l=&K=z&kk=#Fr%41"
_QUERY: Final = "k=a%20b+c&k=2&l=&K=z&kk="
_PARTS: Final = ("PROTOCOL", "HOST", "PATH", "QUERY", "REF", "FILE", "AUTHORITY", "USERINFO")
_NONE: Final = (None,) * len(_PARTS)


def _values(calls: list[str]) -> tuple[str | None, ...]:
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql(f"SELECT {', '.join(f'{call} AS v{place}' for place, call in enumerate(calls))}")
    assert table is not None
    return tuple(next(iter(table.collect())).values())


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        (_URL, ("http", "Example.COM", "/p/a", _QUERY, "Fr%41", f"/p/a?{_QUERY}", "Us:pw@Example.COM:80", "Us:pw")),
        ("HTTP://h", ("http", "h", "", None, None, "", "h", None)),
        ("http://h?", ("http", "h", "", "", None, "?", "h", None)),
        ("http://h#", ("http", "h", "", None, "", "", "h", None)),
        ("http:///p", ("http", "", "/p", None, None, "/p", "", None)),
        ("mailto:a@b", ("mailto", "", "a@b", None, None, "a@b", None, None)),
        (" http://h/a b?c d ", ("http", "h", "/a b", "c d", None, "/a b?c d", "h", None)),
        ("http://[::1]:80/x", ("http", "[::1]", "/x", None, None, "/x", "[::1]:80", None)),
        ("https://h/p;x=1?y", ("https", "h", "/p;x=1", "y", None, "/p;x=1?y", "h", None)),
        ("no url", _NONE),
        ("foo://x/y", _NONE),
        ("//h/p", _NONE),
        ("http://h:x/", _NONE),
        ("http://[::1", _NONE),
    ],
)
def test_the_parts_of_an_address(url: str, wanted: tuple[str | None, ...]) -> None:
    assert _values([f"PARSE_URL('{url}', '{part}')" for part in _PARTS]) == wanted


def test_a_key_of_the_query_has_its_first_value_as_it_stands() -> None:
    keys = {"k": "a%20b+c", "l": "", "m": None, "kk": "", "K": "z", ".": None, "k=": None}
    assert _values([f"PARSE_URL('{_URL}', 'QUERY', '{key}')" for key in keys]) == tuple(keys.values())
    assert _values([f"PARSE_URL('{_URL}', 'HOST', 'k')", f"PARSE_URL('{_URL}', 'host')"]) == (None, None)
    assert _values(["PARSE_URL('http://h/?a=1?b=2', 'QUERY', 'b')"]) == (None,)

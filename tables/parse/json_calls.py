"""Calls of JSON functions, which SQL writes with words: `JSON_OBJECT('a' VALUE 1 ABSENT ON NULL)`.

The expression parser takes them; each becomes a call with plain arguments, in which keywords say what the words did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.tables import types as t
from penstock.tables.parse import nodes as n
from penstock.tables.parse.expressions import Expressions
from penstock.tables.parse.type_parser import parse_type
from penstock.tables.types import SqlType

_MADE: Final = ("JSON_OBJECT", "JSON_ARRAY", "JSON")
"""Their results stand as JSON within JSON, not as texts."""
ABSENT, NULL = "ABSENT", "NULL"
JSON, VALUE = "JSON", "VALUE"
"""Keywords of nulls, and of values: what is JSON already, and what becomes JSON."""

_INSTEAD: Final = ((NULL,), ("EMPTY", "ARRAY"), ("EMPTY", "OBJECT"), ("ERROR",))
"""What JSON_QUERY may give where there is nothing to give."""
_RETURNED: Final = {
    "STRING": t.STRING,
    "BOOLEAN": t.BOOLEAN,
    "INTEGER": t.INT,
    "INT": t.INT,
    "BIGINT": t.BIGINT,
    "DOUBLE": t.DOUBLE,
}


def json_call(parser: Expressions, at: int, name: str) -> n.Node:
    """What stands in the brackets of a call, and these."""
    found = _CALLS[name](parser, at, name)
    parser.cursor.expect(")", where=f"at the end of {name}")
    return found


def gathered_json(parser: Expressions, at: int, name: str) -> n.Call:
    """A call of an aggregate, whose FILTER and OVER follow: a function of the list of all values."""
    cursor = parser.cursor
    if name == "JSON_ARRAYAGG":
        item, nulls = parser.expression(), ABSENT
    else:
        key, value = _pair(parser)
        item, nulls = n.Constructor(at, "ROW", (key, value)), NULL
    kept = _nulls(parser, nulls)
    cursor.expect(")", where=f"at the end of {name}")
    items = parser.behind_call(n.Call(at, "ARRAY_AGG", _plain(item), said=name))
    return n.Call(at, name, _plain(kept, items))


def _plain(*values: n.Node) -> tuple[n.Argument, ...]:
    return tuple(n.Argument(value.at, value) for value in values)


def _object(parser: Expressions, at: int, name: str) -> n.Node:
    values: list[n.Node] = []
    if not parser.cursor.sees(")") and not _sees_nulls(parser):
        while True:
            key, value = _pair(parser)
            values += [key, _kind_of(value), value]
            if not parser.cursor.accept(","):
                break
    return n.Call(at, name, _plain(_nulls(parser, NULL), *values))


def _array(parser: Expressions, at: int, name: str) -> n.Node:
    values: list[n.Node] = []
    if not parser.cursor.sees(")") and not _sees_nulls(parser):
        while True:
            value = parser.expression()
            values += [_kind_of(value), value]
            if not parser.cursor.accept(","):
                break
    return n.Call(at, name, _plain(_nulls(parser, ABSENT), *values))


def _pair(parser: Expressions) -> tuple[n.Node, n.Node]:
    """`[KEY] key VALUE value`, or `key: value`."""
    cursor = parser.cursor
    if cursor.sees("KEY") and cursor.ahead(1).word not in ("VALUE", ":", ".", ","):
        cursor.take()
    key = parser.expression()
    if not cursor.accept(":"):
        cursor.expect("VALUE", where="between the key and the value")
    return key, parser.expression()


def _kind_of(value: n.Node) -> n.Keyword:
    is_json = isinstance(value, n.Call) and value.name in _MADE
    return n.Keyword(value.at, JSON if is_json else VALUE)


def _sees_nulls(parser: Expressions) -> bool:
    return any(parser.cursor.sees(word, "ON", "NULL") for word in (NULL, ABSENT))


def _nulls(parser: Expressions, otherwise: str) -> n.Keyword:
    at = parser.cursor.at
    for word in (NULL, ABSENT):
        if parser.cursor.accept(word, "ON", "NULL"):
            return n.Keyword(at, word)
    return n.Keyword(at, otherwise)


def _value(parser: Expressions, at: int, name: str) -> n.Node:
    """`JSON_VALUE(text, path [RETURNING type] [NULL | ERROR | DEFAULT x ON EMPTY] [... ON ERROR])`."""
    cursor = parser.cursor
    text = parser.expression()
    cursor.expect(",", where="behind the text of JSON_VALUE")
    path = parser.expression()
    kind = _returned(parser) if cursor.accept("RETURNING") else t.STRING
    found: dict[str, tuple[n.Node, n.Node]] = {}
    none = (n.Keyword(at, NULL), n.Cast(at, n.NullLiteral(at), t.STRING, False))
    while not cursor.sees(")"):
        what, otherwise = none
        place = cursor.at
        if cursor.accept("DEFAULT"):
            what, otherwise = n.Keyword(place, "DEFAULT"), n.Cast(place, parser.expression(), t.STRING, False)
        elif cursor.accept("ERROR"):
            what = n.Keyword(place, "ERROR")
        else:
            cursor.expect(NULL, where="in JSON_VALUE")
        cursor.expect("ON", where="in JSON_VALUE")
        word = next((word for word in ("EMPTY", "ERROR") if cursor.accept(word)), None)
        if word is None:
            raise cursor.expected("EMPTY or ERROR", "behind ON")
        found[word] = (what, otherwise)
    if not found:
        call = n.Call(at, name, _plain(text, path))
    else:
        call = n.Call(at, name, _plain(text, path, *found.get("EMPTY", none), *found.get("ERROR", none)))
    return call if kind == t.STRING else n.Cast(at, call, kind.with_nullable(True), True)


def _returned(parser: Expressions) -> SqlType:
    cursor = parser.cursor
    for word, kind in _RETURNED.items():
        if cursor.accept(word):
            return kind
    raise cursor.expected(", ".join(_RETURNED), "behind RETURNING")


def _query(parser: Expressions, at: int, name: str) -> n.Node:
    """`JSON_QUERY(text, path [RETURNING type] [wrapper] [NULL | EMPTY ARRAY | EMPTY OBJECT | ERROR ON EMPTY] ...)`."""
    cursor = parser.cursor
    text = parser.expression()
    cursor.expect(",", where="behind the text of JSON_QUERY")
    path = parser.expression()
    place = cursor.at
    kind = parse_type(cursor) if cursor.accept("RETURNING") else t.STRING
    if not kind.is_text and kind.with_nullable(True) != t.array(t.STRING):
        raise cursor.source.unsupported(place, f"JSON_QUERY returns STRING or ARRAY<STRING>, not {kind}; CAST it")
    wrapper = _wrapper(parser)
    instead = {"EMPTY": NULL, "ERROR": NULL}
    while not cursor.sees(")"):
        words = next((words for words in _INSTEAD if cursor.accept(*words)), None)
        if words is None:
            raise cursor.expected("NULL, EMPTY ARRAY, EMPTY OBJECT or ERROR", "in JSON_QUERY")
        cursor.expect("ON", where="in JSON_QUERY")
        where = next((word for word in instead if cursor.accept(word)), None)
        if where is None:
            raise cursor.expected("EMPTY or ERROR", "behind ON")
        instead[where] = " ".join(words)
    keywords = (n.Keyword(at, word) for word in (wrapper, *instead.values()))
    return n.Call(at, name if kind.is_text else "JSON_QUERY_TEXTS", _plain(text, path, *keywords))


def _wrapper(parser: Expressions) -> str:
    """`WITHOUT | WITH [CONDITIONAL | UNCONDITIONAL] [ARRAY] WRAPPER`."""
    cursor = parser.cursor
    word = "WITHOUT"
    if not cursor.accept("WITHOUT"):
        if not cursor.accept("WITH"):
            return word
        word = "CONDITIONAL" if cursor.accept("CONDITIONAL") else "UNCONDITIONAL"
        cursor.accept("UNCONDITIONAL")
    cursor.accept("ARRAY")
    cursor.expect("WRAPPER", where="in JSON_QUERY")
    return word


def _exists(parser: Expressions, at: int, name: str) -> n.Node:
    """`JSON_EXISTS(text, path [TRUE | FALSE | UNKNOWN | ERROR ON ERROR])`."""
    cursor = parser.cursor
    text = parser.expression()
    cursor.expect(",", where="behind the text of JSON_EXISTS")
    path = parser.expression()
    for word in ("TRUE", "FALSE", "UNKNOWN", "ERROR"):
        if cursor.accept(word, "ON", "ERROR"):
            return n.Call(at, name, _plain(text, path, n.Keyword(at, word)))
    return n.Call(at, name, _plain(text, path))


_CALLS: Final[dict[str, Callable[[Expressions, int, str], n.Node]]] = {
    "JSON_OBJECT": _object,
    "JSON_ARRAY": _array,
    "JSON_VALUE": _value,
    "JSON_QUERY": _query,
    "JSON_EXISTS": _exists,
}
JSON_CALLS: Final = tuple(_CALLS)
JSON_AGGREGATES: Final = ("JSON_OBJECTAGG", "JSON_ARRAYAGG")
"""The names of these functions."""

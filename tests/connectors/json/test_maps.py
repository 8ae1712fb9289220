"""Maps in JSON: what their writers and readers make of keys that occur twice."""

from __future__ import annotations

import json

import pyarrow as pa

from penstock.connectors.json.maps import MapTexts, rows_of
from penstock.connectors.json.texts import JsonForm
from penstock.connectors.json.types import json_lines

INNER = pa.map_(pa.string(), pa.int64())
SCHEMA = pa.schema(
    [
        ("m", INNER),
        ("rows", pa.list_(pa.struct([("at", pa.int64()), ("m", INNER)]))),
        ("deep", pa.map_(pa.int64(), INNER)),
        ("s", pa.struct([("m", INNER), ("x", pa.int64())])),
    ]
)
TWICE = [("a", 1), ("b", 2), ("a", 3)]
ONCE = {"a": 3, "b": 2}
ROWS = [
    {"m": TWICE, "rows": [{"at": 1, "m": TWICE}, None], "deep": [(7, TWICE), (8, None), (7, TWICE)], "s": None},
    {"m": None, "rows": None, "deep": [], "s": {"m": TWICE, "x": None}},
    {"m": [], "rows": [], "deep": None, "s": {"m": None, "x": 4}},
]
WANTED = [
    {"m": ONCE, "rows": [{"at": 1, "m": ONCE}, None], "deep": {"7": ONCE, "8": None}, "s": None},
    {"m": None, "rows": None, "deep": {}, "s": {"m": ONCE, "x": None}},
    {"m": {}, "rows": [], "deep": None, "s": {"m": None, "x": 4}},
]


def test_of_keys_that_occur_twice_the_last_is_written_and_nothing_warns() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    assert [json.loads(line) for line in json_lines(batch).splitlines()] == WANTED
    assert [json.loads(line) for line in JsonForm().lines(batch)] == WANTED
    assert rows_of(batch.select(["m"])) == [{"m": ONCE}, {"m": None}, {"m": {}}]


def test_of_keys_that_occur_twice_the_last_is_read() -> None:
    texts = MapTexts(pa.schema([("m", INNER)]))
    assert json.loads(texts.as_entries('{"m": {"a": 1, "b": 2, "a": 3}}')) == {
        "m": [{"key": "a", "value": 3}, {"key": "b", "value": 2}]
    }

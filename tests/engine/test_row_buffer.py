"""Rows that are gathered by column are those that were given, as they were then, with the same errors."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import PenstockError, ResultError
from penstock.engine.row_buffer import RowBuffer, owned_row
from penstock.engine.rows import RowConverter, batch_rows

_WHERE = "operator 'tested', subtask 0"
_DECLARED = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us")), ("l", pa.list_(pa.int64()))])
_VALUES = {
    "n": st.none() | st.integers(-9, 9) | st.sampled_from([True, 1.5, 2**70]),
    "at": st.none() | st.just(datetime(2026, 1, 1)) | st.just(datetime(2026, 1, 1, tzinfo=timezone.utc)),
    "l": st.none() | st.lists(st.integers(0, 3), max_size=2) | st.just((1,)) | st.just(["x"]),
}
# Messages show a row in the order of its columns.
_USUAL = st.fixed_dictionaries(_VALUES).map(lambda row: {name: row[name] for name in _VALUES})
_KINDS = st.sampled_from([dict, dict, dict, OrderedDict, MappingProxyType])
_STRANGE = st.sampled_from([None, 5, "n", [], {}, {"n": 1}, {"n": 1, "at": None, "m": []}, {1: 2, "at": 3, "l": 4}])


def _outcome(make: Any) -> Any:
    try:
        return make()
    except PenstockError as error:
        return type(error), str(error)


@given(st.sampled_from([None, _DECLARED]), st.lists(st.lists(st.tuples(_KINDS, _USUAL) | _STRANGE, max_size=5)))
def test_batches_are_those_that_rows_one_after_another_give(schema: pa.Schema | None, cuts: list[list[Any]]) -> None:
    buffer, converter = RowBuffer(schema, _WHERE), RowConverter(schema, _WHERE)
    for cut in cuts:
        rows = [row[0](row[1]) if isinstance(row, tuple) else row for row in cut]
        expected = _outcome(lambda rows=rows: converter.convert(list(map(owned_row, rows))))
        for row in rows:
            buffer.add(row)
        assert len(buffer) >= min(1, len(rows))
        found = _outcome(buffer.take)
        if isinstance(expected, pa.RecordBatch):
            assert found == expected
            assert found.schema == expected.schema
            continue
        # Of several that do not fit the first is told, not the first that is no dict.
        assert found == expected or (found[0] is expected[0] and "not a dict" in expected[1])
        return


def test_a_row_is_kept_as_it_was_when_it_came() -> None:
    buffer = RowBuffer(None, _WHERE)
    row: dict[str, Any] = {"n": 1, "l": [1]}
    for _ in range(3):
        buffer.add(row)
        row["n"] += 1
        row["l"].append(row["n"])
    assert batch_rows(buffer.take()) == [{"n": 1, "l": [1]}, {"n": 2, "l": [1, 2]}, {"n": 3, "l": [1, 2, 3]}]


@given(st.lists(st.text(), unique=True, min_size=1, max_size=20))
def test_names_may_be_any_text(names: list[str]) -> None:
    row = {name: number for number, name in enumerate(names)}
    buffer = RowBuffer(None, _WHERE)
    buffer.add(row)
    buffer.add(dict(reversed(row.items())))
    assert batch_rows(buffer.take()) == [row, row]


def test_what_a_call_that_failed_has_left_is_forgotten() -> None:
    buffer = RowBuffer(None, _WHERE)
    buffer.add({"a": 1})
    buffer.clear()
    buffer.add({"b": "x"})
    assert batch_rows(buffer.take()) == [{"b": "x"}]
    buffer.add({"b": 1})
    with pytest.raises(ResultError, match=r"row 0, column 'b'.*the row is \{'b': 1\}"):
        buffer.take()
    buffer.clear()
    buffer.add({"b": "y"})
    assert batch_rows(buffer.take()) == [{"b": "y"}]

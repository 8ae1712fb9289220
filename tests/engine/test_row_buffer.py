"""Rows that are gathered by column are those that were given, as they were then, with the same errors."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import PenstockError, ResultError
from penstock.engine.row_buffer import RowBuffer, owned_row
from penstock.engine.row_code import adder_maker
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


class _Member(str, Enum):
    n, at, l = "n", "at", "l"  # noqa: E741


class _Own(str):
    """A text that is looked up by its identity."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


_TEXTS: list[Callable[[str], str]] = [_Member, np.str_, _Own]
if sys.version_info >= (3, 11):
    from enum import StrEnum

    _TEXTS.append(StrEnum("_Texts", list(_VALUES)))


def _named_by(text: Callable[[str], str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda row: {text(name): value for name, value in row.items()}


_KINDS = st.sampled_from([dict, dict, dict, OrderedDict, MappingProxyType, *map(_named_by, _TEXTS)])
_STRANGE = st.sampled_from([None, 5, "n", [], {}, {"n": 1}, {"n": 1, "at": None, "m": []}, {1: 2, "at": 3, "l": 4}])


def _outcome(make: Any) -> Any:
    try:
        return make()
    except PenstockError as error:
        return type(error), str(error)


def _plainly_named(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    return {str.__str__(name) if isinstance(name, str) else name: value for name, value in row.items()}


@given(st.sampled_from([None, _DECLARED]), st.lists(st.lists(st.tuples(_KINDS, _USUAL) | _STRANGE, max_size=5)))
def test_batches_are_those_that_rows_one_after_another_give(schema: pa.Schema | None, cuts: list[list[Any]]) -> None:
    buffer, converter = RowBuffer(schema, _WHERE), RowConverter(schema, _WHERE)
    for cut in cuts:
        rows = [row[0](row[1]) if isinstance(row, tuple) else row for row in cut]
        plain = [_plainly_named(owned_row(row)) for row in rows]
        expected = _outcome(lambda plain=plain: converter.convert(plain))
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


@pytest.mark.parametrize("text", _TEXTS)
@pytest.mark.parametrize("first", [str, *_TEXTS])
def test_names_may_be_of_any_class_of_texts(first: Callable[[str], str], text: Callable[[str], str]) -> None:
    adder_maker.cache_clear()
    buffer = RowBuffer(None, _WHERE)
    for number, kind in enumerate((first, text, str)):
        buffer.add({kind("n"): number, kind("l"): None})
    assert batch_rows(buffer.take()) == [{"n": number, "l": None} for number in range(3)]


@pytest.mark.parametrize("value", [memoryview(b"1"), threading.Lock(), (number for number in "1")])
def test_what_cannot_be_copied_is_refused_as_what_has_no_type(value: Any) -> None:
    buffer = RowBuffer(None, _WHERE)
    buffer.add({"a": 1, "m": [value]})
    with pytest.raises(ResultError, match=r"row 0, column 'm': .* has no Arrow type; declare its type"):
        buffer.take()


def test_values_of_which_nothing_can_change_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copy.deepcopy", None)
    row = {"f": np.float64(1.5), "at": np.datetime64("2026-01-01T00:00:00"), "d": [{"t": (1, [b"x"])}], "l": [0.5]}
    inner, listed = row["d"], row["l"]
    own = owned_row(row)
    assert own == row
    assert own["d"][0]["t"][1] is not inner[0]["t"][1]  # type: ignore[index]
    assert own["l"] is not listed


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

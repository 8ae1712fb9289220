"""Segmented tables: what is read is the merge of what was appended, and merging stays cheap."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state import segments
from penstock.engine.state.segments import SegmentedTable, concat_tables


class Totals:
    """A combine function that adds up `n` by `key`, and counts the rows that it was given."""

    def __init__(self) -> None:
        self.merged_rows = 0

    def __call__(self, table: pa.Table) -> pa.Table:
        self.merged_rows += table.num_rows
        result = table.group_by("key", use_threads=False).aggregate([("n", "sum")])
        return result.rename_columns(["key", "n"])


def segment(totals: dict[str, int]) -> pa.Table:
    return pa.table({"key": pa.array(list(totals), pa.string()), "n": pa.array(list(totals.values()), pa.int64())})


def as_dict(table: pa.Table) -> dict[str, int]:
    assert len(set(table["key"].to_pylist())) == table.num_rows, "one row a group"
    return dict(zip(table["key"].to_pylist(), table["n"].to_pylist(), strict=True))


TOTALS = st.dictionaries(st.sampled_from("abcd"), st.integers(-9, 9), min_size=1)


@given(st.lists(st.tuples(TOTALS, st.booleans()), min_size=1, max_size=40))
def test_reading_gives_the_merge_of_all_that_was_appended(appends: list[tuple[dict[str, int], bool]]) -> None:
    table, model = SegmentedTable(Totals()), dict[str, int]()
    for totals, read_now in appends:
        table.append(segment(totals))
        for key, n in totals.items():
            model[key] = model.get(key, 0) + n
        if read_now:
            assert as_dict(table.compact()) == model
    assert as_dict(table.compact()) == model
    assert table.rows == len(model)


def test_replacing_forgets_what_was_there() -> None:
    table = SegmentedTable(Totals())
    table.append(segment({"a": 1}))
    table.append(segment({"b": 1}))
    table.replace(segment({"c": 3}))
    table.append(segment({"c": 4}))
    assert as_dict(table.compact()) == {"c": 7}


def test_reading_twice_merges_once() -> None:
    totals = Totals()
    table = SegmentedTable(totals)
    table.append(segment({"a": 1}))
    table.append(segment({"a": 1}))
    table.compact()
    merged = totals.merged_rows
    table.compact()
    assert totals.merged_rows == merged


def test_a_read_looks_through_few_parts_however_small_the_segments_are() -> None:
    totals = Totals()
    table = SegmentedTable(totals)
    for number in range(5000):
        table.append(segment({str(number): 1}))
    assert len(table.parts) < 64
    assert totals.merged_rows < 5 * 5000
    assert as_dict(concat_tables(table.parts)) == {str(number): 1 for number in range(5000)}


def test_rows_that_wait_are_bounded() -> None:
    table, keys = SegmentedTable(Totals()), 20_000
    part = segment({str(key): 1 for key in range(keys)})
    for _ in range(10):
        table.append(part)
        assert table.rows <= keys + max(segments._MIN_ROWS, 2 * keys)


def test_each_row_is_merged_a_few_times_only() -> None:
    totals = Totals()
    table = SegmentedTable(totals)
    table.append(segment({str(key): 1 for key in range(20_000)}))
    for begin in range(0, 100_000, 1_000):
        table.append(segment({str((begin + key) % 20_000): 1 for key in range(1_000)}))
    assert totals.merged_rows <= 3 * 120_000
    assert set(as_dict(table.compact()).values()) == {6}


def test_a_column_of_nulls_takes_the_type_that_others_give_it() -> None:
    joined = concat_tables([pa.table({"n": pa.nulls(1)}), pa.table({"n": [1]})])
    assert joined.schema.field("n").type == pa.int64()
    assert joined["n"].to_pylist() == [None, 1]


def test_a_read_looks_through_few_parts_when_segments_are_neither_small_nor_large() -> None:
    table = SegmentedTable(Totals())
    table.append(segment({str(key): 1 for key in range(200_000)}))
    for begin in range(0, 200_000, 4_000):
        table.append(segment({str(begin + key): 1 for key in range(4_000)}))
    assert len(table.parts) < 32
    assert set(as_dict(table.compact()).values()) == {2}

from __future__ import annotations

import datetime
import math
import pickle
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.connectors.collection import CollectionSource
from penstock.engine.errors import ConfigurationError
from tests.connectors.reading import context, read_batches, read_rows, read_table


def test_dicts_give_their_keys_as_columns() -> None:
    source = CollectionSource.of([{"a": 1, "b": "x"}, {"b": None, "a": 2}])
    assert source.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert read_rows(source) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("schema", "names"),
    [(None, ["f0", "f1"]), (["x", "y"], ["x", "y"]), ({"x": "int8", "y": "string"}, ["x", "y"])],
)
def test_tuples_are_named_by_the_schema(schema: object, names: list[str]) -> None:
    source = CollectionSource.of([(1, "a"), (2, "b")], schema=schema)
    assert source.schema.names == names
    assert read_table(source).column(0).to_pylist() == [1, 2]


def test_named_tuples_bring_their_names() -> None:
    point = namedtuple("point", ["x", "y"])
    assert read_rows(CollectionSource.of([point(1, 2)])) == [{"x": 1, "y": 2}]


def test_scalars_fill_the_column_value() -> None:
    assert read_rows(CollectionSource.of(range(3))) == [{"value": 0}, {"value": 1}, {"value": 2}]
    assert read_rows(CollectionSource.of(["a"], schema=["name"])) == [{"name": "a"}]


def test_declared_types_are_used_and_a_missing_key_is_null() -> None:
    source = CollectionSource.of(
        iter([{"a": 1}, {"a": 2, "t": 5}]), schema={"a": pa.int8(), "t": "timestamp[ms, tz=UTC]"}
    )
    assert source.schema.types == [pa.int8(), pa.timestamp("ms", tz="UTC")]
    assert read_rows(source)[0] == {"a": 1, "t": None}


def test_no_rows_are_fine_with_a_schema() -> None:
    source = CollectionSource.of([], schema={"a": "int64"})
    assert source.schema == pa.schema([("a", pa.int64())])
    assert read_batches(source) == []


def test_a_pandas_frame_loses_its_index_and_metadata() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8])
    source = CollectionSource.of(frame)
    assert source.schema.names == ["a", "b"]
    assert source.schema.metadata is None
    assert read_rows(source) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_arrow_objects_keep_their_types_and_can_be_cast() -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int16()), "b": ["x", "y"]})
    assert read_table(CollectionSource.of(table)).equals(table)
    assert read_table(CollectionSource.of(table.to_batches()[0])).equals(table)
    assert CollectionSource.of(table, schema={"a": "int64"}).schema == pa.schema([("a", pa.int64())])
    assert CollectionSource.of(table, schema=["p", "q"]).schema.names == ["p", "q"]
    with pytest.raises(ConfigurationError, match="column 'b' cannot become int64"):
        CollectionSource.of(table, schema={"b": "int64"})


@pytest.mark.parametrize("max_rows", [1, 2, 3, 100])
def test_order_and_rows_do_not_depend_on_the_batch_size(max_rows: int) -> None:
    chunked = pa.concat_tables(
        [pa.table({"a": [1, 2, 3]}), pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": [4]})]
    )
    assert read_table(CollectionSource.of(chunked), max_rows)["a"].to_pylist() == [1, 2, 3, 4]


def test_batches_are_views_of_the_data() -> None:
    array = pa.array([1, 2, 3])
    source = CollectionSource.of(pa.table({"a": array}))
    second = read_batches(source, 1)[1].column(0)
    assert second.buffers()[1].address == array.buffers()[1].address
    assert second.offset == 1


def test_one_subtask_reads_it() -> None:
    source = CollectionSource.of([1])
    assert source.max_parallelism == 1
    assert source.bounded
    assert len(source.splits(4)) == 1
    assert source.describe() == "collection(1 rows)"


def test_pickling_sends_the_rows_of_a_slice_alone() -> None:
    big = pa.table({"a": range(100_000)})
    source = CollectionSource.of(big.slice(500, 3))
    data = pickle.dumps(source)
    assert len(data) < 5000
    assert read_rows(pickle.loads(data)) == [{"a": 500}, {"a": 501}, {"a": 502}]


def test_pandas_is_not_needed() -> None:
    code = (
        "import sys; from penstock.connectors.collection import CollectionSource; assert 'pandas' not in "
        "sys.modules\nclass NoPandas:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPandas())\n"
        "CollectionSource.of([{'a': 1}]); CollectionSource.of([(1, 'x')])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("data", "schema", "message"),
    [
        ([], None, "no rows to infer"),
        ([], ["a"], "no rows to infer"),
        ([{"a": 1}, {"a": 1, "b": 2}], None, r"row 1 has the key 'b'"),
        ([{"a": 1, "b": 2}, {"a": 1}], None, r"row 1 lacks the key 'b'"),
        ([{"a": 1}, {"b": 2}], {"a": "int64"}, r"row 1 has the key 'b', which the schema lacks"),
        ([{"a": 1}, {"a": "x"}], None, r"column 'a' mixes types: int in row 0, str in row 1.*schema="),
        ([{"a": None}, {"a": True}, {"a": 1}], None, r"bool in row 1, int in row 2"),
        (["a", b"b"], None, r"str in row 0, bytes in row 1"),
        (
            [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)],
            None,
            "date in row 0, datetime in row 1",
        ),
        (
            [datetime.datetime(2020, 1, 1, 5), datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.timezone.utc)],
            None,
            r"column 'value' mixes times with a time zone \(row 1\) and without one \(row 0\)",
        ),
        ([1, 2.0, 1.5], {"value": "int64"}, r"column 'value', row 2: 1.5 \(float\) is not int64 \(it has decimal"),
        ([None, np.float32(0.5)], {"value": "int8"}, r"column 'value', row 1: .*0.5.* is not int8 \(it has decimal"),
        ([math.nan], {"value": "int64"}, r"column 'value', row 0: nan \(float\) is not int64"),
        ([1, "x"], {"value": "int64"}, r"column 'value', row 1: 'x' \(str\) is not int64"),
        ([2**70], None, "column 'value', row 0"),
        ([object()], None, "column 'value', row 0"),
        ([(1, 2), (1,)], None, "row 1 has 1 values for 2 columns"),
        ([(1, 2), {"a": 1}], None, "row 0 is a tuple, but row 1"),
        ([{"a": 1}, 5], None, "row 0 is a dict, but row 1"),
        ([1, (1,)], None, "row 0 is a single value, but row 1"),
        ([[1, 2]], None, "row 0 is a list; give a tuple"),
        ([1], ["a", "b"], "the schema has 2 columns, but row 0 is a single value"),
        ([{1: 2}], None, "keys must be text"),
        ([(1, 2)], ["a", "a"], "column 'a' occurs twice"),
        ([1], {"a": "int65"}, "'int65' is no type"),
        ([1], "a", "schema must be a list of names"),
        ("text", None, "rows cannot be taken from str"),
        ({"a": [1]}, None, r"rows cannot be taken from dict.*pa\.table"),
        (5, None, "rows cannot be taken from int"),
        (pd.Series([1]), None, "rows cannot be taken from Series"),
        (pd.DataFrame({1: [1]}), None, "column names must be text"),
        (pd.DataFrame({"a": [1, "x"]}), None, "data frame cannot become columns"),
    ],
)
def test_what_cannot_be_used_is_refused(data: object, schema: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CollectionSource.of(data, schema=schema)


def test_whole_and_fractional_numbers_make_floats() -> None:
    assert read_rows(CollectionSource.of([1, 2.5, None]))[0] == {"value": 1.0}


def test_the_reader_ends_for_good() -> None:
    source = CollectionSource.of([1])
    reader = source.open(source.splits(1)[0], context())
    assert reader.next_batch(5) is not None
    assert reader.next_batch(5) is None
    assert reader.next_batch(5) is None

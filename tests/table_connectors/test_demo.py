"""Tables of `datagen` and `print`, with the options of Flink's connectors."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlValidationError


def _rows(columns: str, options: str) -> list[dict[str, object]]:
    env = StreamEnvironment(runtime="local", parallelism=2)
    env.sql(f"CREATE TABLE made ({columns}) WITH ('connector' = 'datagen', 'rows-per-second' = '100000', {options})")
    result = env.sql("SELECT * FROM made")
    assert result is not None
    return list(result.collect())


def test_sequences_end_and_random_values_keep_to_their_bounds() -> None:
    columns = "n BIGINT, i INT, small TINYINT, d DOUBLE, e DECIMAL(5, 2), b BOOLEAN, s STRING, at TIMESTAMP(3)"
    options = "'fields.n.kind' = 'sequence', 'fields.n.start' = '5', 'fields.n.end' = '44', 'fields.i.min' = '-1', "
    rows = _rows(columns, f"{options} 'fields.i.max' = '1', 'fields.s.length' = '19'")
    assert sorted(int(str(row["n"])) for row in rows) == list(range(5, 45))
    assert {row["i"] for row in rows} == {-1, 0, 1}
    assert {row["b"] for row in rows} == {True, False}
    assert len({row["s"] for row in rows}) == 40
    assert {len(str(row["s"])) for row in rows} == {19}
    assert all(0 <= float(str(row["d"])) < 1 for row in rows)
    without_times = [{**row, "at": None} for row in rows]
    again = [{**row, "at": None} for row in _rows(columns, f"{options} 'fields.i.max' = '1', 'fields.s.length' = '19'")]
    assert sorted(without_times, key=repr) == sorted(again, key=repr)


def test_values_may_be_null_of_any_length_past_and_between_fractions() -> None:
    columns = "s STRING, at TIMESTAMP_LTZ(3), d DOUBLE, now TIMESTAMP_LTZ(3)"
    options = (
        "'number-of-rows' = '400', 'fields.s.length' = '3', 'fields.s.var-len' = 'true', 'fields.s.null-rate' = '0.5', "
    )
    rows = _rows(columns, f"{options} 'fields.at.max-past' = '1 d', 'fields.d.min' = '0.25', 'fields.d.max' = '0.5'")
    texts = [str(row["s"]) for row in rows if row["s"] is not None]
    assert 150 < len(texts) < 250
    assert {len(text) for text in texts} == {1, 2, 3}
    hours = [(row["now"] - row["at"]).total_seconds() / 3600 for row in rows]  # type: ignore[operator]
    assert min(hours) >= 0
    assert 20 < max(hours) <= 24
    assert all(0.25 <= float(str(row["d"])) < 0.5 for row in rows)


def test_as_many_rows_as_are_asked_for() -> None:
    assert len(_rows("n INT", "'number-of-rows' = '7'")) == 7


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("n INT", "'fields.n.min' = 'few'", "takes a whole number, not 'few'"),
        ("n INT", "'fields.n.min' = '2', 'fields.n.max' = '1'", "is more than"),
        ("n INT", "'fields.n.kind' = 'sequence'", "needs 'fields.n.start'"),
        ("n INT", "'fields.n.kind' = 'sequenze'", "did you mean 'sequence'"),
        ("n INT", "'fields.n.null-rate' = '2'", "is a share from 0 to 1"),
        ("d DOUBLE", "'fields.d.min' = 'few'", "takes a number, not 'few'"),
        ("s STRING", "'fields.s.lenght' = '3'", "no option 'fields.s.lenght' .did you mean 'fields.s.length'"),
        ("s STRING", "'fields.t.length' = '3'", "no option 'fields.t.length' .did you mean 'fields.s.length'"),
        ("n INT", "'fields.n.length' = '3'", "no option 'fields.n.length'"),
        ("n ARRAY<INT>", "'number-of-rows' = '1'", "makes no values of type ARRAY<INT>"),
    ],
)
def test_what_cannot_be_made_is_refused(columns: str, options: str, said: str) -> None:
    with pytest.raises(SqlValidationError, match=said):
        _rows(columns, options)


def test_changes_are_printed_with_their_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    env.sql("CREATE TABLE shown (a INT, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'out')")
    env.sql("INSERT INTO shown SELECT a, COUNT(*) FROM (VALUES (1), (CAST(NULL AS INT)), (1)) AS t (a) GROUP BY a")
    env.execute()
    assert capsys.readouterr().out.splitlines() == [
        "out> +I[1, 1]",
        "out> +I[null, 1]",
        "out> -U[1, 1]",
        "out> +U[1, 2]",
    ]

"""What messages quote of rows: never what is called a secret, and nothing at all where that is wanted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError
from penstock.engine.redaction import VARIABLE, masked_code, quotable, quoted
from penstock.engine.rows import shown_row

ROW = {"user": "ada", "password": "hunter2", "access_token": "t0k", "tokens": 3, "keys": ["a"]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ROW, "{'user': 'ada', 'password': '***', 'access_token': '***', 'tokens': 3, 'keys': ['a']}"),
        ([{"API-Key": 1}, ({"client_secret": 2},)], "[{'API-Key': '***'}, ({'client_secret': '***'},)]"),
        ("password", "'password'"),
        (7, "7"),
    ],
)
def test_what_is_called_a_secret_is_masked(value: object, shown: str) -> None:
    assert quoted(value) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            'PostgresSink("postgresql://a:x@10.0.0.1/shop", "t")',
            'PostgresSink("postgresql://a:***@10.0.0.1/shop", "t")',
        ),
        ("""{"sasl.password": 'it\\'s', "n": 1}""", """{"sasl.password": '***', "n": 1}"""),
        ("connect(api_key = 'k', user='u', password=f'{x}y')", "connect(api_key = '***', user='u', password=f'***')"),
        ('if row["token"] == "x" or key: return rows["a"]', 'if row["token"] == "x" or key: return rows["a"]'),
        ("password = os.environ['SHOP'] + 'x'", "password = os.environ['SHOP'] + 'x'"),
        ("tokens = ['a', 'b']", "tokens = ['a', 'b']"),
    ],
)
def test_secrets_in_a_line_of_code_are_masked(line: str, shown: str) -> None:
    assert masked_code(line) == shown


def test_batches_are_masked_by_column() -> None:
    batch = pa.RecordBatch.from_pylist([ROW, ROW])
    assert quotable(batch).to_pylist()[1] == {**ROW, "password": "***", "access_token": "***"}
    assert "hunter2" not in quoted(batch)
    assert shown_row(batch, 1) == quoted(ROW)


def test_members_of_structs_and_lists_are_masked_too() -> None:
    rows = [
        {"login": {"user": "ada", "password": "x"}, "keys": [{"api_key": "k"}, None]},
        {"login": None, "keys": None},
    ]
    batch = pa.RecordBatch.from_pylist([*rows, {"login": {"user": None, "password": None}, "keys": []}])
    masked = quotable(batch).to_pylist()
    assert masked[0] == {"login": {"user": "ada", "password": "***"}, "keys": [{"api_key": "***"}, None]}
    assert masked[1] == {"login": None, "keys": None}
    assert masked[2] == {"login": {"user": None, "password": "***"}, "keys": []}


def _fails(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no such luck")


@pytest.mark.parametrize(("hidden", "shown"), [(False, True), (True, False)])
def test_a_failed_job_quotes_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch, hidden: bool, shown: bool) -> None:
    if hidden:
        monkeypatch.setenv(VARIABLE, "hidden")
    env = StreamEnvironment(runtime="local")
    env.from_collection([ROW]).map(_fails).print()
    with pytest.raises(JobFailedError, match="no such luck") as failed:
        env.execute()
    assert "hunter2" not in str(failed.value)
    assert ("ada" in str(failed.value)) is shown


def test_where_values_are_hidden_a_row_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "hidden")
    assert shown_row(pa.RecordBatch.from_pylist([ROW, ROW]), 1).startswith("number 1 of 2")

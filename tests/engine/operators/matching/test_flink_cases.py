"""Each case that Flink's CEP has answered gives the same matches, time-outs and late rows here."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import PatternError
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.patterns.cases import Case, cases, pattern_of

_CASES = cases()
_ANSWERED = [one for one in _CASES if "error" not in one["expect"]]
_REFUSED = [one for one in _CASES if "error" in one["expect"]]


def _ids(given: list[Case]) -> list[str]:
    return [f"{one['id']}-{one['family']}" for one in given]


def run(given: Case, job: MatchJob, is_by_row: bool, restarts_at: int | None) -> dict[str, Any]:
    """Take the steps of a case: row by row, or all rows between two watermarks at once."""
    rows: list[dict[str, Any]] = []
    for number, step in enumerate(given["steps"]):
        if number == restarts_at:
            job.restart(parallelism=2)
        if step[0] == "wm":
            if rows:
                job.rows(rows)
                rows = []
            job.advance(step[1])
            continue
        rows.append(row(number, *step[1:]))
        if is_by_row:
            job.rows(rows)
            rows = []
    if rows:
        job.rows(rows)
    job.advance()
    job.close()
    return {
        "matches": sorted(job.matches()),
        "timeouts": sorted(job.timed_out()),
        "late": sorted(job.late()) if given["late"] else [],
    }


def expected(given: Case) -> dict[str, Any]:
    answer = given["expect"]
    return {
        "matches": sorted(zip(answer["matches"], answer["match_ts"], strict=True)),
        "timeouts": sorted(answer["timeouts"]),
        "late": answer["late"],
    }


_LONG = pytest.mark.long("each case in one of the ways; test_finders.py holds random ones to each other")


def _taken(given: Case, places: range) -> Any:
    """A case that is run in `make test`, if its number is in one of these places of each four."""
    return pytest.param(given, id=_ids([given])[0], marks=() if given["id"] % 4 in places else _LONG)


@pytest.mark.parametrize("given", [_taken(one, range(1)) for one in _ANSWERED])
def test_large_batches_give_what_flink_found(given: Case) -> None:
    assert run(given, MatchJob(pattern_of(given)), False, None) == expected(given)


@pytest.mark.parametrize("given", [_taken(one, range(1, 2)) for one in _ANSWERED])
def test_large_batches_and_a_rescale_give_what_flink_found(given: Case) -> None:
    restart = len(given["steps"]) // 2
    assert run(given, MatchJob(pattern_of(given)), False, restart) == expected(given)


@pytest.mark.parametrize("given", [_taken(one, range(2, 4)) for one in _ANSWERED])
def test_single_rows_and_a_rescale_give_what_flink_found(given: Case) -> None:
    restart = len(given["steps"]) // 2
    assert run(given, MatchJob(pattern_of(given)), True, restart) == expected(given)


@pytest.mark.parametrize("given", _ANSWERED[::4], ids=_ids(_ANSWERED[::4]))
def test_rocksdb_and_a_rescale_give_what_flink_found(given: Case) -> None:
    """Row by row in one half of the cases, in large batches in the other."""
    _check_rocksdb(given, given["id"] % 2 == 0)


@pytest.mark.long(
    "the test above has a quarter of the cases in one of the two ways, and those before it each case on the heap"
)
@pytest.mark.parametrize("is_by_row", [True, False])
@pytest.mark.parametrize("given", _ANSWERED, ids=_ids(_ANSWERED))
def test_rocksdb_gives_what_flink_found_in_each_way(given: Case, is_by_row: bool) -> None:
    _check_rocksdb(given, is_by_row)


def _check_rocksdb(given: Case, is_by_row: bool) -> None:
    pytest.importorskip("rocksdict")
    job = MatchJob(pattern_of(given), "rocksdb")
    assert run(given, job, is_by_row, len(given["steps"]) // 2) == expected(given)


@pytest.mark.parametrize("given", _REFUSED, ids=_ids(_REFUSED))
def test_what_flink_refuses_is_refused(given: Case) -> None:
    with pytest.raises(PatternError):
        MatchJob(pattern_of(given))

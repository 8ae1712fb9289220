"""Each checker lets what is right pass, and objects to every way of being wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.testing.chaos import JOBS, BankChecker, EventRuleChecker, OracleChecker, SequenceChecker
from penstock.testing.chaos.jobs import KEYS, login_rule


def numbered(*numbers: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"key": key, "n": n} for n in numbers]


@pytest.mark.parametrize(
    ("rows", "kind", "times"),
    [
        (numbered(0, 1, 3), "lost", 1),
        (numbered(1, 2, 3), "lost", 1),
        (numbered(0, 1), "lost", 2),
        (numbered(0, 1, 1, 2, 3), "duplicated", 1),
        (numbered(0, 1, 2, 3, 4), "duplicated", 1),
        (numbered(0, 2, 1, 3), "out of order", 1),
        ([], "lost", 4),
    ],
)
def test_a_number_that_is_lost_repeated_or_out_of_place_is_found(rows: Any, kind: str, times: int) -> None:
    verdict = SequenceChecker("key", "n", last=3, keys=["a"]).check(rows)
    assert verdict.counts[kind] == times
    assert f"sequence: {kind}: key 'a'" in verdict.violations[0]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=12))
def test_it_passes_only_what_counts_up_for_each_key(pairs: list[tuple[str, int]]) -> None:
    verdict = SequenceChecker("key", "n").check([{"key": key, "n": n} for key, n in pairs])
    numbers = [[n for key, n in pairs if key == wanted] for wanted in "ab"]
    assert verdict.holds == all(found == list(range(len(found))) for found in numbers)


def move(transfer: int, payer: str, payee: str, amount: int, balances: dict[str, int]) -> list[dict[str, Any]]:
    rows = []
    for account, change in ((payer, -amount), (payee, amount)):
        balances[account] = balances.get(account, 100) + change
        rows.append({"account": account, "transfer": transfer, "amount": change, "balance": balances[account]})
    return rows


def bank() -> list[list[dict[str, Any]]]:
    balances: dict[str, int] = {}
    return [
        [*move(1, "a", "b", 30, balances), *move(2, "b", "c", 50, balances)],
        [*move(3, "c", "a", 10, balances)],
    ]


def without_one_side(epochs: list[list[dict[str, Any]]]) -> None:
    del epochs[1][0]


def a_side_in_the_next_epoch(epochs: list[list[dict[str, Any]]]) -> None:
    epochs[1].insert(0, epochs[0].pop())


def a_transfer_twice(epochs: list[list[dict[str, Any]]]) -> None:
    epochs.append([dict(row) for row in epochs[1]])


def a_forgotten_balance(epochs: list[list[dict[str, Any]]]) -> None:
    epochs[1][0]["balance"] = 90


def test_money_that_only_moves_passes() -> None:
    verdict = BankChecker(opening=100).check(bank())
    assert verdict.holds
    assert verdict.rows == 6


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (without_one_side, "wrong transfers"),
        (without_one_side, "epochs unbalanced"),
        (a_side_in_the_next_epoch, "epochs unbalanced"),
        (a_transfer_twice, "wrong balances"),
        (a_transfer_twice, "wrong transfers"),
        (a_forgotten_balance, "wrong balances"),
    ],
)
def test_money_that_is_made_or_lost_is_found(damage: Callable[[Any], None], kind: str) -> None:
    epochs = bank()
    damage(epochs)
    assert BankChecker(opening=100).check(epochs).counts[kind] >= 1


def events(*pairs: tuple[str, str | None]) -> list[dict[str, Any]]:
    return [{"user": 1, "event": event, "alert": alert} for event, alert in pairs]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (events(("login", None), ("use", None), ("logout", None), ("use", "alert")), {}),
        (events(("login", None), ("use", "alert")), {"false alerts": 1}),
        (events(("login", None), ("logout", None), ("use", None)), {"missed alerts": 1}),
        (events(("browse", "alert")), {"false alerts": 1}),
    ],
)
def test_an_alert_stands_where_the_rule_was_broken_and_nowhere_else(rows: Any, counts: dict[str, int]) -> None:
    verdict = EventRuleChecker("user", "event", "alert", False, login_rule).check(rows)
    assert {kind: times for kind, times in verdict.counts.items() if times} == counts
    assert verdict.holds == (not counts)


def test_rows_are_compared_with_those_of_a_plain_function_in_any_order() -> None:
    checker = OracleChecker(lambda: [{"k": 1, "tags": ["x"]}, {"k": 2, "tags": []}])
    assert checker.check([{"tags": [], "k": 2}, {"k": 1, "tags": ["x"]}]).holds
    verdict = checker.check([{"k": 1, "tags": ["x"]}, {"k": 1, "tags": ["x"]}])
    assert verdict.counts == {"missing": 1, "unexpected": 1}


def test_of_updates_only_the_last_of_each_key_counts() -> None:
    checker = OracleChecker(lambda: [{"k": 1, "n": 3}], last_of=["k"])
    assert checker.check([{"k": 1, "n": 2}, {"k": 1, "n": 3}]).holds
    assert not checker.check([{"k": 1, "n": 3}, {"k": 1, "n": 2}]).holds


def test_many_violations_are_counted_and_only_the_first_told() -> None:
    verdict = SequenceChecker("key", "n").check([row for key in range(100) for row in numbered(1, key=str(key))])
    assert verdict.counts["lost"] == 100
    assert len(verdict.violations) == 10


# The jobs that come with the harness, without any chaos: their checkers must be able to object to their output.


def output(name: str, rows: int) -> pa.Table:
    from penstock import StreamEnvironment

    env = StreamEnvironment(runtime="local", parallelism=2)
    return JOBS[name].build(env, rows, 1e9).collect().to_arrow()


def drop_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 50), table.slice(51)])


def repeat_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(60, 1)])


@pytest.mark.parametrize("name", JOBS)
def test_the_output_of_an_undisturbed_job_passes(name: str) -> None:
    verdicts = JOBS[name].check([output(name, 3 * KEYS)], 3 * KEYS)
    assert [verdict.violations for verdict in verdicts] == [[]] * len(verdicts)


@pytest.mark.parametrize("damage", [drop_a_row, repeat_a_row])
@pytest.mark.parametrize("name", JOBS)
def test_every_checker_that_counts_objects_to_damaged_output(name: str, damage: Callable[[pa.Table], pa.Table]) -> None:
    verdicts = JOBS[name].check([damage(output(name, 3 * KEYS))], 3 * KEYS)
    assert objecting(verdicts) >= {"bank": {"bank", "oracle"}, "sequence": {"sequence", "oracle"}}[name]


def objecting(verdicts: Sequence[Any]) -> set[str]:
    return {verdict.checker for verdict in verdicts if not verdict.holds}

"""Checkers: they read what a job has put out, outside of the engine, and say what is wrong with it.

The chaos harness and users' own tests call them on the rows of a sink or of `collect()`. Each knows nothing but its
rule, so a job that loses, repeats or mixes up anything cannot talk itself out of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = "pa.Table | Iterable[Row]"

SHOWN: Final = 10
"""How many violations of a kind are told one by one."""


@dataclass(slots=True)
class Verdict:
    """What a checker found.

    Args:
        checker: its name.
        rows: how many it read.
        counts: what it counted; anything but 0 is wrong.
        violations: the first of each kind in words.
    """

    checker: str
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations

    def object(self, kind: str, text: str, times: int = 1) -> None:
        """Something is wrong, `times` times."""
        self.counts[kind] += times
        if self.counts[kind] - times < SHOWN:
            self.violations.append(f"{self.checker}: {kind}: {text}")

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON has it."""
        return {"checker": self.checker, "rows": self.rows, "counts": dict(self.counts), "violations": self.violations}


@dataclass(frozen=True, slots=True)
class SequenceChecker:
    """The numbers of each key are `first`, `first + 1`, ..., each once and in this order.

    Args:
        key, number: the columns.
        first: the number that each key begins with.
        last: the number that each key must have got to; None: the end is not checked.
        keys: all keys that there must be; None: any.

    Example:
        >>> SequenceChecker("user", "n").check([{"user": "a", "n": 0}, {"user": "a", "n": 2}]).violations
        ["sequence: lost: key 'a' has 2 behind 0"]
    """

    key: str
    number: str
    first: int = 0
    last: int | None = None
    keys: Iterable[Any] | None = None

    def check(self, rows: Rows) -> Verdict:
        """What is wrong with the rows, in the order in which they came."""
        verdict = Verdict("sequence", counts=Counter({"lost": 0, "duplicated": 0, "out of order": 0}))
        numbers: dict[Any, list[int]] = defaultdict(list)
        for row in _dicts(rows):
            verdict.rows += 1
            numbers[row[self.key]].append(row[self.number])
        for key in self.keys or ():
            _ = numbers[key]
        for key, found in numbers.items():
            self._check_key(key, found, verdict)
        return verdict

    def _check_key(self, key: Any, found: Sequence[int], verdict: Verdict) -> None:
        previous = self.first - 1
        for number, times in sorted(Counter(found).items()):
            if times > 1:
                verdict.object("duplicated", f"key {key!r} has {number} {times} times", times - 1)
            if number > previous + 1:
                verdict.object("lost", f"key {key!r} has {number} behind {previous}", number - previous - 1)
            if number < self.first or (self.last is not None and number > self.last):
                verdict.object("duplicated", f"key {key!r} has {number}, which never was")
            previous = max(previous, number)
        if self.last is not None and previous < self.last:
            verdict.object("lost", f"key {key!r} ends with {previous} instead of {self.last}", self.last - previous)
        for before, behind in pairwise(found):
            if behind < before:
                verdict.object("out of order", f"key {key!r} has {behind} behind {before}")


@dataclass(frozen=True, slots=True)
class BankChecker:
    """Money moves between accounts and is neither made nor lost: the total is the same at the end of every epoch.

    An epoch is what became visible at once: the rows that a checkpoint made final. Each row is one side of a transfer,
    with the balance of its account behind it.

    Args:
        account, transfer, amount, balance: the columns; amounts that leave an account are negative.
        opening: what each account begins with.
    """

    account: str = "account"
    transfer: str = "transfer"
    amount: str = "amount"
    balance: str = "balance"
    opening: int = 0

    def check(self, epochs: Iterable[Rows]) -> Verdict:
        """What is wrong with the rows, epoch by epoch."""
        verdict = Verdict("bank", counts=Counter({"epochs unbalanced": 0, "wrong balances": 0, "wrong transfers": 0}))
        balances: dict[Any, int] = defaultdict(lambda: self.opening)
        sides: dict[Any, list[int]] = defaultdict(list)
        for number, epoch in enumerate(epochs):
            for row in _dicts(epoch):
                verdict.rows += 1
                account, expected = row[self.account], balances[row[self.account]] + row[self.amount]
                if row[self.balance] != expected:
                    text = f"account {account!r} has {row[self.balance]} behind {row[self.transfer]!r}, not {expected}"
                    verdict.object("wrong balances", text)
                balances[account] = row[self.balance]
                sides[row[self.transfer]].append(row[self.amount])
            if (surplus := sum(balances.values()) - self.opening * len(balances)) != 0:
                verdict.object("epochs unbalanced", f"{surplus:+} in all at the end of epoch {number}")
        for transfer, amounts in sides.items():
            if len(amounts) != 2 or sum(amounts) != 0:
                verdict.object("wrong transfers", f"transfer {transfer!r} has the sides {amounts}, not two that cancel")
        return verdict


@dataclass(frozen=True, slots=True)
class EventRuleChecker:
    """A rule over the events of each key, such as "use only after login"; and the alerts that the job raised for it.

    Args:
        key, event, alert: the columns; alert: null in rows that broke no rule.
        state: what the rule begins with for each key.
        rule: given the state and an event, the state behind it and whether the event was allowed.

    Example:
        >>> def rule(logged_in, event):
        ...     return (event != "logout" and (logged_in or event == "login")), logged_in or event != "use"
        >>> rows = [{"user": 1, "event": "use", "alert": None}]
        >>> EventRuleChecker("user", "event", "alert", False, rule).check(rows).violations
        ["event rule: missed alerts: key 1: 'use' in state False"]
    """

    key: str
    event: str
    alert: str
    state: Any
    rule: Callable[[Any, Any], tuple[Any, bool]]

    def check(self, rows: Rows) -> Verdict:
        """What is wrong with the rows, in the order in which they came."""
        verdict = Verdict("event rule", counts=Counter({"false alerts": 0, "missed alerts": 0}))
        states: dict[Any, Any] = {}
        for row in _dicts(rows):
            verdict.rows += 1
            key = row[self.key]
            before = states.get(key, self.state)
            states[key], allowed = self.rule(before, row[self.event])
            where = f"key {key!r}: {row[self.event]!r} in state {before!r}"
            if allowed and row[self.alert] is not None:
                verdict.object("false alerts", f"{where}, and the alert {row[self.alert]!r}")
            if not allowed and row[self.alert] is None:
                verdict.object("missed alerts", where)
        return verdict


@dataclass(frozen=True, slots=True)
class OracleChecker:
    """The rows are those that a plain function computes, in any order.

    Args:
        expected: computes them.
        last_of: columns that name a key: of the job's rows only the last of each key counts (a stream of updates);
            None: all rows count.
    """

    expected: Callable[[], Iterable[Row]]
    last_of: Sequence[str] | None = None

    def check(self, rows: Rows) -> Verdict:
        """What is wrong with the rows."""
        verdict = Verdict("oracle", counts=Counter({"missing": 0, "unexpected": 0}))
        found = list(_dicts(rows))
        verdict.rows = len(found)
        if self.last_of is not None:
            found = list({tuple(row[column] for column in self.last_of): row for row in found}.values())
        wanted, got = Counter(map(_hashable, self.expected())), Counter(map(_hashable, found))
        for row, times in (wanted - got).items():
            verdict.object("missing", str(dict(row)), times)
        for row, times in (got - wanted).items():
            verdict.object("unexpected", str(dict(row)), times)
        return verdict


def _dicts(rows: Rows) -> Iterable[Row]:
    if isinstance(rows, pa.Table):
        listed: list[Row] = rows.to_pylist()
        return listed
    return rows


def _hashable(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, _frozen(value)) for name, value in row.items()))


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (
        tuple(sorted((str(key), _frozen(inner)) for key, inner in value.items())) if isinstance(value, dict) else value
    )

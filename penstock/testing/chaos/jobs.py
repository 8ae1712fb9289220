"""The jobs that chaos is tried on: each with state that notices what is lost or repeated, and checkers for its output.

`penstock chaos run --job sequence|bank` and our tests run them; a job of one's own needs a `build` and a `check` as
here. All rows come from a generator, so what must come out is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.datagen import DataGenSource
from penstock.engine.api.streams import DataStream
from penstock.engine.functions import Context, KeyedProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.state.backend import ValueState
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.environment import StreamEnvironment
from penstock.testing.chaos.checkers import BankChecker, EventRuleChecker, OracleChecker, SequenceChecker, Verdict

KEYS: Final = 120
"""Users and accounts. A multiple of the usual parallelisms: the generator gives each subtask every so-manieth row, and
all rows of a user must come from one, or they would have no order."""
_DAY: Final = ("login", "use", "use", "logout", "browse")
_INTRUDER: Final = ("login", "use", "use", "logout", "use")
_INTRUDERS: Final = 7
"""Every so-manieth user really breaks the rule: a job that never raises an alert is wrong, too."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChaosJob:
    """A program, and what its output must be.

    Args:
        name: what it is called.
        build: writes it into an environment: so many rows in all (a multiple of KEYS), at so many a second.
        check: judges the output: the rows in the order in which they became visible, in the epochs in which they did;
            and how many rows went in.
    """

    name: str
    build: Callable[[StreamEnvironment, int, float], DataStream]
    check: Callable[[Sequence[pa.Table], int], Sequence[Verdict]]


# Events of users


def login_rule(logged_in: bool, event: str) -> tuple[bool, bool]:
    """Whether the user is logged in behind the event, and whether it was allowed: "use" only after "login"."""
    return (event == "login" or (logged_in and event != "logout")), (logged_in or event != "use")


class _Sessions(KeyedProcessFunction):
    """Follows each user: raises an alert for use without login, and for an event that was lost or comes again."""

    def open(self, context: RuntimeContext) -> None:
        self._next: ValueState = context.get_state(ValueStateDescriptor("next", "int64", default=0))
        self._logged_in: ValueState = context.get_state(ValueStateDescriptor("logged_in", "bool", default=False))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        expected, number, event = self._next.value(), row["number"], row["event"]
        logged_in, allowed = login_rule(self._logged_in.value(), event)
        alert = None if allowed else "use without login"
        if number != expected:
            alert = f"event {number} where {expected} was due"
        self._next.update(number + 1)
        self._logged_in.update(logged_in)
        return [{"user": row["user"], "number": number, "event": event, "alert": alert}]


def _user(rows: Numbers) -> Numbers:
    return rows % KEYS


def _number(rows: Numbers) -> Numbers:
    return rows // KEYS


def _event(rows: Numbers) -> pa.Array:
    return pa.array([_event_of(int(row) % KEYS, int(row) // KEYS) for row in rows], pa.string())


def _event_of(user: int, number: int) -> str:
    day = _DAY if user % _INTRUDERS else _INTRUDER
    return day[number % len(day)]


_EVENTS: Final[Mapping[str, str]] = {"user": "int64", "number": "int64", "event": "string", "alert": "string"}


def _build_sequence(env: StreamEnvironment, rows: int, rate: float) -> DataStream:
    source = DataGenSource({"user": _user, "number": _number, "event": _event}, rows, rate)
    events = env.from_source(source, "events").uid("events")
    return events.key_by("user").process(_Sessions, returns=_EVENTS).name("sessions").uid("sessions")


def _expected_events(rows: int) -> Iterable[Mapping[str, Any]]:
    for user in range(KEYS):
        logged_in = False
        for number in range(rows // KEYS):
            event = _event_of(user, number)
            logged_in, allowed = login_rule(logged_in, event)
            yield {
                "user": user,
                "number": number,
                "event": event,
                "alert": None if allowed else "use without login",
            }


def _check_sequence(epochs: Sequence[pa.Table], rows: int) -> Sequence[Verdict]:
    output = pa.concat_tables(epochs)
    return [
        SequenceChecker("user", "number", last=rows // KEYS - 1, keys=range(KEYS)).check(output),
        EventRuleChecker("user", "event", "alert", False, login_rule).check(output),
        OracleChecker(lambda: _expected_events(rows)).check(output),
    ]


# Money


def _amount(rows: Numbers) -> Numbers:
    return rows * 7919 % 100 + 1


def _payee(rows: Numbers) -> Numbers:
    payer = rows % KEYS
    return (payer + 1 + rows // KEYS % (KEYS - 1)) % KEYS


def _sides(row: Row) -> list[Row]:
    return [
        {"account": row["payer"], "transfer": row["transfer"], "amount": -row["amount"]},
        {"account": row["payee"], "transfer": row["transfer"], "amount": row["amount"]},
    ]


class _Accounts(KeyedProcessFunction):
    """Keeps the balance of each account."""

    def open(self, context: RuntimeContext) -> None:
        self._balance: ValueState = context.get_state(ValueStateDescriptor("balance", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        balance = self._balance.value() + row["amount"]
        self._balance.update(balance)
        return [{**row, "balance": balance}]


_SIDES: Final[Mapping[str, str]] = {"account": "int64", "transfer": "int64", "amount": "int64"}


def _build_bank(env: StreamEnvironment, rows: int, rate: float) -> DataStream:
    fields = {"payer": _user, "payee": _payee, "amount": _amount, "transfer": lambda rows: rows}
    transfers = env.from_source(DataGenSource(fields, rows, rate), "transfers").uid("transfers")
    sides = transfers.flat_map(_sides, returns=_SIDES).name("sides").uid("sides")
    accounts = sides.key_by("account").process(_Accounts, returns={**_SIDES, "balance": "int64"})
    return accounts.name("accounts").uid("accounts")


def _check_bank(epochs: Sequence[pa.Table], rows: int) -> Sequence[Verdict]:
    def expected() -> Iterable[Mapping[str, Any]]:
        numbers = np.arange(rows, dtype=np.int64)
        for row, payer, payee, amount in zip(numbers, _user(numbers), _payee(numbers), _amount(numbers), strict=True):
            yield {"account": int(payer), "transfer": int(row), "amount": -int(amount)}
            yield {"account": int(payee), "transfer": int(row), "amount": int(amount)}

    output = pa.concat_tables(epochs)
    return [BankChecker().check(epochs), OracleChecker(expected).check(output.drop_columns(["balance"]))]


JOBS: Final[Mapping[str, ChaosJob]] = {
    "sequence": ChaosJob("sequence", _build_sequence, _check_sequence),
    "bank": ChaosJob("bank", _build_bank, _check_bank),
}

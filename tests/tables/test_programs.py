"""The SQL programs of Flink's own tests: equal results in both halves around a savepoint, or a refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import PenstockError
from tests.tables.programs import check, goes_by_clock, prepared, programs, run, run_by_clock

OTHER = {
    "constraint-enforcer-drop-not-null-nested-maps": "a key of a map cannot be null in Arrow, so such rows cannot come",
}
"""Programs whose rows cannot be made."""

OWN_WORDS = {
    "sink-upsert-key-differs-from-pk-without-on-conflict": ["primary key", "'sink_t'", "ON CONFLICT DO DEDUPLICATE"],
    "sink-on-conflict-not-allowed-for-append-only-sink": ["ON CONFLICT", "'sink_t' takes inserts alone"],
    "sink-on-conflict-do-nothing-requires-watermarks": ["ON CONFLICT DO NOTHING", "declare WATERMARK FOR"],
    "sink-on-conflict-do-error-requires-watermarks": ["ON CONFLICT DO ERROR", "declare WATERMARK FOR"],
    "to-changelog-invalid-descriptor": ["'op' is one column", "DESCRIPTOR(column)"],
    "to-changelog-invalid-op-mapping": ["'INVALID_KIND' is no kind of change", "INSERT"],
}
"""What the refusals say that Flink words in another way."""

_PROGRAMS = {program["id"]: program for program in programs()}
CLOCK = tuple(name for name, program in _PROGRAMS.items() if goes_by_clock(program))
_RUN = sorted(_PROGRAMS.keys() - set(CLOCK) - OTHER.keys())
_FAILING = [name for name in _RUN if any(step["step"] == "FailingSqlTestStep" for step in _PROGRAMS[name]["run"])]
_WHOLE = [name for name in _RUN if name not in _FAILING]
_LONG = pytest.mark.long("the same by one subtask, or in every fourth program by three")


def _run(env: StreamEnvironment, statement: str) -> None:
    env.sql(statement)
    env.execute()


@pytest.mark.parametrize(
    ("name", "parallelism"),
    [
        pytest.param(name, parallelism, marks=_LONG if (parallelism == 3) != (number % 4 == 0) else ())
        for parallelism in (1, 3)
        for number, name in enumerate(_WHOLE)
    ],
)
def test_a_program_gives_what_it_gives_in_flink(name: str, parallelism: int, tmp_path: Path) -> None:
    program = _PROGRAMS[name]
    before, after = run(program, tmp_path, parallelism)
    check(program, {"Before": before} if after is None else {"Before": before, "After": after})


@pytest.mark.parametrize("name", CLOCK)
def test_windows_of_the_clock_end_with_it(name: str, tmp_path: Path) -> None:
    program = _PROGRAMS[name]
    before, after = run_by_clock(program, tmp_path)
    check(program, {"Before": before, "After": after})


@pytest.mark.parametrize("name", _FAILING)
def test_what_flink_refuses_is_refused(name: str) -> None:
    program = _PROGRAMS[name]
    for step in program["run"]:
        env = StreamEnvironment(runtime="local", parallelism=1)
        prepared({**program, "run": []}, env, ("dataBeforeRestore",), held=False)
        with pytest.raises(PenstockError) as raised:
            _run(env, step["sql"])
        told = OWN_WORDS.get(name) or _named(step["expectedErrorMessage"])
        assert [part for part in told if part not in str(raised.value)] == []


def _named(message: str) -> list[str]:
    """What must be named: the column, its type and the option."""
    return re.findall(r"'[^']+'|[A-Z]+\(\d+\)", message)

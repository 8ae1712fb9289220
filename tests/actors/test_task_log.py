"""What a subtask's process keeps of what its functions print and log."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

from penstock import StreamEnvironment
from penstock.actors.task_log import KEPT, TaskLog

LOGGER = logging.getLogger("tests.fraud")


@contextlib.contextmanager
def installed() -> Iterator[TaskLog]:
    """A log in this process, for the time of a test; pytest has streams of its own for each."""
    root = logging.getLogger()
    before = list(root.handlers), root.level, sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    log = TaskLog()
    log.install()
    yield log
    root.handlers, root.level, sys.stdout, sys.stderr = before


def said(log: TaskLog) -> list[tuple[str, str, str]]:
    return [(line.level, line.operator, line.text) for line in log.after(0, 100)]


def test_lines_have_the_operator_that_said_them_and_the_subtask() -> None:
    with installed() as log:

        def check(row: dict[str, Any]) -> dict[str, Any]:
            sys.stdout.write(f"checking {row['n']}\n")
            return row

        def score(row: dict[str, Any]) -> dict[str, Any]:
            LOGGER.warning("no user %s", row["n"])
            return row

        log.place(3, 1, 7)
        env = StreamEnvironment(runtime="local")
        rows = env.from_collection([{"n": 5}])
        rows.map(check, returns={"n": "int64"}).name("check").map(score, returns={"n": "int64"}).name("score").collect()
        env.execute("logged")
        mine = [line for line in said(log) if line[1]]
        assert mine == [("STDOUT", "check", "checking 5"), ("WARNING", "score", "no user 5")]
        assert {(line.task, line.subtask, line.attempt) for line in log.after(0, 100)} == {(3, 1, 7)}


def test_what_is_printed_goes_on_as_it_was_and_is_kept_by_whole_lines() -> None:
    with installed() as log:
        passed: Any = sys.stdout
        print("one", "two", end="")  # noqa: T201
        assert said(log) == []
        print(" three\nfour")  # noqa: T201
        assert [text for _, _, text in said(log)] == ["one two three", "four"]
        assert passed._stream.getvalue() == "one two three\nfour\n"


def test_what_came_before_is_not_told_again_and_the_oldest_goes() -> None:
    with installed() as log:
        for number in range(KEPT + 5):
            log.add("INFO", "", str(number))
        lines = log.after(0, KEPT + 10)
        assert (len(lines), lines[0].text) == (KEPT, "5")
        assert [line.text for line in log.after(lines[-3].number, 100)] == [str(KEPT + 3), str(KEPT + 4)]
        assert TaskLog().after(0, 5) == []


def test_an_exception_is_kept_with_its_traceback() -> None:
    with installed() as log:
        try:
            raise ValueError("boom")
        except ValueError:
            LOGGER.exception("failed")
        assert "Traceback" in said(log)[0][2]
        assert said(log)[0][2].endswith("ValueError: boom")


def test_programs_can_write_bytes_to_what_they_print_to() -> None:
    with installed():
        printed = io.TextIOWrapper(io.BytesIO())
        sys.stdout = printed
        TaskLog().install()
        sys.stdout.buffer.write(b"\x00\xff")
        assert printed.buffer.getvalue() == b"\x00\xff"  # type: ignore[attr-defined]


def test_what_is_said_while_a_line_is_kept_is_kept_too() -> None:
    class Talks(str):
        """As an object that is collected just then, and says so."""

        def __getitem__(self, key: Any) -> str:
            log.add("INFO", "", "collected")
            return super().__getitem__(key)

    with installed() as log:
        log.add("INFO", "", Talks("line"))
        assert [text for _, _, text in said(log)] == ["collected", "line"]


def test_levels_are_set_for_all_loggers_and_for_single_ones() -> None:
    levels = [(logging.getLogger(name), logging.getLogger(name).level) for name in (None, "tests.fraud", "tests.other")]
    try:
        with installed() as log:
            log.set_levels((("", "ERROR"), ("tests.fraud", "DEBUG")))
            LOGGER.debug("looked")
            logging.getLogger("tests.other").warning("unheard")
            logging.getLogger("tests.other").error("heard")
        assert [text for _, _, text in said(log)] == ["looked", "heard"]
    finally:
        for logger, level in levels:
            logger.setLevel(level)

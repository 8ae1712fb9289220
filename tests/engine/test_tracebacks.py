"""Of a traceback users see the frames of their own functions, wherever ours and asyncio's stand between them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from concurrent.futures import thread

import penstock
from penstock import error_report
from penstock.engine.tracebacks import in_short, own_frames

MINE = ['  File "mine.py", line 2, in g', "    1 / 0", "ZeroDivisionError: no"]


def test_frames_of_ours_are_left_out_wherever_they_stand() -> None:
    ours = error_report.__file__
    text = (
        'Traceback (most recent call last):\n  File "mine.py", line 1, in f\n    g()\n'
        f'  File "{ours}", line 9, in h\n    raise\n  File "mine.py", line 2, in g\n    1 / 0\nZeroDivisionError: no\n'
    )
    lines = ['  File "mine.py", line 1, in f', "    g()", '  File "mine.py", line 2, in g', "    1 / 0"]
    assert own_frames(text) == [*lines, "ZeroDivisionError: no"]


def test_secrets_in_lines_of_code_are_not_shown() -> None:
    frame, error = '  File "mine.py", line 2, in open', "OSError: no password='x' there"
    shown = own_frames("\n".join([frame, '    connect("redis://:x@cache", password="x")', error]))
    assert shown == [frame, '    connect("redis://:***@cache", password="***")', error]


def test_a_package_whose_name_begins_alike_is_the_users() -> None:
    ours = os.path.dirname(error_report.__file__)
    theirs = [f'  File "{ours}_flows/orders.py", line 3, in parse', "    int(row)"]
    text = "\n".join([f'  File "{ours}/actors/subtask.py", line 1, in step', "    step()", *theirs, "ValueError: x"])
    assert own_frames(text) == [*theirs, "ValueError: x"]


def test_so_are_those_of_what_runs_threads_and_coroutines_also_of_other_machines() -> None:
    others = [asyncio.runners.__file__, concurrent.futures.__file__, thread.__file__, penstock.__file__]
    elsewhere = [f"/opt/venv/lib/python3.11/{part}/run.py" for part in ("asyncio", "site-packages/penstock/engine")]
    for file in others + elsewhere:
        assert own_frames("\n".join([f'  File "{file}", line 1, in run', "    run()", *MINE])) == MINE, file
    theirs = '  File "/flows/asyncio/run.py", line 1, in run'
    assert own_frames("\n".join([theirs, *MINE])) == [theirs, *MINE]


def test_so_are_those_of_groups_of_errors_whose_lines_stand_behind_a_bar() -> None:
    others = [
        '  |   File "/opt/lib/python3.11/asyncio/taskgroups.py", line 1, in __aexit__',
        "  |     raise me from None",
    ]
    header, *rest = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "mine.py", line 1, in f',
        "  |     async with asyncio.TaskGroup() as group:",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "mine.py", line 2, in g',
        "    |     1 / 0",
        "    | ZeroDivisionError: no",
        "    +------------------------------------",
    ]
    assert in_short("\n".join([header, *others, *rest[:2], *others, *rest[2:]])).splitlines() == [header, *rest]
    assert in_short("\n".join([header, *others, *rest[2:4], rest[-1]])) == ""


def test_without_a_frame_of_the_user_nothing_is_left() -> None:
    header = "Traceback (most recent call last):"
    ours = f'{header}\n  File "{error_report.__file__}", line 9, in h\n    raise\n'
    assert in_short(f"{ours}OSError: disk full\n") == ""
    assert in_short("\n".join([f"{ours}OSError: disk full\n", "During handling:\n", header, *MINE])).splitlines() == [
        header,
        "OSError: disk full",
        "",
        "During handling:",
        "",
        *MINE,
    ]

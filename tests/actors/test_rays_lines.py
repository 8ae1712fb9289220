"""What a program shows of what Ray prints."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from penstock.actors.rays_lines import FewerLines, saying_less

DUMP = [
    "*** SIGTERM received at time=1795951971 on cpu 1 ***",
    "PC: @     0x7f72c95803aa  (unknown)  (unknown)",
    "    @     0x7f72c8c5a050  179847616  (unknown)",
    "[2026-11-29 11:32:51,849 E 20385 20385] logging.cc:474: *** SIGTERM received at time=1795951971 on cpu 1 ***",
    "[2026-11-29 11:32:51,849 E 20385 20385] logging.cc:474: PC: @     0x7f72c95803aa  (unknown)  (unknown)",
    "[2026-11-29 11:32:51,849 E 20385 20385] logging.cc:474:     @     0x7f72c8c5a050  179847616  (unknown)",
]


@pytest.mark.parametrize("cut", range(len(DUMP) + 1))
def test_the_last_words_of_a_worker_that_was_told_to_end_are_left_out_wherever_they_break_off(cut: int) -> None:
    fewer = FewerLines()
    assert fewer.of("a", ["a row", *DUMP[:cut]]) == ["a row"]
    assert fewer.of("b", ["    @ a row of another"]) == ["    @ a row of another"]
    assert fewer.of("a", [*DUMP[cut:], "a row"]) == ["a row"]


def test_what_rays_processes_say_as_information_is_left_out() -> None:
    said = "[2026-11-29 11:54:04,643 {} 22353 22392] gcs_client.cc:96: GcsClient has no Cluster ID set"
    lines = [said.format(level) for level in "IWE"]
    assert FewerLines().of("raylet", [*lines, "[2026-11-29 11:54:04,643 I] a row"]) == [
        *lines[1:],
        "[2026-11-29 11:54:04,643 I] a row",
    ]


def test_those_of_one_that_crashed_are_not() -> None:
    crash = [line.replace("SIGTERM", "SIGSEGV") for line in DUMP]
    fewer = FewerLines()
    assert fewer.of("a", crash) == crash
    assert fewer.of("b", [*DUMP, *crash]) == crash, "the number of a process comes again"


def test_what_is_left_is_printed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = ray._private.worker
    printed: list[Any] = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, ignore_prefix: printed.append((data, ignore_prefix)))
    with saying_less(log_to_driver=True):
        prints = worker.print_to_stdstream
    where = {"ip": "10.0.0.1", "pid": 5, "is_err": True}
    prints({**where, "lines": ["a row", *DUMP]}, ignore_prefix=True)
    prints({**where, "lines": DUMP}, ignore_prefix=True)
    assert printed == [({**where, "lines": ["a row"]}, True)]

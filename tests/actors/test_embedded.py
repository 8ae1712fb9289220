"""What a program that has started a cluster leaves out at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.actors.embedded import have_printed

RAYS = ":job_id:01000000\n:actor_name:orders/count/0\n"


@pytest.mark.parametrize(
    ("out", "err", "printed"),
    [
        ("", "", False),
        (RAYS, RAYS, False),
        (f"{RAYS}a row\n", RAYS, True),
        (RAYS, f"{RAYS}a warning", True),
        (f"a row\n{RAYS}", "", True),
        (f"{RAYS}\n", RAYS, True),
    ],
)
def test_lines_of_a_worker_are_told_from_those_of_ray(out: str, err: str, printed: bool, tmp_path: Path) -> None:
    for name, text in {"worker-1.out": RAYS, "worker-2.out": out, "worker-2.err": err, "raylet.err": "text\n"}.items():
        (tmp_path / name).write_text(text)
    assert have_printed(tmp_path) == printed


def test_a_session_without_files_has_printed_nothing(tmp_path: Path) -> None:
    assert not have_printed(tmp_path / "removed")

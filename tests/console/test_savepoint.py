"""`penstock savepoint inspect|diff|dispose`, and the sub-commands beside `savepoint JOB`; no cluster."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock import DataGenSource, RandomInt, StreamEnvironment, count
from penstock.console import jobs
from tests.console.conftest import Penstock


@pytest.fixture
def taken(folder: Path) -> tuple[str, str, str]:
    """Two savepoints of a job, and a checkpoint that lies between them."""
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=100)
    env.configure(
        {
            "execution.checkpointing.dir": "checkpoints",
            "execution.checkpointing.savepoint-dir": "savepoints",
            "execution.checkpointing.externalized-checkpoint-retention": "retain-on-cancellation",
        }
    )
    rows = env.from_source(DataGenSource({"k": RandomInt(0, 3)}, rows=None)).uid("numbers")
    rows.key_by("k").aggregate(n=count()).uid("counts").print()
    job = env.submit("counting")
    job.pump(0.05)
    first, checkpoint = job.savepoint(), job.checkpoint()  # type: ignore[attr-defined]
    job.pump(0.05)
    second = job.savepoint()  # type: ignore[attr-defined]
    job.cancel()
    return first, second, checkpoint


def path_of(url: str) -> Path:
    return Path(urlsplit(url).path)


def test_inspect_shows_operators_and_states(penstock: Penstock, taken: tuple[str, str, str]) -> None:
    first, _, _ = taken
    document = penstock("savepoint", "inspect", first, "--json").document
    assert (document["kind"], document["job_name"]) == ("savepoint", "counting")
    assert [operator["uid"] for operator in document["operators"]][:2] == ["numbers", "counts"]
    shown = penstock("savepoint", "inspect", "--verify", str(path_of(first)))
    assert shown.code == 0
    assert "counts" in shown.out
    assert "files are as they were written" in shown.err


def test_diff_shows_what_has_changed(penstock: Penstock, taken: tuple[str, str, str]) -> None:
    first, second, _ = taken
    assert penstock("savepoint", "diff", first, first, "--json").document["is_empty"]
    document = penstock("savepoint", "diff", first, second, "--json").document
    assert not document["is_empty"]
    assert "numbers" in penstock("savepoint", "diff", first, second, "--sample", "1").out


def test_dispose_deletes_a_savepoint_and_nothing_else(penstock: Penstock, taken: tuple[str, str, str]) -> None:
    first, second, checkpoint = taken
    done = penstock("savepoint", "dispose", first, "--json")
    assert (done.code, done.document["job_name"]) == (0, "counting")
    assert not path_of(first).exists()
    assert path_of(second).exists()
    for path, message in (
        (first, "is no savepoint: it has no manifest.json"),
        (checkpoint, "which owns it, and no savepoint; nothing was deleted"),
        (str(path_of(second).parent), "is no savepoint"),
        ("s4://bucket/x", "no storage is called 's4'"),
    ):
        refused = penstock("savepoint", "dispose", path)
        assert refused.code in (1, 2)
        assert message in refused.err


def test_dispose_leaves_alone_what_does_not_belong_to_the_savepoint(
    penstock: Penstock, taken: tuple[str, str, str]
) -> None:
    _, second, _ = taken
    (path_of(second) / "notes.txt").write_text("keep")
    done = penstock("savepoint", "dispose", second)
    assert done.code == 1
    assert "holds more than a savepoint, such as notes.txt" in done.err
    assert penstock("savepoint", "inspect", second).code == 0


def test_a_damaged_savepoint_is_named(penstock: Penstock, taken: tuple[str, str, str]) -> None:
    _, second, _ = taken
    manifest = path_of(second) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"counting", b"COUNTING"))
    done = penstock("savepoint", "inspect", second, "--json")
    assert (done.code, done.document["error"]["type"]) == (1, "CheckpointCorruptError")
    assert "manifest.json" in done.err


@pytest.mark.parametrize(
    ("arguments", "job"),
    [
        (["orders"], ("orders", None)),
        (["orders", "folder"], ("orders", "folder")),
        (["--json", "orders"], ("orders", None)),
        (["--", "inspect"], ("inspect", None)),
    ],
)
def test_anything_but_a_sub_command_is_a_job(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, arguments: list[str], job: tuple[str, str | None]
) -> None:
    class Control:
        def savepoint(self, directory: str | None) -> str:
            return f"{directory}/savepoint"

    asked: list[str] = []

    def find(name: str, address: str | None, output: object) -> Control:
        asked.append(name)
        control = Control()
        control.name = name  # type: ignore[attr-defined]
        return control

    monkeypatch.setattr(jobs, "_find", find)
    done = penstock("savepoint", *arguments)
    assert (done.code, asked) == (0, [job[0]])
    assert (job[1] or "None") in done.out


def test_help_is_there_for_every_command(penstock: Penstock) -> None:
    shown = penstock("--help").out
    for command in ("run", "list", "info", "checkpoint", "savepoint", "stop", "cancel", "rescale", "config"):
        assert f"  {command} " in shown
        assert penstock(command, "--help").code == 0
    assert penstock("--version").out.startswith("penstock ")
    for arguments in ([], ["savepoint"], ["nonsense"], ["info"]):
        assert penstock(*arguments).code == 2

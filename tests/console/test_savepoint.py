"""`penstock savepoint inspect|diff|dispose`, and the sub-commands beside `savepoint JOB`; no cluster."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("how", ["cut off", "missing", "changed"])
def test_of_a_savepoint_with_a_damaged_file_the_rest_is_shown(
    penstock: Penstock, taken: tuple[str, str, str], how: str
) -> None:
    _, second, _ = taken
    of_counts = {
        state["name"]: state["rows"]
        for operator in penstock("savepoint", "inspect", second, "--json").document["operators"]
        for state in operator["states"]
        if operator["uid"] == "counts"
    }
    damaged = next(path for path in (path_of(second) / "data").iterdir() if b"split_id" in path.read_bytes())
    content = damaged.read_bytes()
    if how == "missing":
        damaged.unlink()
    else:
        middle = len(content) // 2
        damaged.write_bytes(content[:-1] if how == "cut off" else content[:middle] + b"?" + content[middle + 1 :])
    for options in ([], ["--verify"]):
        done = penstock("savepoint", "inspect", second, "--json", *options)
        assert (done.code, done.document["error"]["type"]) == (1, "CheckpointCorruptError")
        assert len(done.document["problems"]) == 1
        assert damaged.name in done.document["problems"][0]
        states = {one["uid"]: one["states"] for one in done.document["operators"]}
        assert {state["name"]: state["rows"] for state in states["counts"]} == of_counts
        assert [state["kind"] for state in states["numbers"]] == ["damaged"]
    shown = penstock("savepoint", "inspect", second)
    assert (shown.code, shown.err.count("error:")) == (1, 1)
    assert damaged.name in shown.err
    assert "counts" in shown.out


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

    def find(name: str, address: str | None, url: str | None, output: object) -> Control:
        asked.append(name)
        control = Control()
        control.name = name  # type: ignore[attr-defined]
        return control

    monkeypatch.setattr(jobs, "find", find)
    done = penstock("savepoint", *arguments)
    assert (done.code, asked) == (0, [job[0]])
    assert (job[1] or "None") in done.out


def test_help_is_there_for_every_command(penstock: Penstock) -> None:
    shown = penstock("--help").out
    for command in ("run", "list", "info", "checkpoint", "savepoint", "stop", "cancel", "rescale", "config"):
        assert f"  {command} " in shown
        assert penstock(command, "--help").code == 0
    assert penstock("--version").out.startswith("penstock ")
    for arguments in (["nonsense"], ["info"]):
        assert penstock(*arguments).code == 2


@pytest.mark.parametrize(("arguments", "command"), [([], "rescale"), (["savepoint"], "inspect"), (["chaos"], "run")])
def test_a_command_that_is_given_nothing_says_what_there_is(
    penstock: Penstock, arguments: list[str], command: str
) -> None:
    done = penstock(*arguments)
    assert (done.code, done.out) == (2, "")
    assert f"\n  {command} " in done.err
    assert "error" not in done.err.partition("\n")[0]
    assert penstock("--json", *arguments).document["error"]["message"].startswith("nothing is asked for")


def test_the_options_of_all_commands_may_stand_before_the_command(penstock: Penstock, taken: tuple[str, ...]) -> None:
    behind = penstock("savepoint", "inspect", taken[0], "--json").document
    assert penstock("--json", "savepoint", "inspect", taken[0]).document == behind
    assert penstock("--json", "savepoint", "inspect", "nowhere").document["error"]["type"] == "NoCheckpointError"
    assert "Traceback" in penstock("--traceback", "savepoint", "inspect", "nowhere").err


def test_the_folder_of_a_savepoint_is_named_by_the_whole_id_of_its_job(
    penstock: Penstock, taken: tuple[str, str, str]
) -> None:
    document = penstock("savepoint", "inspect", taken[0], "--json").document
    folder = path_of(taken[0]).name
    assert re.fullmatch(rf"savepoint-{document['job_id']}-{document['checkpoint']:08d}-[0-9a-f]{{12}}", folder)
    assert re.fullmatch(r"counting-[0-9a-f]{8}", document["job_id"])
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert re.search(r"savepoint-orders-[0-9a-f]{8}-[0-9]{8}-[0-9a-f]{12}\b", page)

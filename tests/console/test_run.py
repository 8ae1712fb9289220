"""`penstock run` without a cluster: what is a flow, what is refused and how, and what comes out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import DataGenSource, RandomInt, StreamEnvironment, count
from penstock.actors.cluster import ClustersHere
from penstock.console import cluster
from penstock.console.cluster import is_local, storage_problems
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.job.handle import JobHandle
from tests.console.conftest import Done, Penstock

WORDS = """
import penstock as ps

def flow(env):
    words = env.from_collection([{"word": "to"}, {"word": "be"}, {"word": "to"}])
    words.key_by("word").aggregate(n=ps.count()).print()

def raises(env):
    return {}["missing"]

def runs_itself(env):
    flow(env)
    env.execute()

def reads(env):
    print(list(env.from_collection([1]).collect()))

def empty(env):
    pass

def takes_nothing():
    pass

def first_letter(row):
    return row["word"][0]

def counted(words: "ps.DataStream"):
    return words.key_by("word").aggregate(n=ps.count())

def annotated(e: "ps.StreamEnvironment", rows: int = 3):
    flow(e)

async def later(env):
    pass

ready = ps.StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=7)
flow(ready)
number = 7
"""


@pytest.fixture
def words(folder: Path) -> Path:
    (folder / "words.py").write_text(WORDS)
    return folder


def rows(done: Done) -> list[str]:
    return sorted(line for line in done.out.splitlines() if line.startswith("{'word'"))


BOTH = ["{'word': 'be', 'n': 1}", "{'word': 'to', 'n': 2}"]


@pytest.mark.parametrize("flow", ["words.py:flow", "./words.py:flow", "words:flow", "words.py:ready"])
def test_a_flow_is_a_function_or_an_environment_of_a_file_or_a_module(
    penstock: Penstock, words: Path, flow: str
) -> None:
    done = penstock("run", "--local", flow)
    assert (done.code, rows(done)) == (0, BOTH)
    assert "finished" in done.out


def test_json_is_one_document_whatever_the_flow_prints(penstock: Penstock, words: Path) -> None:
    done = penstock("run", "--local", "--json", "-p", "2", "words.py:flow")
    assert done.code == 0
    assert (done.document["name"], done.document["status"]) == ("words", "finished")
    assert [operator["parallelism"] for operator in done.document["operators"]][-1] == 2
    assert "{'word': 'be', 'n': 1}" in done.err


def test_the_example_of_the_page_runs(penstock: Penstock, folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    (folder / "wordcount.py").write_text(page.split("```python\n")[1].split("```")[0])
    assert "{'word': 'be', 'n': 2}" in penstock("run", "--local", "wordcount.py:flow").out


def test_a_cluster_that_does_not_answer_is_none(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.actors.cluster.clusters_here", lambda: ClustersHere(None))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for command in (["list"], ["info", "orders"], ["stop", "orders"]):
        done = penstock(*command, "--json")
        assert (done.code, done.document["error"]["type"]) == (1, "ClusterError")
        assert "no Ray cluster is running on this machine; start one with `ray start --head`" in done.err


def test_a_cluster_that_wants_another_token_is_named_and_what_to_do(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ClustersHere(None, ["the Ray cluster at 10.0.0.7:6379, on this machine, cannot be used: it wants a token"])
    monkeypatch.setattr("penstock.actors.cluster.clusters_here", lambda: here)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = penstock("list", "--json")
    assert (done.code, done.document["error"]["type"]) == (1, "ClusterError")
    assert f"{here.refused[0]}; or start one with `ray start --head`, or give the address of another" in done.err


@pytest.mark.parametrize(
    ("flow", "name"), [("words.py:flow", "words"), ("words.py:ready", "words.ready"), ("words:flow", "words")]
)
def test_a_job_is_called_as_its_flow(penstock: Penstock, words: Path, flow: str, name: str) -> None:
    assert penstock("run", "--local", "--json", flow).document["name"] == name
    assert penstock("run", "--local", "--json", "-Dpipeline.name=mine", flow).document["name"] == "mine"


def test_the_configuration_reaches_the_job(penstock: Penstock, words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (words / "penstock.yaml").write_text("penstock.runtime: local\nparallelism.default: 3\n")
    document = penstock("run", "--json", "words.py:flow").document
    assert document["operators"][-1]["parallelism"] == 3
    assert penstock("run", "--json", "-p", "1", "words.py:flow").document["operators"][-1]["parallelism"] == 1


def test_an_environment_keeps_its_settings_unless_the_command_line_says_otherwise(
    penstock: Penstock, words: Path
) -> None:
    (words / "penstock.yaml").write_text("parallelism.default: 3\n")
    assert penstock("run", "--json", "words.py:ready").document["operators"][-1]["parallelism"] == 2
    (words / "penstock.yaml").write_text("parallelism.default: 3\n")
    done = penstock("run", "--json", "-Dparallelism.default=1", "words.py:ready")
    assert done.document["operators"][-1]["parallelism"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "'nothing' names no flow; write module:flow or file.py:flow"),
        (["wrds.py:flow"], "there is no file wrds.py (did you mean 'words.py'?)"),
        (["words.py:flwo"], "words.py has no 'flwo' (did you mean 'flow'?); it has flow, raises"),
        (["wordz:flow"], "there is no module 'wordz' here or among those installed"),
        (["./words:flow"], "'./words' is no module; of a file, write ./words.py:flow"),
        (["words.py:number"], "words.py:number is 7 (int), not a flow"),
        (["words.py:takes_nothing"], "words.py:takes_nothing does not take one argument, the StreamEnvironment"),
        (["words.py:later"], "words.py:later is an async function"),
        (["-d", "words.py:flow"], "a local job lives in this process"),
        (["--speed", "9", "words.py:flow"], "No such option: --speed"),
        (["-p", "two", "words.py:flow"], "Invalid value for '-p' / '--parallelism'"),
        (["-p", "0", "words.py:flow"], "parallelism.default (command line): must be 1 or more, not 0"),
        (["-Dexecution.checkpointing.interval=1x", "words.py:flow"], "'1x' is no duration"),
        (["-Dexecution.checkpointing.dir=words.py/x", "words.py:flow"], "execution.checkpointing.dir: file:///"),
        (["--savepoint-to", "history", "words.py:flow"], "savepoint_to='history' is for batch jobs"),
    ],
)
def test_misuse_is_named_and_exits_with_2(penstock: Penstock, words: Path, arguments: list[str], message: str) -> None:
    done = penstock("run", "--local", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert message.partition("'")[0] in penstock("run", "--local", "--json", *arguments).document["error"]["message"]


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("words.py:raises", "the flow words.py:raises raised KeyError: 'missing'"),
        ("words.py:empty", "the program is empty"),
        (
            "words.py:runs_itself",
            "leave execute(), submit() and the reading of collect() out of the flow words.py:runs",
        ),
        ("words.py:reads", "leave execute(), submit() and the reading of collect() out of the flow words.py:reads"),
        ("broken.py:flow", "broken.py cannot be imported: SyntaxError"),
        ("needy.py:flow", "needy.py cannot be imported: ModuleNotFoundError: No module named 'missing_library'"),
        ("failing.py:flow", "ValueError: no such luck"),
    ],
)
def test_errors_at_run_time_exit_with_1_and_name_the_place(
    penstock: Penstock, words: Path, flow: str, message: str
) -> None:
    (words / "broken.py").write_text("def flow(env:\n")
    (words / "needy.py").write_text("import missing_library\n")
    (words / "failing.py").write_text(
        "def luck(row):\n    raise ValueError('no such luck')\n"
        "def flow(env):\n    env.from_collection([1]).map(luck).print()\n"
    )
    done = penstock("run", "--local", flow)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in penstock("run", "--local", "--traceback", flow).err


def test_a_file_does_not_take_the_place_of_a_module_of_its_name(penstock: Penstock, words: Path) -> None:
    (words / "json.py").write_text(WORDS)
    assert penstock("run", "--local", "json.py:flow").code == 0
    assert sys.modules["json"] is json


def test_ctrl_c_ends_the_job_and_exits_with_130(folder: Path) -> None:
    (folder / "endless.py").write_text(
        "from penstock import DataGenSource, RandomInt\n"
        "def flow(env):\n"
        "    env.from_source(DataGenSource({'x': RandomInt(0, 9)}, rows=None, rate=1000.0)).print()\n"
    )
    command = [sys.executable, "-c", "from penstock.console.main import main; main()", "run", "--local"]
    child = subprocess.Popen(
        [*command, "endless.py:flow"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith("{'x'")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    # Where the signal meets a function, it is said before what the job waits for.
    assert (child.returncode, err.splitlines()[-1]) == (130, "error: interrupted")
    assert "job endless was cancelled (Ctrl-C): it took no checkpoints, so it begins anew" in err


@pytest.mark.parametrize(
    "how", [("--resume", "-s", "x"), ("--resume", "--resume-if-any"), ("--resume-if-any", "-s", "x")]
)
def test_a_flow_goes_on_from_one_thing(penstock: Penstock, words: Path, how: tuple[str, ...]) -> None:
    done = penstock("run", "--local", *how, "words.py:flow")
    assert done.code == 2
    assert "give one of --from-savepoint, --resume and --resume-if-any" in done.err


def test_a_flow_is_resumed_by_its_name(penstock: Penstock, words: Path) -> None:
    ask = ("run", "--local", "-Dexecution.checkpointing.dir=kept", "--json", "words.py:flow")
    refused = penstock(*ask, "--resume")
    assert (refused.code, refused.document["error"]["type"]) == (1, "NoCheckpointError")
    assert "job 'words' cannot be resumed: no run of it has left a checkpoint" in refused.err
    begun = penstock(*ask, "--resume-if-any")
    assert (begun.code, begun.document["restored_from"]) == (0, None)
    assert "has finished" in penstock(*ask, "--resume-if-any").err


def test_a_flow_goes_on_from_a_savepoint(penstock: Penstock, folder: Path) -> None:
    numbers = DataGenSource({"k": RandomInt(0, 3)}, rows=20_000)
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=100)
    env.configure({"execution.checkpointing.dir": "checkpoints", "execution.checkpointing.savepoint-dir": "savepoints"})
    counts = env.from_source(numbers).uid("numbers").key_by("k").aggregate(n=count()).uid("counts")
    counts.print()
    job = env.submit("first")
    while not any(operator.rows_in for operator in job.metrics().operators):
        job.pump(0.1)
    savepoint = job.stop()  # type: ignore[attr-defined]
    (folder / "second.py").write_text(
        "import penstock as ps\n"
        "from penstock import DataGenSource, RandomInt\n"
        "def flow(env):\n"
        "    rows = env.from_source(DataGenSource({'k': RandomInt(0, 3)}, rows=20_000)).uid('numbers')\n"
        "    rows.key_by('k').aggregate(n=ps.count()).uid('counts').print()\n"
        "def other(env):\n"
        "    rows = env.from_source(DataGenSource({'k': RandomInt(0, 3)}, rows=20_000)).uid('numbers')\n"
        "    rows.print()\n"
    )
    done = penstock("run", "--local", "-s", savepoint, "second.py:flow")
    assert done.code == 0, done.err
    assert "dropped" not in done.err
    last = {line.split(",")[0]: line for line in done.out.splitlines() if line.startswith("{'k'")}
    assert sum(int(line.rstrip("}").rpartition(" ")[2]) for line in last.values()) == 20_000
    refused = penstock("run", "--local", "-s", savepoint, "second.py:other")
    assert refused.code == 1
    assert "counts" in refused.err
    assert "drop their state with allow_non_restored_state (-n)" in refused.err
    shown = penstock("run", "--local", "-n", "-s", savepoint, "second.py:other")
    assert shown.code == 0
    assert "dropped the state of operators that the program does not have: 'counts'" in shown.err
    told = penstock("run", "--local", "--json", "-n", "-s", savepoint, "second.py:other")
    assert told.document["dropped_operators"] == ["counts"]
    assert told.document["restored_from"] in shown.err
    assert Path(savepoint).name in told.document["restored_from"]
    assert penstock("run", "--local", "-s", "nowhere", "second.py:flow").code == 1


# Storage


def test_a_local_folder_is_refused_where_other_machines_need_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CheckpointConfig(storage=str(folder / "checkpoints"), savepoint_storage="memory://x/savepoints")
    assert "memory of one process" in storage_problems(config, "ray", 1)[0]
    assert storage_problems(config, "local", 1) == []
    first, *_ = storage_problems(config, "ray", 3)
    assert first.startswith("execution.checkpointing.dir: ")
    assert "the other 2 of the cluster do not see" in first
    monkeypatch.setattr(cluster, "_file_system", lambda path: "nfs4")
    assert not is_local(str(folder))
    assert len(storage_problems(config, "ray", 3)) == 1


def test_the_default_folder_is_refused_too_where_other_machines_need_it(folder: Path) -> None:
    (problem,) = storage_problems(CheckpointConfig(interval_ms=1000), "ray", 2)
    assert "~/.penstock/checkpoints is on the disk of this machine" in problem
    assert storage_problems(CheckpointConfig(), "ray", 2) == []


def test_a_bucket_is_seen_by_all_machines() -> None:
    assert not is_local("s3://bucket/checkpoints")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(penstock: Penstock, words: Path) -> None:
    (words / "locked").mkdir(mode=0o500)
    done = penstock("run", "--local", "-Dexecution.checkpointing.dir=locked", "words.py:flow")
    assert done.code == 2
    assert "locked" in done.err


def test_an_error_in_the_program_names_the_users_line(penstock: Penstock, folder: Path) -> None:
    (folder / "typo.py").write_text(
        "def flow(env):\n    rows = env.from_collection([{'k': 1}])\n    rows.key_by('q').collect()\n"
    )
    done = penstock("run", "--local", "typo.py:flow")
    assert done.code == 1
    first, at = done.err.strip().splitlines()
    assert first == "error: key_by: no column 'q'; the stream has k"
    assert at == f"at {folder.resolve() / 'typo.py'}:3: rows.key_by('q').collect()"
    told = penstock("run", "--local", "--json", "typo.py:flow").document["error"]
    assert told["at"] == {"file": str(folder.resolve() / "typo.py"), "line": 3}


def test_json_of_a_failed_job_has_the_line_of_the_users_function(penstock: Penstock, folder: Path) -> None:
    (folder / "parses.py").write_text(
        "import json\ndef parse(row):\n    return json.loads(row['text'])\n\n"
        "def flow(env):\n    env.from_collection([{'text': '{'}]).map(parse).print()\n"
    )
    told = penstock("run", "--local", "--json", "parses.py:flow").document["error"]
    assert told["at"] == {"file": str(folder.resolve() / "parses.py"), "line": 3}
    assert "at" not in penstock("run", "--local", "--json", "elsewhere.py:flow").document["error"]


def test_a_file_without_a_flow_is_told_with_those_that_it_has(penstock: Penstock, words: Path) -> None:
    done = penstock("run", "--local", "words.py")
    assert done.code == 2
    assert (
        "'words.py' names no flow; write module:flow or file.py:flow; it has flow, raises, runs_itself, reads, empty, "
        "annotated, ready\n"
    ) in done.err
    (words / "helpers.py").write_text("def first_letter(row):\n    return row['word'][0]\n")
    assert "it has no flows" in penstock("run", "--local", "helpers.py").err


@pytest.mark.usefixtures("as_a_process_of_its_own")
@pytest.mark.parametrize("checkpointed", [True, False])
def test_who_is_told_to_end_says_what_the_job_is_resumed_from(
    penstock: Penstock,
    words: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    checkpointed: bool,
) -> None:
    taken: list[str] = []

    def wait(job: JobHandle, output: object) -> None:
        if checkpointed:
            taken.append(job.checkpoint())
        os.kill(os.getpid(), signal.SIGTERM)
        job.pump()

    monkeypatch.setattr("penstock.console.run._wait", wait)
    (words / "endless.py").write_text(
        "import penstock as ps\n\n"
        "def flow(env):\n"
        "    env.from_source(ps.DataGenSource({'i': ps.Sequence()}, rows=None, rate=10)).print()\n"
    )
    with pytest.raises(SystemExit) as ended:
        penstock("run", "--local", "-Dexecution.checkpointing.dir=kept", "endless.py:flow")
    assert ended.value.code == 143
    left = f"suspended behind {taken[0]}; resume with --resume" if taken else "there is no checkpoint to resume from"
    assert f"job endless was told to end (SIGTERM): {left}" in capsys.readouterr().err


@pytest.mark.usefixtures("as_a_process_of_its_own")
@pytest.mark.parametrize("moment", ["penstock.environment.plan", "penstock.console.run._say_start"])
def test_who_is_told_to_end_before_the_job_runs_says_so_too(
    penstock: Penstock, words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    monkeypatch.setattr(moment, lambda *arguments: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        penstock("run", "--local", "-Dexecution.checkpointing.dir=kept", "words.py:flow")
    assert ended.value.code == 143
    assert "job words was told to end (SIGTERM): there is no checkpoint to resume from" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("kept", "takes", "left"),
    [
        (True, True, "its newest checkpoint stays, {}; resume with --resume"),
        (True, False, "it had no checkpoint yet, so it begins anew\n"),
        (False, True, "its checkpoints went with it"),
    ],
)
def test_ctrl_c_says_what_stays_of_the_job(
    penstock: Penstock, words: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, takes: bool, left: str
) -> None:
    taken: list[str] = []

    def wait(job: JobHandle, output: object) -> None:
        if takes:
            taken.append(job.checkpoint())
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.console.run._wait", wait)
    (words / "endless.py").write_text(
        "import penstock as ps\n\n"
        "def flow(env):\n"
        "    env.from_source(ps.DataGenSource({'i': ps.Sequence()}, rows=None, rate=10)).print()\n"
    )
    retention = "-Dexecution.checkpointing.externalized-checkpoint-retention=" + (
        "RETAIN_ON_CANCELLATION" if kept else "DELETE_ON_CANCELLATION"
    )
    settings = ("-Dexecution.checkpointing.dir=kept", "-Dexecution.checkpointing.interval=5m", retention)
    done = penstock("run", "--local", *settings, "endless.py:flow")
    assert done.code == 130
    assert f"job endless was cancelled (Ctrl-C): {left.format(*taken)}" in done.err


def test_a_local_run_takes_no_cluster(penstock: Penstock, words: Path) -> None:
    done = penstock("run", "--local", "--address", "10.0.0.7:6379", "words.py:flow")
    assert done.code == 2
    assert "a local job uses no cluster; leave out --address, or --local" in " ".join(done.err.replace("│", "").split())

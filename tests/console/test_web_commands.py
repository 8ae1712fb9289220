"""The commands `console`, `why` and `logs` on a job that runs on Ray."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.conftest import Penstock

FLOW = """
import logging
import penstock as ps

def said(row):
    if row["n"] % 100 == 0:
        print("saw", row["n"])
        logging.getLogger("chatty").info("and logged it")
    return row

def flow(env):
    rows = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rows=None, rate=200.0)).uid("numbers")
    told = rows.map(said, returns={"n": "int64"}).name("saying").uid("said")
    told.sink_to(ps.FileSink("OUT", "json", mode="append")).uid("out")
"""


@pytest.fixture
def chatty(penstock: Penstock, folder: Path, ray_cluster: None) -> Iterator[str]:
    (folder / "chatty_flow.py").write_text(FLOW.replace("OUT", f"{folder}/out"))
    started = penstock("run", "-d", "--json", "chatty_flow:flow")
    assert started.code == 0, started.err
    yield str(started.document["id"])
    penstock("console", "--stop")
    penstock("cancel", "chatty_flow")


def test_an_offline_console_says_the_port_that_it_took(
    penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(shown: Path, listening: socket.socket) -> None:
        listens_at.append(listening.getsockname()[1])
        raise KeyboardInterrupt

    listens_at: list[int] = []
    monkeypatch.setattr("penstock.web.offline.serve_offline", interrupted)
    done = penstock("console", "--offline", str(folder), "--port", "0")
    assert (done.code, f"http://127.0.0.1:{listens_at[0]}/" in done.err + done.out) == (0, True)


@pytest.mark.ray
def test_a_running_job_is_looked_at(penstock: Penstock, folder: Path, chatty: str) -> None:
    def lines(*options: str) -> list[str]:
        return penstock("logs", "chatty_flow", *options).out.splitlines()

    deadline = time.monotonic() + 120
    while not any("and logged it" in line for line in lines()):
        assert time.monotonic() < deadline
    printed = [line for line in lines("--operator", "saying") if "saw" in line]
    assert "STDOUT chatty_flow/saying/0 saw 0" in printed[0]
    assert [line for line in lines("--operator", "said") if "saw" in line][: len(printed)] == printed
    assert "no operator 'sayed' (did you mean 'said'?)" in penstock("logs", "chatty_flow", "--operator", "sayed").err
    assert any("INFO chatty_flow/saying/0 chatty: and logged it" in line for line in lines())
    why = penstock("why", "chatty_flow", "--json").document
    assert (why["kind"], why["sentence"].startswith("Nothing holds it up")) == ("fine", True)
    console = penstock("console", "--port", "0", "--json").document
    assert Path(console["token_file"]).is_relative_to(folder)
    with urllib.request.urlopen(f"{console['url']}v1/jobs/{chatty}/logs") as answer:
        assert b"and logged it" in answer.read()
    tailed = penstock("tail", "chatty_flow", "said", "--rows", "3", "--json").document
    assert len(tailed["rows"]) == 3
    assert all(set(row) == {"subtask", "n"} for row in tailed["rows"])
    assert penstock("tail", "chatty_flow", "numbers", "--rows", "1", "--json").document["seen"] > 0
    assert "is a sink" in penstock("tail", "chatty_flow", "out").err
    assert penstock("console").out == f"web console: {console['url']}\n"
    assert penstock("console", "--stop").out == "the web console has ended\n"
    assert penstock("console", "--stop").out == "no web console runs\n"

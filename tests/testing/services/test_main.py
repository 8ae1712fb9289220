"""`python -m penstock.testing.services` prints what a client needs and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis as client_library

from penstock.testing.services.__main__ import main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_servers_run_until_a_signal_comes(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.testing.services", "redis", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        with client_library.Redis.from_url(addresses["redis"]["url"]) as client:
            assert client.ping()
        # As a terminal does it: to all processes of the group.
        os.killpg(process.pid, number)
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


def test_addresses_are_printed_in_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "pause", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["redis"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    lines = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["redis url"].endswith(f"@127.0.0.1:{lines['redis port']}/0")


def test_a_missing_server_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["redis"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "run python -m penstock.testing.services --install" in capsys.readouterr().err


def test_an_unknown_server_is_refused_with_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rabbit"])
    assert "kafka, postgres, redis, s3" in capsys.readouterr().err

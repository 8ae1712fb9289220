"""`python -m penstock.testing.services` prints what a client needs and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import redis as client_library

from penstock.testing.services.__main__ import main


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts back what handles signals: a process that serves does not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


@pytest.mark.usefixtures("handlers")
def test_the_s3_server_has_a_bucket(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed = list[bytes]()

    def look() -> None:
        s3 = json.loads(capsys.readouterr().out)["s3"]
        with urllib.request.urlopen(f"{s3['endpoint']}/{s3['bucket']}?list-type=2") as answer:
            listed.append(answer.read())
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "pause", look)
    assert main(["s3", "--json"]) == 0
    assert b"<Name>penstock</Name>" in listed[0]


class _Slow:
    """A server that is told to end again while it ends."""

    ended: ClassVar[list[int]] = []

    def __init__(self, number: int) -> None:
        self._number = number

    def start(self) -> None:
        return

    def addresses(self) -> dict[str, str]:
        return {"port": "1"}

    def stop(self) -> None:
        signal.raise_signal(self._number)
        self.ended.append(self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("handlers")
def test_a_second_signal_does_not_break_off_the_end_of_the_servers(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.testing.services.__main__._SERVERS", dict.fromkeys("ab", lambda: _Slow(number)))
    monkeypatch.setattr(signal, "pause", lambda: signal.raise_signal(number))
    monkeypatch.setattr(_Slow, "ended", [])
    assert main([]) == 0
    assert _Slow.ended == [number, number]


@pytest.mark.usefixtures("handlers")
def test_addresses_are_printed_in_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "pause", interrupted)
    assert main(["redis"]) == 0
    lines = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["redis url"].endswith(f"@127.0.0.1:{lines['redis port']}/0")


@pytest.mark.usefixtures("handlers")
def test_a_missing_server_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["redis"]) == 1
    assert "run python -m penstock.testing.services --install" in capsys.readouterr().err


def test_an_unknown_server_is_refused_with_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rabbit"])
    assert "kafka, postgres, redis, s3" in capsys.readouterr().err

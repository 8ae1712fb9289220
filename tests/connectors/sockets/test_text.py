"""Lines from a TCP server: how they are cut, jobs that read them, and what breaks."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.records import JsonFormat
from penstock.connectors.sockets import SocketTextSource
from penstock.engine.errors import ConfigurationError, GraphError, JobFailedError, RecordError, ServerError
from penstock.error_report import report
from penstock.recovery import checkpoints, fixed_delay
from tests.connectors.sockets.reading import open_reader, read
from tests.draws import drawn


@contextlib.contextmanager
def serving(*connections: Sequence[bytes], hold: threading.Event | None = None) -> Iterator[int]:
    """The port of a server that sends the parts of each connection in turn, and then closes it, once `hold` is set."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            for parts in connections:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for part in parts:
                        connection.sendall(part)
                    if hold is not None:
                        hold.wait()

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            if hold is not None:
                hold.set()
            thread.join()


@settings(max_examples=drawn(40))
@given(
    text=st.text(st.sampled_from("ab|\r\né"), max_size=30),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    delimiter=st.sampled_from(["\n", "|", "ab"]),
    max_rows=st.integers(1, 4),
)
def test_lines_are_cut_at_the_delimiter_however_they_come(
    text: str, cuts: list[int], delimiter: str, max_rows: int
) -> None:
    data = text.encode("utf-8")
    places = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    parts = [data[begin:end] for begin, end in itertools.pairwise(places)]
    with serving(parts) as port:
        found = read(open_reader(SocketTextSource("127.0.0.1", port, delimiter=delimiter)), max_rows=max_rows)
    *lines, rest = text.split(delimiter)
    expected = lines + [rest] * bool(rest)
    if delimiter == "\n":
        expected = [line.removesuffix("\r") for line in expected]
    assert [row["line"] for row in found] == expected


def test_rows_come_while_the_server_has_more_to_send() -> None:
    hold = threading.Event()
    with serving([b"to be\nor", b" not\nto"], hold=hold) as port:
        reader = open_reader(SocketTextSource("127.0.0.1", port))
        assert [row["line"] for row in read(reader, most=2)] == ["to be", "or not"]
        hold.set()
        assert read(reader) == [{"line": "to"}]


def test_a_reader_that_is_closed_lets_go_of_a_server_that_sends_more_than_is_read() -> None:
    with serving([b"x\n" * 500_000]) as port:
        reader = open_reader(SocketTextSource("127.0.0.1", port))
        assert read(reader, most=1)
        reader.close()


def test_the_classic_demonstration() -> None:
    with serving([b"to be or\n", b"not to be\n"]) as port:
        env = ps.StreamEnvironment(runtime="local", parallelism=2)
        source = SocketTextSource("127.0.0.1", port)
        words = env.from_source(source).flat_map(
            lambda row: [{"word": word} for word in row["line"].split()], returns={"word": "string"}
        )
        counts = {row["word"]: row["n"] for row in words.key_by("word").aggregate(n=ps.count()).collect()}
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert source.describe() == f"socket(127.0.0.1:{port})"


def test_jobs_with_checkpoints_refuse_it_unless_told_to_skip(tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    def fail(row: dict[str, str]) -> dict[str, str]:
        if row["line"] == "bad" and not failed.exists():
            failed.touch()
            raise OSError("once")
        return row

    def job(source: SocketTextSource) -> list[str]:
        env = ps.StreamEnvironment(
            runtime="local",
            parallelism=1,
            checkpoints=checkpoints("10ms", str(tmp_path / "checkpoints")),
            restart=fixed_delay(3, "1ms"),
        )
        mapped = env.from_source(source).map(fail, returns=source.schema)
        return [row["line"] for row in mapped.collect()]

    with pytest.raises(GraphError, match=r"cannot take checkpoints: .*SocketTextSource"):
        job(SocketTextSource("127.0.0.1", 1))
    with serving([b"bad\n"], [b"again\n", b"and again"]) as port:
        assert job(SocketTextSource("127.0.0.1", port, restore="skip"))[-2:] == ["again", "and again"]


def test_bad_records_and_a_server_that_is_not_there() -> None:
    with serving([b'{"n": 1}\n{"n": 2}\n{"n": "x"}\n']) as port:
        source = SocketTextSource("127.0.0.1", port, format=JsonFormat({"n": "int64"}))
        reader = open_reader(source)
        with pytest.raises(
            RecordError, match=rf"'read', subtask 0: socket 127.0.0.1:{port}: record 2 of the connection: field 'n'"
        ):
            read(reader)
        reader.close()
    with pytest.raises(
        ConnectionError, match=r"operator 'read', subtask 0: socket 127.0.0.1:1: no connection: .*refused"
    ):
        open_reader(SocketTextSource("127.0.0.1", 1))


def test_a_job_with_checkpoints_is_refused_with_the_way_out() -> None:
    env = ps.StreamEnvironment(runtime="local", checkpoints=checkpoints("1s", "memory://sockets"))
    env.from_source(SocketTextSource("127.0.0.1", 1)).print()
    with pytest.raises(GraphError, match=r'cannot resume where it was: give it restore="skip", .* or run the job'):
        env.execute()


def test_a_server_that_is_not_there_ends_the_job_with_one_message_and_no_traceback() -> None:
    env = ps.StreamEnvironment(runtime="local")
    env.from_source(SocketTextSource("127.0.0.1", 1)).print()
    with pytest.raises(JobFailedError) as failed:
        env.execute()
    assert isinstance(failed.value.__cause__, ServerError)
    said = r"job '.*' failed: operator 'socket\(127.0.0.1:1\)', subtask 0: .*refused; check the address, .* from here"
    assert re.fullmatch(said, str(failed.value)), "in one line"
    assert "traceback" not in report(failed.value)


def test_arguments_that_cannot_be_used() -> None:
    with pytest.raises(ConfigurationError, match="port must be"):
        SocketTextSource("h", 70_000)
    with pytest.raises(ConfigurationError, match="delimiter must have"):
        SocketTextSource("h", 1, delimiter="")
    with pytest.raises(ConfigurationError, match="restore must be"):
        SocketTextSource("h", 1, restore="lose")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="must be a RecordFormat"):
        SocketTextSource("h", 1, format="json")  # type: ignore[arg-type]

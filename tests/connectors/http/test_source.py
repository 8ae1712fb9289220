"""Records over HTTP: answers that are asked for again, and one that never ends."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler

import pytest

import penstock as ps
from penstock.connectors.http import HttpSource, client
from penstock.connectors.records import JsonFormat, RawFormat
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.http.servers import answer, serve
from tests.connectors.sockets.reading import open_reader, read
from tests.large import LARGE

FORMAT = JsonFormat({"n": "decimal128(38, 20)"})
TEXT = RawFormat("line", "string")


def test_a_job_reads_json_lines_as_they_come() -> None:
    seen = threading.Event()

    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"to be\r\n\nor ")
        request.wfile.flush()
        assert seen.wait(10)
        request.wfile.write(b"not to be")

    def note(row: dict[str, str]) -> dict[str, str]:
        seen.set()
        return row

    with serve(respond) as url:
        env = ps.StreamEnvironment(runtime="local", parallelism=2, buffer_timeout="0")
        rows = env.from_source(HttpSource(url, format=TEXT)).map(note, returns={"line": "string"}).collect()
        assert [row["line"] for row in rows] == ["to be", "or not to be"]


@pytest.mark.parametrize(
    ("kind", "body", "numbers"),
    [
        ("application/json", b'[{"n": 1},\n {"n": 2}]', ["1", "2"]),
        ("application/json; charset=utf-8", b'\n [\n{"n": 1}\n]\n', ["1"]),
        ("application/json", b'{"n": 1}\n\n{"n": 2}\n', ["1", "2"]),
        ("application/json", b"[]", []),
    ],
)
def test_one_answer_that_is_a_json_array_is_its_elements(kind: str, body: bytes, numbers: list[str]) -> None:
    with serve(lambda request: answer(request, body, **{"Content-Type": kind})) as url:
        reader = open_reader(HttpSource(url, format=FORMAT))
        assert [str(row["n"].normalize()) for row in read(reader)] == numbers


def test_lines_that_begin_with_a_bracket_stay_lines() -> None:
    with serve(lambda request: answer(request, b"[1]\n[2]\n")) as url:
        reader = open_reader(HttpSource(url, format=TEXT))
        assert [row["line"] for row in read(reader)] == ["[1]", "[2]"]


def test_an_array_that_python_cannot_read_stays_a_line() -> None:
    deep = b"[" * 9_000 + b"]" * 9_000
    with serve(lambda request: answer(request, deep, **{"Content-Type": "application/json"})) as url:
        assert [row["line"] for row in read(open_reader(HttpSource(url, format=TEXT)))] == [deep.decode()]


def test_a_silent_answer_can_be_closed() -> None:
    done = threading.Event()

    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"one\n")
        request.wfile.flush()
        done.wait(10)

    with serve(respond) as url:
        reader = open_reader(HttpSource(url, format=TEXT))
        assert read(reader, most=1) == [{"line": "one"}]
        reader.close()
        done.set()


def test_polls_give_elements_digit_for_digit_and_nothing_where_nothing_changed() -> None:
    asked: list[str | None] = []
    bodies = [
        b' [ {"n": 0.12345678901234567890}, {"n": 2}\n,{"n":3} ] ',
        b'{"n": 4}\n\n{"n": 5}\n',
        b"[]",
        b'[{"n": 6}]',
    ]

    def respond(request: BaseHTTPRequestHandler) -> None:
        tag, place = request.headers["If-None-Match"], len(asked)
        asked.append(tag)
        assert request.headers["Authorization"] == "Basic YXBwOnMzY3JldA=="
        body = bodies[min(place // 2, 3)]
        if place % 2:
            answer(request, b"", 304)
        else:
            answer(request, body, ETag=f"tag-{place}")

    with serve(respond) as url:
        source = HttpSource(url.replace("//", "//app:s3cret@") + "/events?key=s3cret", format=FORMAT, poll="1ms")
        reader = open_reader(source)
        found = [str(row["n"].normalize()) for row in read(reader, most=6)]
        reader.close()
        assert source.describe() == f"http({url}/events)"
    assert found[:6] == ["0.1234567890123456789", "2", "3", "4", "5", "6"]
    assert asked[:5] == [None, "tag-0", "tag-0", "tag-2", "tag-2"]


def test_a_poll_that_fails_is_tried_again_and_not_for_ever() -> None:
    statuses = [200, 503, 502, 200, 500, 500, 500, 500]
    asked: list[int] = []

    def respond(request: BaseHTTPRequestHandler) -> None:
        asked.append(len(asked))
        answer(request, b"line %d" % asked[-1], statuses[asked[-1]])

    with serve(respond) as url:
        reader = open_reader(HttpSource(url, format=TEXT, poll="1ms"))
        assert read(reader, most=2) == [{"line": "line 0"}, {"line": "line 3"}]
        with pytest.raises(ConnectionError, match="broke behind record 2: HTTP 500: line 7"):
            read(reader)
        reader.close()
    assert len(asked) == len(statuses)


def endless(request: BaseHTTPRequestHandler) -> None:
    """An answer that ends when nobody reads it any more."""
    request.send_response(200)
    request.end_headers()
    with contextlib.suppress(OSError):
        while True:
            request.wfile.write(b"and on\n")


def test_a_poll_whose_answer_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.05)
    with serve(endless) as url, pytest.raises(ConnectionError, match=r"its answer has not ended after 0\.05 s"):
        open_reader(HttpSource(url, format=TEXT, poll="1ms"))


def test_a_poll_whose_answer_does_not_end_can_be_closed() -> None:
    asked = threading.Event()

    def respond(request: BaseHTTPRequestHandler) -> None:
        if asked.is_set():
            endless(request)
        asked.set()
        answer(request, b"once")

    with serve(respond) as url:
        reader = open_reader(HttpSource(url, format=TEXT, poll="1ms"))
        assert read(reader, most=1) == [{"line": "once"}]
        reader.close()


@pytest.mark.parametrize("poll", [None, "1ms"])
def test_what_cannot_be_reached_is_said_without_secrets(poll: str | None) -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        answer(request, b"who are you?", 401)

    with pytest.raises(ConnectionError, match=r"http http://127.0.0.1:1/x: no connection: .*refused") as caught:
        open_reader(HttpSource("http://app:s3cret@127.0.0.1:1/x?key=s3cret", format=TEXT, poll=poll))
    assert "s3cret" not in str(caught.value)
    with serve(respond) as url, pytest.raises(ConnectionError, match=r"no connection: HTTP 401: who are you\?"):
        open_reader(HttpSource(url, format=TEXT, poll=poll))
    with (
        serve(lambda request: answer(request, b"", 503)) as url,
        pytest.raises(ConnectionError, match=r"no connection: HTTP 503; check the address"),
    ):
        open_reader(HttpSource(url, format=TEXT, poll=poll))


def test_a_server_that_speaks_no_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-none\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(ConnectionError, match=r"'read', subtask 0: http http://.*: no answer of HTTP: BadStatus"):
            open_reader(HttpSource(f"http://127.0.0.1:{server.getsockname()[1]}", format=TEXT))
        thread.join()


def test_a_bad_record_has_its_number() -> None:
    with serve(lambda request: answer(request, b'{"n": 1}\n[')) as url:
        reader = open_reader(HttpSource(url, format=FORMAT))
        with pytest.raises(RecordError, match="record 1 of the connection: no valid JSON"):
            read(reader)
        reader.close()


def test_arguments_that_cannot_be_used() -> None:
    urls = ("file:///etc/passwd", "ftp://h/x", "http://", "h", "http://a:s3cret@b@h")
    for url in (*urls, "http://h/?k=s3cret x", "http://h/s3cret\u20ac", "http://h/\ts3cret", "http://h/x#s3cret"):
        with pytest.raises(ConfigurationError, match="the url cannot be read; give http://") as caught:
            HttpSource(url, format=TEXT)
        assert "s3cret" not in str(caught.value)
    for headers, message in [
        ({"Authorization": "s3cret\n"}, "http: the value of header 'Authorization' cannot be sent: .* a newline"),
        ({"X-Number": 5}, "the value of header 'X-Number' cannot be sent"),
        ({"Authorization: s3cret": ""}, "headers: a name is none that a header can have"),
    ]:
        with pytest.raises(ConfigurationError, match=message) as caught:
            HttpSource("http://h", format=TEXT, headers=headers)  # type: ignore[arg-type]
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="poll must be"):
        HttpSource("http://h", format=TEXT, poll="0ms")


@LARGE
@pytest.mark.parametrize("poll", [None, "1h"])
def test_a_large_record(poll: str | None, large: int) -> None:
    with serve(lambda request: answer(request, b"x" * large + b"\nend")) as url:
        reader = open_reader(HttpSource(url, format=TEXT, poll=poll))
        assert [len(row["line"]) for row in read(reader, most=2)] == [large, 3]
        reader.close()

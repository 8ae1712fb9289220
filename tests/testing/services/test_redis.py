"""The Redis server keeps what it has, asks for its password, and can be paused."""

from __future__ import annotations

import pytest
import redis as client_library

from penstock.testing.services import Redis


def test_data_and_port_stay_over_restart_and_kill(redis: Redis) -> None:
    with client_library.Redis.from_url(redis.url) as client:
        client.set("test-redis:kept", "1")
    redis.restart()
    with client_library.Redis.from_url(redis.url) as client:
        assert client.get("test-redis:kept") == b"1"
        client.set("test-redis:kept", "2")
    redis.kill()
    assert redis.pid is None
    with client_library.Redis.from_url(redis.url) as client, pytest.raises(client_library.ConnectionError):
        client.ping()
    redis.start()
    with client_library.Redis.from_url(redis.url) as client:
        assert client.get("test-redis:kept") == b"2"


def test_a_paused_server_holds_its_answer_back(redis: Redis) -> None:
    with client_library.Redis.from_url(redis.url, socket_timeout=0.1, retry=None) as client:
        client.ping()
        redis.pause()
        with pytest.raises(client_library.TimeoutError):
            client.ping()
        redis.resume()
    with client_library.Redis.from_url(redis.url) as client:
        assert client.ping()


def test_the_password_is_asked_for(redis: Redis) -> None:
    with (
        client_library.Redis(host=redis.host, port=redis.port, retry=None) as client,
        pytest.raises(client_library.AuthenticationError),
    ):
        client.ping()


def test_a_stopped_server_has_lost_its_data_and_can_be_started_again() -> None:
    server = Redis()
    with server, client_library.Redis.from_url(server.url) as client:
        client.set("gone", "1")
    assert server.pid is None
    server.stop()
    with server, client_library.Redis.from_url(server.url) as client:
        assert client.get("gone") is None

"""How a program goes to Ray: what its client does, and leaves to the job's manager."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import GraphError
from tests.engine.helpers import RecordingSink
from tests.test_environment import flights


def fake_ray(monkeypatch: pytest.MonkeyPatch, fails: str | None = None) -> list[str]:
    """No cluster, where jobs start at once; the steps of that which are taken, of which one may fail."""
    events: list[str] = []

    def step(name: str) -> Callable[..., Any]:
        def happen(*_: object) -> Any:
            if name == fails:
                raise GraphError(f"{name} failed")
            events.append(name)
            return SimpleNamespace(name="started", ended=False)

        return happen

    client = SimpleNamespace(check_serializable=step("check_serializable"), RayJob=step("RayJob"))
    for module, content in (
        ("client", client),
        ("cluster", SimpleNamespace(connect=step("connect"))),
        ("deployment", SimpleNamespace(slot_bundles=lambda graph: [{"CPU": 1.0}])),
        ("manager_start", SimpleNamespace(check_not_running=step("check_not_running"))),
        ("console_address", SimpleNamespace(tell_console=lambda: None)),
    ):
        monkeypatch.setitem(sys.modules, f"penstock.actors.{module}", content)
    return events


def test_who_is_interrupted_while_the_console_is_looked_for_has_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    fake_ray(monkeypatch)
    monkeypatch.setitem(sys.modules, "penstock.actors.console_address", SimpleNamespace(tell_console=interrupt))
    env = StreamEnvironment(runtime="ray", parallelism=1)
    stream = flights(env)
    stream.sink_to(RecordingSink())
    with pytest.raises(KeyboardInterrupt):
        env.submit()
    with pytest.raises(GraphError, match="was submitted as job 'started'"):
        stream.collect()


@pytest.mark.parametrize("fails", ["check_serializable", "connect", None])
def test_sinks_of_a_ray_job_are_not_prepared_by_its_client(monkeypatch: pytest.MonkeyPatch, fails: str | None) -> None:
    events = fake_ray(monkeypatch, fails)
    env = StreamEnvironment(runtime="ray", parallelism=1)
    sink = RecordingSink()
    sink.prepare = lambda *_: events.append("prepare")  # type: ignore[method-assign]
    flights(env).sink_to(sink)
    if fails is None:
        env.submit()
        assert events == ["check_serializable", "connect", "check_not_running", "RayJob"]
    else:
        with pytest.raises(GraphError, match=f"{fails} failed"):
            env.submit()
        assert "prepare" not in events

"""What `ps`, `top` and Ray's log lines call a process: job, task and subtask."""

from __future__ import annotations

import pytest
import ray

from penstock.actors import process_name as module
from penstock.actors.process_name import name_process, process_name


class Subtask:
    """Stands for the actor of a subtask."""


def test_a_name_has_job_task_and_subtask_and_an_end() -> None:
    assert process_name("orders", "count", 3) == "orders/count/3"
    assert process_name("orders", "a\nb", 0) == "orders/a b/0"
    long = process_name("orders", "map" * 100, 12)
    assert (long.endswith(".../12"), len(long) < 140) == (True, True)


def test_a_process_is_called_so_from_its_next_call_on_whatever_it_was_called_before() -> None:
    actor = Subtask()
    name_process(actor, Subtask, "orders/count/3")
    name_process(actor, Subtask, "orders/sum/1")
    assert (type(actor).__name__, isinstance(actor, Subtask)) == ("Subtask:orders/sum/1", True)


@pytest.mark.parametrize(("mode", "said"), [(ray.WORKER_MODE, ":actor_name:orders/count/3\n"), (ray.SCRIPT_MODE, "")])
def test_a_worker_tells_ray_how_to_call_it_in_the_lines_of_drivers(
    mode: int, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Context:
        class worker:
            pass

    Context.worker.mode = mode  # type: ignore[attr-defined]
    monkeypatch.setattr(module.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: Context)
    name_process(Subtask(), Subtask, "orders/count/3")
    assert tuple(capfd.readouterr()) == (said, said)

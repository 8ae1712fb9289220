"""What a program on Ray prints of its workers and of the cluster's nodes, without what says nothing to anybody.

That is Ray's warning of many processes, as a job has one for each subtask, what Ray's processes tell each other as
information, and the addresses that a worker prints which is told to end (SIGTERM) before Python hears signals.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from penstock.actors.replaced import replaced

_RAY: Final = "ray._private.worker"
_MANY_PROCESSES: Final = "worker_pool_large"
"""What Ray calls the warning."""
_INFORMATION: Final = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+ I \d+ \d+\] \w+\.cc:\d+: ")
_SIGNALLED: Final = re.compile(r"(?:\[.*?\] \w+\.cc:\d+: )?\*\*\* (SIG\w+) received at ")
_ADDRESS: Final = re.compile(r"(?:\[.*?\] \w+\.cc:\d+: )?(?:PC: @|    @) ")


@contextlib.contextmanager
def saying_less(log_to_driver: bool) -> Iterator[None]:
    """Within, `ray.init` has this process print less than all.

    Args:
        log_to_driver: as for `ray.init`; where it is False Ray prints warnings of nodes all the same, into the standard
            output, which may be a document of JSON: here it does not.
    """
    with (
        replaced(_RAY, "listen_error_messages", partial(_listening, log_to_driver)),
        replaced(_RAY, "print_to_stdstream", _printing),
    ):
        yield


def _listening(log_to_driver: bool, rays: Callable[..., None]) -> Callable[..., None]:
    """What the thread runs that prints what Ray says of nodes; `rays` prints all of it."""

    def listen(worker: Any, *rest: Any) -> None:
        if log_to_driver:
            worker.gcs_error_subscriber = _FewerErrors(worker.gcs_error_subscriber)
            rays(worker, *rest)

    return listen


class _FewerErrors:
    """A subscriber of Ray's errors that does not hear of many processes.

    Args:
        subscriber: Ray's.
    """

    def __init__(self, subscriber: Any) -> None:
        self._subscriber = subscriber

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)

    def poll(self) -> tuple[Any, Any]:
        """The next error, as an id and a dict; None and None: none just now."""
        number, error = self._subscriber.poll()
        return (None, None) if error is not None and error["type"] == _MANY_PROCESSES else (number, error)


def _printing(rays: Callable[..., None]) -> Callable[..., None]:
    """What prints lines of a worker, a dict with `lines` and where they are from; `rays` prints all of them."""
    fewer = FewerLines()

    def show(data: dict[str, Any], *rest: Any, **options: Any) -> None:
        lines = fewer.of((data.get("ip"), data.get("pid")), data["lines"])
        if lines:
            rays({**data, "lines": lines}, *rest, **options)

    return show


class FewerLines:
    """Leaves out Ray's information, and what workers print that are told to end before Python hears signals.

    Other signals are told whole.
    """

    def __init__(self) -> None:
        self._ended = set[object]()

    def of(self, process: object, lines: Sequence[str]) -> list[str]:
        """The lines that are shown.

        Args:
            process: which has printed them.
            lines: some that follow each other; they may break off, and go on with the next call.
        """
        shown = []
        for line in lines:
            signalled = _SIGNALLED.match(line)
            if signalled is not None:
                (self._ended.add if signalled[1] == "SIGTERM" else self._ended.discard)(process)
            is_last_word = process in self._ended and (signalled or _ADDRESS.match(line))
            if not is_last_word and not _INFORMATION.match(line):
                shown.append(line)
        return shown

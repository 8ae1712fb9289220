"""The thread in which a cluster starts while the program goes on, and how others wait for it.

`start_cluster` makes it, `connect` waits. What goes wrong in it is tried again by who connects, and fails there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class BackgroundStart(threading.Thread):
    """Starts a cluster, and stays as long as that does: the kernel ends the children of a thread with the thread.

    Args:
        begin: starts it, and gives the id of the process that it ends with; None: of one that is not this process's.
        behind: is called then, while whoever waits goes on; what it does is wanted sooner, and not needed.

    Attributes:
        decided: set when the cluster is there, or is not to be had.
    """

    def __init__(self, begin: Callable[[], int | None], behind: Callable[[], object]) -> None:
        super().__init__(name="cluster start", daemon=True)
        self.decided = threading.Event()
        self._begin = begin
        self._behind = behind

    def run(self) -> None:
        try:
            pid = self._begin()
        except Exception:
            return
        finally:
            self.decided.set()
        if pid is None:
            return
        with contextlib.suppress(Exception):
            self._behind()
        # It loads Ray, which it would do before the thread has begun.
        from penstock.actors.process_end import until_pid_ended

        asyncio.run(until_pid_ended(pid))


def start_under_way() -> BackgroundStart | None:
    """The thread that is starting a cluster now."""
    found = (thread for thread in threading.enumerate() if isinstance(thread, BackgroundStart))
    return next((thread for thread in found if not thread.decided.is_set()), None)


def await_start() -> None:
    """Return when no other thread is starting a cluster any more, whatever has come of it."""
    start = start_under_way()
    if start is not None and start is not threading.current_thread():
        start.decided.wait()

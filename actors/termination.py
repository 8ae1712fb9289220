"""SIGTERM to a process that has begun Ray (`engine.job.termination` has what is so everywhere).

Until it waits for its job, and again behind that, `as_signalled` gives the process the code 143. Where the signal went
to its whole group, its own cluster ends beside it: it then has a few seconds, and not the minute for which Ray would
wait for the cluster.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from penstock.actors.embedded import is_embedded, is_lost
from penstock.engine.job.termination import EXIT_CODE, ProcessEnd, Termination, ends_process
from penstock.engine.job.termination import termination as engine_termination

_LOOK_SECONDS: Final = 0.1
_LOST_SECONDS: Final = 5.0
"""So long behind the end of its cluster, a process that was told to end may do what it does then."""


def termination() -> AbstractContextManager[Termination]:
    """Within, SIGTERM is a `SystemExit`, unless the program's own handler goes on; not in another thread."""
    return engine_termination(_is_free, _end_with_cluster)


@contextmanager
def as_signalled() -> Iterator[None]:
    """Within, where Ray begins, and from then on, SIGTERM ends the process with code 143: Ray's handler says 15.

    A cluster that another thread has begun has no handler, and the process is to end in order all the same.
    """
    try:
        yield
    except SystemExit as ended:
        if ended.code != signal.SIGTERM:
            raise
        raise SystemExit(EXIT_CODE) from None
    if threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(signal.SIGTERM)
    if _is_of_ray(handler) or (handler == signal.SIG_DFL and is_embedded()):
        handler = ProcessEnd(_end_with_cluster).receive
    # Another thread's cluster has put a handler of C++ before it, which aborts, and of which Python does not know.
    if handler not in (None, signal.SIG_DFL):
        signal.signal(signal.SIGTERM, handler)


def _is_free(handler: object) -> bool:
    """Whether nobody has a handler that does more than to end the process."""
    return ends_process(handler) or _is_of_ray(handler)


def _is_of_ray(handler: object) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("ray.")


def _end_with_cluster() -> None:
    """Have the process end soon, should its cluster: whoever then calls Ray does not come back.

    It ends at once where its program is over: of an exit that is raised while Ray shuts down, within `atexit`, Python
    shows a traceback, and goes on to end with another code.
    """
    if not threading.main_thread().is_alive():
        for stream in (sys.stdout, sys.stderr):
            # The signal may have come within a write to it, which takes no other.
            with suppress(Exception):
                stream.flush()
        os._exit(EXIT_CODE)
    threading.Thread(target=_await_loss, name="end-with-cluster", daemon=True).start()


def _await_loss() -> None:
    if _is_lost_at_last():
        os._exit(EXIT_CODE)


def _is_lost_at_last() -> bool:
    """Wait until the cluster is lost; False once it has been shut down: who does more behind that has lost nothing."""
    while is_embedded():
        if is_lost():
            time.sleep(_LOST_SECONDS)
            if is_lost():
                return True
        time.sleep(_LOOK_SECONDS)
    return False

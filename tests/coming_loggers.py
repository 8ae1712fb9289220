"""Loggers that come all the time, as while another thread loads modules."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

_NAME = "tests.coming"


@contextlib.contextmanager
def coming_loggers() -> Iterator[None]:
    """Within, a thread makes loggers; behind it they are gone."""
    known = logging.root.manager.loggerDict
    over = threading.Event()

    def come() -> None:
        while not over.is_set():
            for number in range(500):
                known[f"{_NAME}.{number}"] = logging.Logger(_NAME)
            for number in range(500):
                del known[f"{_NAME}.{number}"]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(1) as threads:
        coming = threads.submit(come)
        try:
            yield
        finally:
            over.set()
            coming.result()
            sys.setswitchinterval(interval)

"""What aiokafka logs, limited: while a broker is away it says the same a hundred times a second.

Connections install it. One line of ours says that an outage began, and one that it is over; in between, each message of
the client's comes now and then, with the number of those that were left out. A single message is told as it is.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

_LIBRARY: Final = "aiokafka"
_EACH_SECONDS: Final = 30.0
"""How often one kind of message may come; two of any within it, with no answer of a broker between, are an outage."""
_LOG: Final = logging.getLogger(__name__)


class ClientLog(logging.Filter):
    """Passes messages of aiokafka on, but no kind of them all the time. Used by all threads of the process."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._alone: float | None = None
        self._began: float | None = None
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            begins = self._begins(record.created)
            if self._began is None:
                self._alone = record.created
                return True
            kind = self._kinds.setdefault((record.name, str(record.msg)), _Kind(self._began))
            left_out = kind.left_out_before(record.created)
            if left_out is None:
                self._left_out += 1
        if begins:
            _LOG.warning(
                "Kafka does not answer as it should; a job that runs waits, and continues by itself when it does. What "
                "its client says is limited until then: %s",
                record.getMessage(),
            )
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more like it)"
            record.args = None
        return left_out is not None

    def _begins(self, now: float) -> bool:
        """Whether the message of `now` shows that an outage has begun: it is noted then."""
        if self._began is not None or self._alone is None or now - self._alone >= _EACH_SECONDS:
            return False
        self._began = self._alone
        return True

    def answered(self, now: float) -> None:
        """A broker has done what it was asked for at `now`: seconds, as of `LogRecord.created`."""
        with self._lock:
            began, left_out = self._began, self._left_out
            self._alone = self._began = None
            self._left_out = 0
            if began is not None:
                self._kinds.clear()
        if began is not None:
            _LOG.warning(
                "Kafka answers again, after %.0f s; %d messages of its client were left out", now - began, left_out
            )


class _Kind:
    """How often one kind of message has come in an outage, and not been passed on."""

    def __init__(self, began: float) -> None:
        self._since = began
        self._left_out = 0

    def left_out_before(self, now: float) -> int | None:
        """How many were left out before this one, which passes; None: it does not."""
        if now - self._since < _EACH_SECONDS:
            self._left_out += 1
            return None
        left_out = self._left_out
        self._since, self._left_out = now, 0
        return left_out


def installed() -> ClientLog:
    """The one of this process, in front of all that aiokafka logs by now."""
    library = logging.getLogger(_LIBRARY)
    log = next((one for one in library.filters if isinstance(one, ClientLog)), None) or ClientLog()
    for logger in library_loggers():
        logger.addFilter(log)
    return log


def library_loggers() -> list[logging.Logger]:
    """All that the library logs by, as far as it has been loaded: filters of one do not hear of those below it."""
    # Other threads load modules meanwhile, which make loggers: a list of them is made at once.
    names = [name for name in list(logging.root.manager.loggerDict) if f"{name}.".startswith(f"{_LIBRARY}.")]
    return [logging.getLogger(name) for name in {_LIBRARY, *names}]

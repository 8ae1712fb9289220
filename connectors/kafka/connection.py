"""How Kafka is reached: addresses and settings, event loops in threads of their own, and what went wrong in words.

Planning and the subtasks of source and sink use it. No message, `repr` or log line of this module shows a setting's
value.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Final, TypeVar

from penstock.connectors.kafka.client_log import installed, library_loggers
from penstock.engine.connectors import Dataset
from penstock.engine.errors import ConfigurationError, nearest

_T = TypeVar("_T")

CONNECT_SECONDS: Final = 8.0
"""How long a broker may take to answer the first time."""
UNKNOWN_PARTITION: Final = (
    "the brokers do not know the partition: the topic was deleted or made anew, or a broker that has just started has "
    "not loaded it yet"
)
"""What to say of it: while a broker starts, nobody can tell which of these is so."""
_SSL: Final = frozenset({"ssl_cafile", "ssl_capath", "ssl_cadata", "ssl_certfile", "ssl_keyfile", "ssl_password"})
_CLIENT: Final = frozenset(
    {
        "client_id",
        "connections_max_idle_ms",
        "metadata_max_age_ms",
        "request_timeout_ms",
        "retry_backoff_ms",
        "sasl_kerberos_domain_name",
        "sasl_kerberos_service_name",
        "sasl_mechanism",
        "sasl_oauth_token_provider",
        "sasl_plain_password",
        "sasl_plain_username",
        "security_protocol",
    }
)
_CONSUMER: Final = frozenset(
    {
        "check_crcs",
        "client_rack",
        "fetch_max_bytes",
        "fetch_max_wait_ms",
        "fetch_min_bytes",
        "isolation_level",
        "max_partition_fetch_bytes",
    }
)
_PRODUCER: Final = frozenset({"compression_type", "max_batch_size", "max_request_size"})
_INSTALL: Final = "install it by `pip install 'penstock[kafka]'`"


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Addresses and settings of a cluster. Picklable; does not show the settings, which may hold passwords.

    Args:
        servers: `host:port` of some brokers.
        options: aiokafka's arguments by name: `security_protocol`, `sasl_mechanism`, `sasl_plain_username`,
            `sasl_plain_password`, ..., `fetch_max_bytes`, ..., `compression_type`, ...; TLS by `ssl_cafile`,
            `ssl_capath`, `ssl_cadata`, `ssl_certfile`, `ssl_keyfile` and `ssl_password`, as in
            `aiokafka.helpers.create_ssl_context`.

    Raises:
        ConfigurationError: no address, or an option that there is not.
    """

    servers: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.servers or not all(isinstance(one, str) and one.strip() for one in self.servers):
            raise ConfigurationError("kafka: bootstrap_servers must be 'host:port' of at least one broker")
        known = _SSL | _CLIENT | _CONSUMER | _PRODUCER
        for name in self.options:
            if name not in known:
                raise ConfigurationError(
                    f"kafka: there is no option {name!r}{nearest(str(name), known)}; the options are "
                    f"{', '.join(sorted(known))}"
                )

    @classmethod
    def of(cls, servers: str | Sequence[str], options: Mapping[str, Any] | None = None) -> KafkaConnection:
        """The connection for addresses as users give them: a list, or text with commas."""
        listed = servers.split(",") if isinstance(servers, str) else servers
        return cls(tuple(str(one).strip() for one in listed), dict(options or {}))

    @property
    def address(self) -> str:
        """The brokers, for messages."""
        return ",".join(self.servers)

    def dataset(self, topic: str) -> Dataset:
        """A topic of the cluster, for lineage."""
        return Dataset(f"kafka://{self.servers[0]}", topic)

    def client_arguments(self) -> dict[str, Any]:
        """Arguments that every client of aiokafka takes.

        Raises:
            ConfigurationError: a file of the TLS settings cannot be read.
        """
        chosen = {name: value for name, value in self.options.items() if name in _CLIENT}
        return {"bootstrap_servers": list(self.servers), **chosen, **self._tls()}

    def consumer_arguments(self) -> dict[str, Any]:
        """Arguments of a consumer; it reads committed records unless `isolation_level` is among the options."""
        chosen = {name: value for name, value in self.options.items() if name in _CONSUMER}
        return {"isolation_level": "read_committed", **self.client_arguments(), **chosen}

    def producer_arguments(self) -> dict[str, Any]:
        """Arguments of a producer: all replicas acknowledge each record, and no retry stores one twice."""
        chosen = {name: value for name, value in self.options.items() if name in _PRODUCER}
        return {"acks": "all", "enable_idempotence": True, **self.client_arguments(), **chosen}

    def _tls(self) -> dict[str, Any]:
        given = {name.removeprefix("ssl_"): value for name, value in self.options.items() if name in _SSL}
        if not given and self.options.get("security_protocol") not in {"SSL", "SASL_SSL"}:
            return {}
        from aiokafka.helpers import create_ssl_context

        try:
            return {"ssl_context": create_ssl_context(**given)}
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"kafka: the TLS settings ({', '.join(sorted(given))}) cannot be used: {error}; check the paths of the "
                "files and the password of the key, on every node"
            ) from None


def library_version() -> str:
    """The version of aiokafka.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return version("aiokafka")
    except PackageNotFoundError:
        raise ConfigurationError(f"kafka: aiokafka is not installed; {_INSTALL}") from None


async def connected(start: Coroutine[Any, Any, None], connection: KafkaConnection) -> None:
    """Start a client; as clear an error as there can be if that does not work out.

    Raises:
        ConnectionError: no broker answered in time, or all refused; names the addresses and their last words.
    """
    from aiokafka.errors import KafkaError

    # Asked for details, aiokafka logs requests whole, and one has the password.
    logging.getLogger("aiokafka.conn").addFilter(_has_no_password)
    heard = _LastWords()
    loggers = library_loggers()
    for logger in loggers:
        # Before what is said is limited.
        logger.filters.insert(0, heard)
    installed()
    try:
        await asyncio.wait_for(start, CONNECT_SECONDS)
        heard.tell()
    except (asyncio.TimeoutError, KafkaError, OSError, AssertionError) as error:
        # A broker that has just started may name none, itself not either: aiokafka asserts that there is one.
        in_time = f"no answer within {CONNECT_SECONDS:g} s" if isinstance(error, asyncio.TimeoutError) else str(error)
        raise ConnectionError(
            f"no Kafka broker can be used at {connection.address}: {heard.text or in_time}; check bootstrap_servers, "
            "that the brokers run and can be reached from here, and security_protocol and the sasl and ssl options"
        ) from None
    except Exception:
        heard.tell()
        raise
    finally:
        for logger in loggers:
            logger.removeFilter(heard)


def _has_no_password(record: logging.LogRecord) -> bool:
    return "SaslAuthenticateRequest" not in record.getMessage()


class _LastWords(logging.Filter):
    """Holds the errors that aiokafka logs in this thread: its exception does not say why it could not connect, and ours
    tells the newest of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] = []
        self._thread = threading.get_ident()

    @property
    def text(self) -> str:
        """The newest; empty: none."""
        return self._held[-1].getMessage() if self._held else ""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or record.thread != self._thread:
            return True
        self._held.append(record)
        return False

    def tell(self) -> None:
        """Log what was held after all, as of a broker that is away beside one that has answered."""
        self._thread = 0
        for record in self._held:
            logging.getLogger(record.name).handle(record)


class EventLoopThread:
    """An event loop that runs in a thread of its own until it is closed.

    Example:
        >>> with EventLoopThread("kafka") as loop:
        ...     loop.run(asyncio.sleep(0, 5), timeout=1)
        5
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> EventLoopThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float) -> _T:
        """What the coroutine gives; called from other threads.

        Args:
            timeout: seconds; behind them it is cancelled.

        Raises:
            TimeoutError: it took longer.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
        except (FutureTimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
            future.cancel()
            raise TimeoutError("the brokers do not answer in time") from None

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        if self.loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

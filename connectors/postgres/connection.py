"""How PostgreSQL is reached: addresses, connections, and what went wrong in words.

The sink, the source and the lookup table use it. No message or `repr` of this module shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from penstock.engine.clock import Clock
from penstock.engine.connectors import Dataset
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from psycopg import Connection, sql

    Postgres: TypeAlias = Connection[tuple[Any, ...]]

_T = TypeVar("_T")

CONNECT_SECONDS: Final = 8
"""How long a server may take to answer the first time."""
_DEFAULTS: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "penstock",
    # A server that is cut off is noticed within some 30 s, not within hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_INSTALL: Final = (
    "postgres: psycopg is not installed; install it by `pip install 'penstock[postgres]'`, on every machine of "
    "the cluster"
)
_DSN_HELP: Final = (
    "postgres: the dsn cannot be read; give postgresql://user:password@host:port/database with special characters of "
    "user and password percent-encoded (urllib.parse.quote), or host=... dbname=... user=... password=..."
)
_ATTEMPTS: Final = 4
_FIRST_WAIT: Final = 0.1


def parse_dsn(dsn: str) -> dict[str, Any]:
    """The parameters of a connection, by libpq's names.

    Raises:
        ConfigurationError: it cannot be read; shows nothing of it, as what is wrong may be the password.
    """
    _require_installed()
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if not isinstance(dsn, str) or not dsn.strip():
        raise ConfigurationError(_DSN_HELP)
    try:
        parameters = conninfo_to_dict(dsn)
    except ProgrammingError:
        raise ConfigurationError(_DSN_HELP) from None
    # A password with an unquoted @ or / is read as parts of the address.
    readable = not any("@" in str(parameters.get(name, "")) for name in ("host", "dbname"))
    if not readable or re.fullmatch(r"[\d,]*", str(parameters.get("port", ""))) is None:
        raise ConfigurationError(_DSN_HELP)
    return parameters


def shown_dsn(dsn: str) -> str:
    """Where the dsn leads to, for messages: `host:port/database`; `?/?` where psycopg, which reads it, is missing."""
    if not _is_installed():
        # A job is described by its manager too, which has said that it cannot run it.
        return "?/?"
    parameters = parse_dsn(dsn)
    host, port = parameters.get("host", "localhost"), parameters.get("port", "5432")
    return f"{host}:{port}/{parameters.get('dbname', '')}"


def dataset_of(dsn: str, table: str) -> Dataset:
    """A table of the database, for lineage."""
    # A host may be the folder of a socket.
    place, _, database = shown_dsn(dsn).rpartition("/")
    return Dataset(f"postgres://{place}", f"{database}.{table if '.' in table else f'public.{table}'}")


def connect(dsn: str, where: str) -> Postgres:
    """A connection that sees times in UTC and texts in UTF-8, whatever the dsn, the environment and the database say.

    Args:
        where: who connects, for messages.

    Raises:
        ConnectionError: the server does not answer within 8 s (or the dsn's connect_timeout), or refuses; without the
            password.
        ConfigurationError: psycopg is not installed.
    """
    _require_installed()
    import psycopg

    parameters = {**_DEFAULTS, **parse_dsn(dsn), "client_encoding": "utf8"}
    try:
        connection = psycopg.connect(**parameters)
    except psycopg.Error as error:
        raise ConnectionError(
            f"{where}: PostgreSQL cannot be used at {shown_dsn(dsn)}: {_safe(error, parameters)}; check the dsn, that "
            "the server runs and can be reached from here, and user and password"
        ) from None
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()
    return connection


def ask(dsn: str, question: Callable[[Postgres], _T]) -> _T:
    """What `question` finds out on a connection of its own, where the job is planned.

    Raises:
        ConfigurationError: the server cannot be used, or does not answer the question; or psycopg is not installed.
    """
    _require_installed()
    import psycopg

    try:
        with connect(dsn, "postgres") as connection:
            return question(connection)
    except ConnectionError as error:
        raise ConfigurationError(str(error)) from None
    except psycopg.Error as error:
        raise ConfigurationError(f"postgres: {shown_dsn(dsn)}: {error_line(error)}") from None


def error_line(error: Exception) -> str:
    """What the server said, in one line; without the rows that its details may quote."""
    diagnosis = getattr(error, "diag", None)
    text = getattr(diagnosis, "message_primary", None) or str(error)
    return " ".join(text.split()) or type(error).__name__


def lost_errors() -> tuple[type[Exception], ...]:
    """What psycopg raises where the server is not there any more for a session, whatever the reason."""
    import psycopg

    return psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout


def retried(work: Callable[[], _T], clock: Clock) -> _T:
    """What `work` gives, tried again where the connection was lost or the server rolled back: it must bear that.

    Raises:
        Exception: what the last of four attempts raised.
    """
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

    retrying = Retrying(
        retry=retry_if_exception_type((*lost_errors(), ConnectionError)),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(_FIRST_WAIT),
        sleep=lambda seconds: clock.wait_until(clock.monotonic() + seconds),
        reraise=True,
    )
    return retrying(work)


class Session:
    """A connection for reading that comes back when it is lost. Opened by the first question.

    Args:
        where: who asks, for messages.
    """

    def __init__(self, dsn: str, where: str, clock: Clock) -> None:
        self._dsn = dsn
        self._where = where
        self._clock = clock
        self._connection: Postgres | None = None

    def rows(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        """All rows of the answer to a query without parameters; JSON and UUIDs as text.

        Raises:
            ConnectionError: the server cannot be reached, in four attempts.
            psycopg.Error: it does not answer the question.
        """
        try:
            return retried(lambda: self._ask(query), self._clock)
        except lost_errors() as error:
            raise ConnectionError(
                f"{self._where}: {shown_dsn(self._dsn)}: {error_line(error)}; check that the server runs and can be "
                "reached from here"
            ) from None

    def _ask(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        import psycopg

        if self._connection is None:
            self._connection = connect(self._dsn, self._where)
            self._connection.autocommit = True
            as_text(self._connection)
        try:
            return self._connection.execute(query).fetchall()
        except psycopg.OperationalError:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def as_text(connection: Postgres) -> None:
    """Let the connection give JSON and UUIDs as text."""
    from psycopg.types.string import TextLoader

    for name in ("json", "jsonb", "uuid"):
        connection.adapters.register_loader(name, TextLoader)


def identifier(name: str) -> sql.Composed:
    """A table's name, quoted: `table` or `schema.table`, in the letter case that it was created with."""
    from psycopg import sql

    return sql.SQL("{}").format(sql.Identifier(*name.split(".")))


def _safe(error: Exception, parameters: dict[str, Any]) -> str:
    text = " ".join(str(error).split())
    password = parameters.get("password")
    return text.replace(str(password), "***") if password else text


def _is_installed() -> bool:
    # It may be there without libpq, and then it cannot be imported either.
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return False
    return True


def _require_installed() -> None:
    if not _is_installed():
        raise ConfigurationError(_INSTALL)

"""The actor that serves the web of a cluster, and how it is found and started.

`penstock console` starts it, once a cluster. It is detached and stays when jobs and drivers end; Ray restarts it when
its process dies, at the same port, with what it had written down of jobs that had ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.actors.cluster_notes import ClusterNotes, cluster_id
from penstock.actors.ended_jobs import ended_jobs, info_from, info_text
from penstock.actors.nodes import ON_THE_HEAD
from penstock.engine.errors import ClusterError, ConfigurationError
from penstock.engine.job.info import JobInfo
from penstock.web.export.options import ExportOptions
from penstock.web.observed import ENDED_KEPT
from penstock.web.stored_jobs import ended_in

if TYPE_CHECKING:
    import uvicorn

    from penstock.web.cluster import Cluster
    from penstock.web.flight import StateFlights
    from penstock.web.security import App

_LOG = logging.getLogger(__name__)
DEFAULT_PORT: Final = 8365
ENDED_JOBS: Final = "ended-jobs.jsonl"
_STARTED_SECONDS: Final = 60.0
_MOST_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server listens.

    Args:
        host: address; anything but a loopback one asks for a token. None: 127.0.0.1, or where a server listens already.
        port: 0 takes a free one, which is kept through restarts; None: 8365, or where a server listens already.
        names: further names by which requests may call it.
        folder: for the tokens and the log of ended jobs.
        export: where metrics, spans and lineage are sent.
        flight: port at which state is given over Arrow Flight; 0 takes a free one, None: it is not.
        proxies, operators: as of `Access`.
        storage: the folder of jobs' checkpoints; those that had ended before the server began are listed by it.
    """

    host: str | None = None
    port: int | None = None
    names: tuple[str, ...] = ()
    folder: str = ""
    export: ExportOptions = field(default_factory=ExportOptions)
    flight: int | None = None
    proxies: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    storage: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.listens_at in ("127.0.0.1", "localhost", "::1")

    @property
    def listens_at(self) -> str:
        """The address where it listens."""
        return self.host or "127.0.0.1"

    @property
    def token_file(self) -> Path:
        """Where the tokens are."""
        return Path(self.folder) / "tokens.json"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Args:
        url: its pages.
        token_file: on its machine; who may read it may do all.
        pid: of its process.
        node: address of its machine.
        exports: where it sends metrics and spans, and lineage; None: nowhere.
        flight: where it gives state over Arrow Flight; None: nowhere.
        host, names, proxies, operators: as it was started with; see `ServerOptions`.
    """

    url: str
    token_file: str
    pid: int
    node: str
    exports: tuple[str | None, str | None] = (None, None)
    flight: str | None = None
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


def default_folder() -> Path:
    """Where the server keeps its own files: `$XDG_STATE_HOME/penstock/console`, readable by nobody else."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "penstock" / "console"


class EndedJobs:
    """The jobs that have ended, a line each; the newest hundred are read again.

    The consoles of all clusters of a user write to one file.

    Args:
        file: where; nobody else can read it.
        cluster: id of the cluster whose jobs are read and written; None: those of all are read.
    """

    def __init__(self, file: Path, cluster: str | None = None) -> None:
        self._file = file
        self._cluster = cluster
        self._known: set[tuple[str, str]] = set()
        self._lines = 0

    def read(self) -> list[JobInfo]:
        """Those that were written down; a line that another version wrote is left out."""
        found: dict[str, tuple[JobInfo, str | None]] = {}
        lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                document = json.loads(line)
                info = info_from(json.dumps(document["job"]))
                found.pop(info.id, None)
                found[info.id] = info, document["cluster"]
        kept = list(found.values())[-ENDED_KEPT:]
        own = [info for info, cluster in kept if self._cluster in (None, cluster)]
        self._known = {(info.id, info.status.value) for info in own}
        self._lines = len(lines)
        if len(lines) > 2 * ENDED_KEPT:
            shorter = self._file.with_suffix(".new")
            with open(shorter, "w", encoding="utf-8", opener=_for_its_owner) as stream:
                stream.writelines(_line(*one) for one in kept)
            shorter.replace(self._file)
            self._lines = len(kept)
        return own

    def write(self, info: JobInfo) -> None:
        """Write one down, once; what cannot be written is shown all the same, as long as this process lives."""
        if info.status.ended and (info.id, info.status.value) not in self._known:
            self._known.add((info.id, info.status.value))
            try:
                with open(self._file, "a", encoding="utf-8", opener=_for_its_owner) as stream:
                    stream.write(_line(info, self._cluster))
                self._lines += 1
                if self._lines > 2 * ENDED_KEPT:
                    # The server lives for months: neither the file nor what is known of it may grow with it.
                    self.read()
            except OSError as error:
                _LOG.warning("the end of job %r cannot be written down: %s", info.name, error)


def _line(info: JobInfo, cluster: str | None) -> str:
    return f'{{"cluster": {json.dumps(cluster)}, "job": {info_text(info)}}}\n'


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ConsoleActor:
    """The server in a process of its own.

    Args:
        options: where it listens; the port is a real one.
    """

    def __init__(self, options: ServerOptions) -> None:
        from penstock.web.cluster import RayCluster

        self._options = options
        self._listening = _listen(options.listens_at, options.port or 0)
        notes = ClusterNotes()
        served = Served(options, RayCluster(), tuple(ended_jobs(notes)), cluster_id(notes))
        self._flights = None if options.flight is None else served.flights(options.flight)
        threading.Thread(target=self._serve, args=(served,), name="web", daemon=True).start()

    def url(self) -> str:
        """Where its pages are; who submits a job is told."""
        return self.address().url

    def address(self) -> Address:
        """Where it is."""
        import ray

        host, port = self._listening.getsockname()[:2]
        shown = _shown(host)
        node = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        sent = self._options.export.otlp, self._options.export.openlineage
        flight = None if self._flights is None else f"grpc://{shown}:{self._flights.port}"
        own = self._options
        return Address(
            f"http://{shown}:{port}/",
            str(own.token_file),
            os.getpid(),
            node,
            sent,
            flight,
            own.listens_at,
            own.names,
            own.proxies,
            own.operators,
        )

    def _serve(self, served: Served) -> None:
        web_server(served.application()).run(sockets=[self._listening])
        # Nothing but a new process can listen again.
        os._exit(1)


class Served:
    """What is served of a cluster, with the tokens and the ended jobs of the options' folder.

    Args:
        options: where it listens, and for whom.
        cluster: whose jobs.
        ended: jobs of the cluster that had ended before.
        cluster_id: which cluster it is.
    """

    def __init__(
        self, options: ServerOptions, cluster: Cluster, ended: Iterable[JobInfo] = (), cluster_id: str = ""
    ) -> None:
        from penstock.web.observed import Observed
        from penstock.web.security import LOOPBACK, Access, Role, tokens_in

        folder = Path(options.folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, mode in ((folder, 0o700), (folder / ENDED_JOBS, 0o600)):
            # They may be of another version, which left them open to others.
            with contextlib.suppress(OSError):
                path.chmod(mode)
        written = EndedJobs(folder / ENDED_JOBS, cluster_id)
        names = (*LOOPBACK, options.listens_at, *options.names)
        open_to = Role.OPERATOR if options.is_local else Role.NOBODY
        tokens = tokens_in(options.token_file)
        self._access = Access(tokens, open_to, names, options.proxies, options.operators)
        self._options = options
        self._cluster = cluster
        # What a console has seen of a job is more than notes and files tell.
        stored = ended_in(Path(options.storage)) if options.storage else ()
        known = {info.id: info for info in (*stored, *ended, *written.read())}
        self._observed = Observed(sorted(known.values(), key=lambda info: info.since_ms), written.write)

    def application(self) -> App:
        """What answers over HTTP."""
        from penstock.web.app import make_app
        from penstock.web.export.exporter import Exporter

        exporter = Exporter(self._options.export) if self._options.export.is_wanted else None
        return make_app(self._cluster, self._access, self._observed, exporter=exporter)

    def flights(self, port: int) -> StateFlights:
        """What answers over Arrow Flight, from now on."""
        from penstock.web.flight import StateFlights
        from penstock.web.state_reads import StateReads

        location = f"grpc://{_shown(self._options.listens_at)}:{port}"
        return StateFlights(location, self._access, self._observed, StateReads(self._cluster))


def web_server(app: App) -> uvicorn.Server:
    """What serves an application over HTTP, to so many connections at most."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        # The client is who has connected; the guard alone reads headers that name another.
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(128)
    return listening


def find_server() -> Address | None:
    """The server of the cluster that this process is connected to; None: there is none that answers in time."""
    import ray
    from ray.exceptions import RayError

    from penstock.actors.console_address import CONSOLE_ACTOR
    from penstock.actors.registry import NAMESPACE

    try:
        actor = ray.get_actor(CONSOLE_ACTOR, NAMESPACE)
        address: Address = ray.get(actor.address.remote(), timeout=_STARTED_SECONDS)
    except (ValueError, RayError):
        return None
    return address


def start_server(options: ServerOptions) -> Address:
    """The server of the cluster, started if there is none.

    Raises:
        ConfigurationError: it cannot listen there, or there is one that does not do what the options say.
        ClusterError: it did not start.
    """
    import ray
    from ray.exceptions import RayError

    from penstock.actors.console_address import CONSOLE_ACTOR
    from penstock.actors.registry import NAMESPACE

    if (found := find_server()) is not None:
        check_server(found, options)
        return found
    actor_class: Any = ray.remote(ConsoleActor)
    flight = None if options.flight is None else _free_port(options.listens_at, options.flight, "--flight")
    port = _free_port(options.listens_at, DEFAULT_PORT if options.port is None else options.port, "--port")
    chosen = replace(options, port=port, flight=flight)
    actor = actor_class.options(
        name=CONSOLE_ACTOR,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=4,
        enable_task_events=False,
        # On a worker it would keep the cluster from giving that machine back.
        resources=dict(ON_THE_HEAD),
    ).remote(chosen)
    try:
        address: Address = ray.get(actor.address.remote(), timeout=_STARTED_SECONDS)
    except RayError as error:
        ray.kill(actor)
        raise ClusterError(f"the web server did not start: {error}") from error
    return address


def check_server(found: Address, wanted: ServerOptions) -> None:
    """Refuse to take a server that listens elsewhere, or sends, gives state or lets people in other than is wanted.

    Args:
        found: the server that runs.
        wanted: what is None or empty asks for nothing, and so does a port of 0.

    Raises:
        ConfigurationError: it does not.
    """
    end = "end it with `penstock console --stop`, which jobs do not notice, and start it anew"
    export = wanted.export
    options = ("--otlp", export.otlp, found.exports[0]), ("--openlineage", export.openlineage, found.exports[1])
    for option, url, sent in options:
        if url is not None and url != sent:
            raise ConfigurationError(
                f"the web console at {found.url} runs already, and sends {f'to {sent}' if sent else 'nothing'} where "
                f"{option} says {url}; {end}"
            )
    if wanted.port and not found.url.endswith(f":{wanted.port}/"):
        raise ConfigurationError(
            f"the web console runs already, at {found.url}, where --port says {wanted.port}; {end}"
        )
    access = (
        ("--host", wanted.host, found.host),
        ("--name", wanted.names, found.names),
        ("--trust-proxy", wanted.proxies, found.proxies),
        ("--operator-group", wanted.operators, found.operators),
    )
    for option, value, there in access:
        if value and value != there:
            raise ConfigurationError(
                f"the web console at {found.url} runs already, with {option} {_said(there)}, not {_said(value)}; {end}"
            )
    port = wanted.flight
    if port is not None and (found.flight is None or (port and not found.flight.endswith(f":{port}"))):
        raise ConfigurationError(
            f"the web console at {found.url} runs already, and gives state "
            f"{f'at {found.flight}' if found.flight else 'by REST alone'} where --flight says {port}; {end}"
        )


def _said(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def listening_socket(host: str, port: int, option: str = "--port") -> socket.socket:
    """Listens there.

    Args:
        host, port: where; port 0: a free one.
        option: that chooses another port, for the message.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        return _listen(host, port)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error.strerror}; choose another with {option}"
        ) from None


def _free_port(host: str, port: int, option: str) -> int:
    """The port to listen at, which is free now: what an actor's start raises is hard to read."""
    listening = listening_socket(host, port, option)
    free = int(listening.getsockname()[1])
    listening.close()
    return free


def stop_server() -> bool:
    """End the server of the cluster; False: there is none."""
    import ray

    from penstock.actors.console_address import CONSOLE_ACTOR
    from penstock.actors.registry import NAMESPACE

    try:
        ray.kill(ray.get_actor(CONSOLE_ACTOR, NAMESPACE))
    except ValueError:
        return False
    return True

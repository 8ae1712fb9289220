"""A cluster and its jobs over the web server's REST, for programs that cannot or should not reach Ray.

Commands with `--url` use it, and so do scripts on other machines: it needs an address and a token, and no Ray. Jobs are
as `penstock.attach` gives them. What it shows is up to two seconds old, as the server reads its cluster so often.
"""

from __future__ import annotations

import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from penstock.engine.errors import (
    ClusterError,
    ConfigurationError,
    JobCancelledError,
    JobError,
    JobFailedError,
    StateError,
    StateNotReadyError,
    nearest,
)
from penstock.engine.job.status import JobStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.actors.task_log import LogLine
    from penstock.engine.graph.scale import ParallelismRequest
    from penstock.engine.job.info import JobInfo
    from penstock.engine.job.rescale_preview import RescalePreview
    from penstock.engine.task.tap import TappedRows
    from penstock.web.why_slow import Reason

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105 - the name of a variable
_ARROW: Final = "application/vnd.apache.arrow.stream"
_LOOK_SECONDS: Final = 0.2
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for this server, and for none that it may name."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Cluster:
    """The jobs that a web server shows and steers.

    Args:
        url: of the server, as `penstock console` says it.
        token: of a viewer or an operator, where the server asks for one; None: that in PENSTOCK_TOKEN.
        timeout: seconds to wait for an answer.

    Raises:
        ConfigurationError: the URL is none of a web server.

    Example:
        >>> cluster = Cluster("http://127.0.0.1:8365")  # doctest: +SKIP
        >>> [job.name for job in cluster.jobs()], cluster.job("orders").savepoint()  # doctest: +SKIP
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ConfigurationError(
                f"{url!r:.200} is no address of a web console; give http://HOST:PORT, and the token in {TOKEN_VARIABLE}"
            )
        self.url = url.rstrip("/")
        self._token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        self._timeout = timeout
        near = [urllib.request.ProxyHandler({})] if parts.hostname in _LOOPBACK else []
        self._opener = urllib.request.build_opener(_NoRedirects, *near)

    def __repr__(self) -> str:
        return f"Cluster({self.url!r})"

    def jobs(self) -> Sequence[JobInfo]:
        """All jobs, also those that ended a while ago.

        Raises:
            ClusterError: the server does not answer, asks for a token, or is another.
        """
        return [self._info(str(one["id"])) for one in self._listed()]

    def job(self, name_or_id: str) -> RemoteJob:
        """The job with that id, or the running one, else the last, of that name.

        Raises:
            JobError: there is none.
        """
        jobs = self._listed()
        ended = {status.value for status in JobStatus if status.ended}
        found = [one for one in jobs if one["id"] == name_or_id]
        found = found or sorted(
            (one for one in jobs if one["name"] == name_or_id),
            key=lambda one: (one["status"] in ended, -one["began_ms"]),
        )
        if not found:
            names = sorted({str(one["name"]) for one in jobs})
            there = f"there are {', '.join(names)}" if names else "there is none"
            raise JobError(f"no job {name_or_id!r}{nearest(name_or_id, names)} at {self.url}; {there}")
        return RemoteJob(self, str(found[0]["name"]), str(found[0]["id"]))

    def _listed(self) -> list[dict[str, Any]]:
        try:
            listed: list[dict[str, Any]] = self.ask("GET", "/v1/overview-of-jobs")["jobs"]
        except (JobError, ValueError, LookupError, TypeError) as error:
            reason = f" ({error})" if isinstance(error, JobError) else ""
            raise ClusterError(
                f"what answers at {self.url} is no web console of Penstock{reason}: give the address that "
                "`penstock console` says"
            ) from error
        return listed

    def _info(self, job_id: str) -> JobInfo:
        from penstock.actors.ended_jobs import info_from

        return info_from(self.fetch("GET", f"/v1/jobs/{quote(job_id, safe='')}/info"))

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers, from JSON; for paths that have no method here.

        Raises:
            ClusterError: it does not answer, or asks for another token.
            JobError: it cannot do it; says why.
            StateNotReadyError: it cannot do it just now.
        """
        return json.loads(self.fetch(method, path, body))

    def fetch(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        takes: float = 0.0,
    ) -> bytes:
        """As `ask`: the bytes of the answer, to which the server takes so many seconds by itself."""
        headers = {"Accept": accept, "X-Penstock-Request": "1"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - http(s), as checked
        try:
            with self._opener.open(request, timeout=self._timeout + takes) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise self._refusal(error.code, error.read()) from None
        except (OSError, HTTPException) as error:
            # The latter where its process ends amid an answer, or something else listens there.
            reason = getattr(error, "reason", error)
            raise ClusterError(f"the web console at {self.url} does not answer ({reason}); does it run?") from error

    def _refusal(self, status: int, content: bytes) -> Exception:
        try:
            said = "; ".join(map(str, json.loads(content)["errors"]))
        except (ValueError, KeyError, TypeError):
            said = f"status {status}"
        if status in (401, 403, 421):
            return ClusterError(f"{self.url}: {said} (the token is taken from {TOKEN_VARIABLE})")
        return StateNotReadyError(said) if status == 503 else JobError(said)


class RemoteJob:
    """A job that a web server shows: as `penstock.attach` gives it.

    Args:
        cluster: whose.
        name, job_id: which.
    """

    def __init__(self, cluster: Cluster, name: str, job_id: str) -> None:
        self.name = name
        self.id = job_id
        self._cluster = cluster
        self._path = f"/jobs/{quote(job_id, safe='')}"

    def __repr__(self) -> str:
        return f"<job {self.name!r} at {self._cluster.url}>"

    def info(self) -> JobInfo:
        """The job: status, tasks, restarts, checkpoints."""
        return self._cluster._info(self.id)

    def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self.info().status

    def wait(self, timeout: float | None = None) -> None:
        """Return when the job has finished; arguments and errors as for `JobControl.wait`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (info := self.info()).status.ended:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.name!r} still runs after {timeout:g} s")
            time.sleep(_LOOK_SECONDS)
        match info.status:
            case JobStatus.FAILED:
                raise JobFailedError(f"job {self.name!r} failed: {info.error}")
            case JobStatus.CANCELLED:
                raise JobCancelledError(f"job {self.name!r} was cancelled")
            case _:
                return

    def checkpoint(self) -> str:
        """Take a checkpoint now; its URL.

        Raises:
            JobError: it could not be taken.
        """
        return str(self._done("POST", "checkpoints", {}))

    def savepoint(self, directory: str | None = None) -> str:
        """Take a savepoint while the job keeps running; its URL.

        Args:
            directory: URL of the folder for it, as the job's processes see it; None: the configured one.

        Raises:
            JobError: it could not be taken.
        """
        return str(self._done("POST", "savepoints", {"target-directory": directory}))

    def stop(self, directory: str | None = None) -> str:
        """Take a savepoint and end the job behind it; arguments and errors as for `savepoint`."""
        return str(self._done("POST", "stop", {"targetDirectory": directory}))

    def drain(self, directory: str | None = None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything."""
        return str(self._done("POST", "stop", {"targetDirectory": directory, "drain": True}))

    def rescale(self, parallelism: ParallelismRequest, tell: Callable[[str], None] | None = None) -> float:
        """Resume at another parallelism; the seconds that the job stood still. As `JobControl.rescale`."""
        query: list[tuple[str, object]] = []
        for operator, number in parallelism.items() if isinstance(parallelism, Mapping) else [("", parallelism)]:
            query += [*([("operator", operator)] if operator else []), ("parallelism", number)]
        return float(self._done("PATCH", f"rescaling?{urlencode(query)}", None, tell))

    def cancel(self) -> bool:
        """End the job now, and return when it has ended; False: it had ended before."""
        if self.status().ended:
            return False
        self._cluster.ask("PATCH", f"{self._path}?mode=cancel")
        while not self.status().ended:
            time.sleep(_LOOK_SECONDS)
        return True

    def _done(
        self, method: str, path: str, body: Mapping[str, Any] | None, tell: Callable[[str], None] | None = None
    ) -> Any:
        """Begin an operation, and return what it comes to."""
        trigger = self._cluster.ask(method, f"{self._path}/{path}", body)["request-id"]
        told = None
        while not (operation := self._cluster.ask("GET", f"/v1{self._path}/operations/{trigger}"))["done"]:
            if tell is not None and (waiting_for := self.info().waiting_for) not in (None, told):
                tell(f"waiting for {waiting_for}")
                told = waiting_for
            time.sleep(_LOOK_SECONDS)
        if operation["error"] is not None:
            raise JobError(operation["error"])
        return operation["result"]

    def logs(self, after: Mapping[tuple[int, int], int], most: int = 1000) -> Sequence[LogLine]:
        """What the functions of the job have printed and logged; arguments as for `JobControl.logs`."""
        from penstock.actors.task_log import LogLine

        lines = [LogLine(**one) for one in self._cluster.ask("GET", f"/v1{self._path}/logs?most={most}")["lines"]]
        return [line for line in lines if line.number > after.get((line.task, line.subtask), 0)]

    def tail(self, operator: str, rows: int = 20, seconds: float = 5.0, side: str = "") -> TappedRows:
        """The last rows that an operator emits; arguments and errors as for `JobControl.tail`, in whole seconds."""
        import pyarrow as pa

        from penstock.engine.task.tap import SEEN, TappedRows

        query = urlencode({"rows": rows, "seconds": math.ceil(seconds), "side": side})
        path = f"/v1{self._path}/tail/{quote(operator, safe='')}?{query}"
        content = self._cluster.fetch("GET", path, accept=_ARROW, takes=seconds)
        table = pa.ipc.open_stream(content).read_all()
        return TappedRows(table.replace_schema_metadata(None), int(table.schema.metadata[SEEN]))

    def explain(self) -> str:
        """The tasks that run, with their operators and where their rows go.

        Raises:
            JobError: the job has ended.
        """
        return self._cluster.fetch("GET", f"/v1{self._path}/explain", accept="text/plain").decode()

    def preview_rescales(self, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        """What each of these rescales would do; see `JobControl.preview_rescales`.

        Args:
            wanted: all of the whole job, or each of one operator.
        """
        from penstock.engine.job.rescale_preview import RescalePreview, TaskPreview

        single = [pair for one in wanted if isinstance(one, Mapping) for pair in one.items()]
        whole = [one for one in wanted if not isinstance(one, Mapping)]
        query = {"operator": [name for name, _ in single], "parallelism": [number for _, number in single] + whole}
        answer = self._cluster.ask("GET", f"/v1{self._path}/preview-rescale?{urlencode(query, doseq=True)}")
        return [
            RescalePreview(**{**one, "tasks": tuple(TaskPreview(**task) for task in one["tasks"])})
            for one in answer["previews"]
        ]

    def why_slow(self) -> Reason:
        """What holds the job up."""
        from penstock.web.why_slow import Reason

        reason = self._cluster.ask("GET", f"/v1{self._path}/why-slow")
        return Reason(**{**reason, "figures": tuple(map(tuple, reason["figures"]))})

    def state(self, uid: str, name: str) -> RemoteState:
        """One state of an operator; see `penstock.state`."""
        return RemoteState(self._cluster, f"/v1{self._path}/state/{quote(uid, safe='')}/{quote(name, safe='')}")


class RemoteState:
    """A state of a job, asked for over REST.

    Args:
        cluster: which server.
        path: of the state there.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster = cluster
        self._path = path

    def get(self, *key: Any, isolation: str = "live") -> Any:
        """What the state of one key holds, as JSON has it; None where there is nothing.

        Args:
            key: the value of each key column.
            isolation: `"live"`, or `"checkpoint"` for the newest one.

        Raises:
            JobError: there is no such state, or it cannot be asked so.
            StateNotReadyError: the job does not run just now.
        """
        if not key:
            raise StateError("get takes a value of each key column; scan gives all rows")
        query = urlencode([*(("key", one) for one in key), ("isolation", isolation)])
        return self._cluster.ask("GET", f"{self._path}?{query}")["value"]

    def scan(self, limit: int = 10_000, isolation: str = "live") -> pa.Table:
        """Rows of the state, `limit` at most; errors as for `get`."""
        import pyarrow as pa

        query = urlencode({"limit": limit, "isolation": isolation})
        return pa.ipc.open_stream(self._cluster.fetch("GET", f"{self._path}?{query}", accept=_ARROW)).read_all()

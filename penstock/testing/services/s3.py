"""An S3 server (moto's) for tests and developers, in a process of its own.

Started by the fixture `s3` and by `python -m penstock.testing.services`. It honours conditional puts and multipart
uploads, takes any credentials, and keeps objects in memory: `pause` keeps them, `kill` and `restart` lose them.
"""

from __future__ import annotations

import http.client
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from penstock.engine.errors import ClusterError
from penstock.testing.services.processes import ServiceNotInstalledError
from penstock.testing.services.servers import HOST, Server, free_port


class S3(Server):
    """An S3 server without buckets, which it keeps in memory: behind `kill`, `shut_down` and `restart` there are none.

    Attributes:
        endpoint: URL of the server.
        access_key, secret_key, region: what a client needs to sign; not checked.
        environment: all four, as the variables that Penstock, obstore and boto3 read.

    Example:
        >>> with S3() as s3:
        ...     s3.create_bucket("events")
        ...     s3.environment["AWS_REGION"]
        'us-east-1'
    """

    name: ClassVar[str] = "s3"

    def __init__(self) -> None:
        self.port: Final = free_port(self)
        self.endpoint: Final = f"http://{HOST}:{self.port}"
        self.access_key: Final = "user-of-the-test"
        self.secret_key: Final = "secret-of-the-test"  # noqa: S105
        self.region: Final = "us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for clients, by name."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_ALLOW_HTTP": "true",
        }

    def addresses(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "region": self.region,
        }

    def create_bucket(self, bucket: str) -> None:
        """Make an empty bucket; one that is there already stays as it is.

        Raises:
            ClusterError: the server refuses the name.
        """
        status = self._ask("PUT", f"/{bucket}")
        if status != http.HTTPStatus.OK:
            raise ClusterError(f"the S3 server at {self.endpoint} refused to make bucket {bucket!r} (status {status})")

    def check_installed(self) -> None:
        # find_spec of the package only: its parent need not be imported for that.
        missing = [name for name in ("moto", "flask") if importlib.util.find_spec(name) is None]
        if missing:
            raise ServiceNotInstalledError("moto's server is not installed: run pip install 'moto[server]'")

    def _prepare(self, folder: Path) -> None:
        pass

    def _command(self, folder: Path) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "--host", HOST, "--port", str(self.port)]

    def _is_ready(self) -> bool:
        return self._ask("GET", "/") == http.HTTPStatus.OK

    def _ask(self, method: str, path: str) -> int:
        # http.client, because urllib would ask a proxy where the environment names one.
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10.0)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

"""`python -m penstock.testing.services`: servers for a developer at work; called by `make services`.

Starts those that are named (all, if none is), prints addresses and credentials, and waits for Ctrl-C or SIGTERM. The
servers and their data are gone when it ends, in whatever way it does. With `--install` it gets what they need.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from penstock.engine.errors import PenstockError
from penstock.testing.services import S3, Kafka, Postgres, Redis

_SERVERS: Final[Mapping[str, Callable[[], Kafka | Postgres | Redis | S3]]] = {
    "kafka": Kafka,
    "postgres": Postgres,
    "redis": Redis,
    "s3": S3,
}
_BUCKET: Final = "penstock"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal comes.

    Args:
        arguments: of the command line, without the program's name.

    Returns:
        The exit code: 0 after a signal, 1 if a server could not be started.
    """
    options = _parser().parse_args(arguments)
    if options.install:
        return _install()
    with ExitStack() as running:
        try:
            for number in _ENDING:
                signal.signal(number, _end)
            addresses = {}
            for name in dict.fromkeys(options.servers or _SERVERS):
                sys.stderr.write(f"Starting {name}...\n")
                server = _SERVERS[name]()
                running.callback(server.stop)
                server.start()
                addresses[name] = {**server.addresses(), **_made(server)}
            sys.stdout.write(json.dumps(addresses) + "\n" if options.json else _lines(addresses))
            sys.stdout.flush()
            sys.stderr.write("Running; Ctrl-C stops the servers and removes their data.\n")
            while True:
                signal.pause()
        except KeyboardInterrupt:
            sys.stderr.write("Stopping.\n")
            return 0
        except PenstockError as error:
            _hear_no_more()
            sys.stderr.write(f"{error}\n")
            return 1


def _made(server: Kafka | Postgres | Redis | S3) -> dict[str, str]:
    """What a server needs to be of use, and its address."""
    if not isinstance(server, S3):
        return {}
    server.create_bucket(_BUCKET)
    return {"bucket": _BUCKET}


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Handles the first signal; further ones would only break off the end of the servers."""
    _hear_no_more()
    raise KeyboardInterrupt


def _hear_no_more() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _install() -> int:
    command = ["/bin/sh", str(Path(__file__).with_name("install-services"))]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - a script of ours


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing.services",
        description="Start servers on free loopback ports, for tests and for developers.",
    )
    names = ", ".join(_SERVERS)
    parser.add_argument("servers", nargs="*", metavar="SERVER", type=_known, help=f"{names} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a line per address")
    parser.add_argument("--install", action="store_true", help="install what is missing, and start nothing")
    return parser


def _known(name: str) -> str:
    if name not in _SERVERS:
        raise argparse.ArgumentTypeError(f"no server {name!r}; there are {', '.join(_SERVERS)}")
    return name


def _lines(addresses: Mapping[str, Mapping[str, str]]) -> str:
    return "".join(f"{name} {key} {value}\n" for name, parts in addresses.items() for key, value in parts.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Sets up the peers: `python perf/peers/install.py [NAME...]`, called by `make bench-peers`.

Each gets a virtual environment of its own, `.venv-peers/NAME`, with exactly what `requirements/NAME.txt` lists by hash:
their dependencies exclude each other's and ours. Its folder `jars` has what `requirements/NAME-jars.txt` and
`NAME-kafka-jars.txt` list, where there are such. One that cannot be installed is reported, the others are set up all
the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".venv-peers"
REQUIREMENTS: Final = Path(__file__).resolve().parent / "requirements"
PEERS: Final = ("flink", "bytewax", "quixstreams", "spark")
_OLDEST: Final = (3, 11)
_NEWEST: Final = (3, 12)
"""The Python versions for which all of the peers have wheels."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up the peers that the command line names, or all; 1 where one of them could not be."""
    parser = argparse.ArgumentParser(
        prog="perf/peers/install.py", description="Set up what Penstock is measured against."
    )
    parser.add_argument("peers", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter for them (default: this one)")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.peers if name not in PEERS]
    if unknown:
        parser.error(f"no peer is called {unknown[0]!r}: choose among {', '.join(PEERS)}")
    if given.python == sys.executable and not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        parser.error(
            f"the peers need Python 3.{_OLDEST[1]} or 3.{_NEWEST[1]}, and this is {sys.version.split()[0]}: "
            "name one by --python"
        )
    failed = [name for name in given.peers or PEERS if not install(name, given.python)]
    return 1 if failed else 0


def install(name: str, python: str) -> bool:
    """Set up one peer, unless it is there already with these requirements; whether it is there now."""
    if not _install_packages(name, python):
        return False
    _fetch_jars(name)
    return True


def _install_packages(name: str, python: str) -> bool:
    environment, wanted = ENVIRONMENTS / name, REQUIREMENTS / f"{name}.txt"
    stamp = environment / ".installed"
    if stamp.exists() and stamp.read_text() == wanted.read_text():
        print(f"{name}: is there ({environment.relative_to(ROOT)})")
        return True
    print(f"{name}: installing into {environment.relative_to(ROOT)}", flush=True)
    interpreter = environment / "bin" / "python"
    # What comes as source (Flink's jars, Spark) is built by the setuptools that build.txt names, and by nothing newer.
    steps = [
        ["venv", "--quiet", "--clear", "--python", python, str(environment)],
        _install_step(interpreter, REQUIREMENTS / "build.txt"),
        [*_install_step(interpreter, wanted), "--no-build-isolation"],
    ]
    for step in steps:
        if subprocess.run([sys.executable, "-m", "uv", *step], check=False).returncode:
            print(f"{name}: cannot be installed here (uv's message is above); the other peers do not need it")
            return False
    stamp.write_text(wanted.read_text())
    return True


def _fetch_jars(name: str) -> None:
    # Not at the top: where the jars are listed is told here.
    from perf.peers.jars import JarError, fetch, jars_of

    for listed, use in ((name, "its batch mode"), (f"{name}-kafka", "what reads from Kafka")):
        try:
            fetch(jars_of(listed), ENVIRONMENTS / name / "jars")
        except JarError as error:
            print(f"{name}: {use} cannot be measured here, the rest can: {error}")


def _install_step(interpreter: Path, requirements: Path) -> list[str]:
    return ["pip", "install", "--quiet", "--python", str(interpreter), "--require-hashes", "-r", str(requirements)]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())

"""Jars that a peer needs beside its packages: Maven fetches them, and their SHA-256 is compared."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf.peers.install import REQUIREMENTS

_MAVEN: Final = ("mvn", "--batch-mode", "--quiet", "dependency:copy")


class JarError(Exception):
    """A jar cannot be had, or is another than the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One file.

    Args:
        coordinates: GROUP:ARTIFACT:VERSION, as Maven calls it.
        sha256: of the file, in hexadecimal digits.
    """

    coordinates: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name among files.

        Example:
            >>> Jar("org.example:tool:1.2", "").file
            'tool-1.2.jar'
        """
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    def check(self, path: Path) -> None:
        """Compare a file with what it should be.

        Raises:
            JarError: it is another one.
        """
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != self.sha256:
            raise JarError(f"{self.coordinates} has the SHA-256 {found}, and not {self.sha256}: it is not used")


def jars_of(peer: str) -> list[Jar]:
    """What `requirements/PEER-jars.txt` lists; nothing where there is no such file."""
    listed = REQUIREMENTS / f"{peer}-jars.txt"
    lines = listed.read_text().splitlines() if listed.exists() else []
    return [Jar(*line.split()) for line in lines if line and not line.startswith("#")]


def fetch(jars: Sequence[Jar], folder: Path) -> None:
    """Put those into the folder that are not there.

    Raises:
        JarError: there is no Maven, it cannot fetch one (its message is told), or one is not as it should be.
    """
    folder.mkdir(exist_ok=True)
    for jar in jars:
        if (folder / jar.file).exists():
            continue
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as name:
            _copy(jar, Path(name))
            jar.check(Path(name) / jar.file)
            # In one step, so that what stands there is complete.
            (Path(name) / jar.file).replace(folder / jar.file)


def _copy(jar: Jar, folder: Path) -> None:
    command = [*_MAVEN, f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise JarError(f"{jar.coordinates} is fetched by Maven, and there is no mvn on the path: install it") from None
    if done.returncode or not (folder / jar.file).exists():
        raise JarError(f"Maven cannot fetch {jar.coordinates}:\n{(done.stdout + done.stderr)[-2000:]}")

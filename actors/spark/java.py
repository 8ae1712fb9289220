"""Finds the Java that Spark runs in, and says what to do where there is none that it can run in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from penstock.engine.errors import ConfigurationError

USABLE: Final = (11, 17)
"""The versions that Spark 3.5 and Ray's Java workers both run in."""
_REMEDY: Final = "install JDK 17 (apt-get install openjdk-17-jre-headless) and set JAVA_HOME to its folder"
_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
JVM_OPTIONS: Final = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
"""What Spark, Arrow and Ray reach into; without it the first call from Java to Python ends the process."""


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Make sure that there is a Java that Spark can run in.

    Args:
        environment: the variables JAVA_HOME and PATH.

    Raises:
        ConfigurationError: there is none, or it is too old or too new.
    """
    java = _found(environment)
    version = java_version(_answer(java))
    if version not in USABLE:
        named = "one that does not tell its version" if version is None else f"Java {version}"
        raise ConfigurationError(
            f"batch mode runs Spark in Java {' or '.join(map(str, USABLE))}, and {java} is {named}; {_REMEDY}"
        )


def lead_with_java(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the Java of JAVA_HOME be the first on the path: Ray and RayDP start `java`, Spark that of JAVA_HOME.

    What a Ray cluster starts has the path that the cluster was started with: call it before that.
    """
    home = environment.get("JAVA_HOME")
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    own = str(Path(home) / "bin") if home else None
    if own is not None and folders[:1] != [own]:
        environment["PATH"] = os.pathsep.join([own, *folders])


def java_version(text: str) -> int | None:
    """The version in the answer to `java -version`; None where there is none.

    Example:
        >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
        (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _found(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise ConfigurationError(f"JAVA_HOME is {home}, where there is no bin/java; {_REMEDY}")
        return str(java)
    java_on_path = shutil.which("java", path=environment.get("PATH", ""))
    if java_on_path is None:
        raise ConfigurationError(f"batch mode runs Spark, which needs Java, and there is none here; {_REMEDY}")
    return java_on_path


def _answer(java: str) -> str:
    try:
        # Some versions answer on standard output, others on standard error.
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(
            f"batch mode runs Spark in Java, and {java} does not run: {error}; {_REMEDY}"
        ) from error
    return done.stdout + done.stderr

"""What is missing for Spark is told before it is started, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.actors.spark.java import check_java, java_version, lead_with_java
from penstock.actors.spark.options import SparkOptions, parsed_memory
from penstock.actors.spark.session import spark_settings
from penstock.engine.errors import ConfigurationError


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "11.0.2"])
def test_java_that_can_be_used(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path, version)
    check_java({"JAVA_HOME": str(home)})
    check_java({"PATH": str(home / "bin") + ":/bin"})


@pytest.mark.parametrize(("version", "named"), [("1.8.0_392", "Java 8"), ("21.0.1", "Java 21"), ("?", "does not tell")])
def test_another_java_is_refused(tmp_path: Path, version: str, named: str) -> None:
    home = fake_java(tmp_path, version)
    with pytest.raises(ConfigurationError, match=named) as raised:
        check_java({"JAVA_HOME": str(home)})
    assert "JDK 17" in str(raised.value)


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs Java, and there is none here; install JDK 17"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="where there is no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_what_ray_starts_finds_the_java_of_java_home_first(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for _ in range(2):
        lead_with_java(environment)
        assert environment["PATH"] == f"{tmp_path}/bin:/usr/bin:/bin"
    without = {"PATH": "/usr/bin:/bin"}
    lead_with_java(without)
    assert without == {"PATH": "/usr/bin:/bin"}


def test_version_of_a_development_build() -> None:
    assert java_version('openjdk version "17-ea" 2021') == 17


@pytest.mark.parametrize(
    ("size", "bytes_"), [("1g", 2**30), ("512M", 2**29), ("2 GiB", 2**31), ("1", None), ("g", None), (5, None)]
)
def test_sizes(size: object, bytes_: int | None) -> None:
    assert parsed_memory(size) == bytes_


def test_all_that_is_wrong_with_options_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        SparkOptions(0, True, "100m", {"spark.executor.cores": "3"})
    for part in ("executors must", "cores must", "450m", "spark.executor.cores is set by cores=True"):
        assert part in str(raised.value)


def test_the_users_settings_go_over_ours_and_java_options_add_up() -> None:
    settings = spark_settings({"spark.log.level": "INFO", "spark.driver.extraJavaOptions": "-Xss4m"}, ["", "/nowhere"])
    assert settings["spark.log.level"] == "INFO"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.executorEnv.PYTHONPATH"] == str(Path.cwd())

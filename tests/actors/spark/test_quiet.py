"""What Spark and Ray note beside a batch job is not shown, unless the user has said so."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError, is_error
from pyspark import SparkContext
from ray._private import ray_logging
from ray._private.worker import print_to_stdstream

from penstock.actors.spark.quiet import hush, log4j_file, skip_lost_calls, skip_notes
from tests.actors.spark.conftest import Environment


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What decides in this process which lines of others are shown; as it is before any job."""
    deduplicator: Any = ray_logging.stderr_deduplicator
    monkeypatch.setattr(deduplicator, "skip_re", None)
    yield deduplicator
    deduplicator.recent.clear()


def show(*lines: str) -> None:
    data = {"pid": 7, "ip": "127.0.0.1", "localhost": "127.0.0.1", "is_err": True, "lines": list(lines)}
    print_to_stdstream(data, ignore_prefix=True)


NOTE = "[2026-11-27 10:56:19,229 I 4852 4877] gcs_client.cc:96: GcsClient has no Cluster ID set, and won't fetch"
WARNING = "[2026-11-27 10:56:19,229 W 4852 4877] gcs_client.cc:99: something is wrong"


def test_what_ray_notes_for_information_is_not_shown_and_its_warnings_and_the_users_lines_are(
    shown: object, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_notes()
    show(NOTE, WARNING, f"mine: {NOTE}")
    assert capsys.readouterr().err.splitlines() == [WARNING, f"mine: {NOTE}"]


def test_the_users_own_expression_for_lines_to_skip_stays(shown: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown.skip_re = re.compile("wrong")
    skip_notes()
    show(NOTE, WARNING)
    assert capsys.readouterr().err.splitlines() == [NOTE]


class Gone(GatewayClient):
    """Asks a Java that goes when it is asked."""

    def _get_connection(self) -> Any:
        return self

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        if command == "asked":
            return super().send_command("called", retry=False)
        raise Py4JNetworkError("Answer from Java side is empty")

    def close(self, reset: bool = False) -> None:
        """There is nothing to be closed."""


@pytest.mark.parametrize("whole", [False, True])
def test_a_java_that_goes_while_it_is_asked_is_an_error_and_not_logged_as_well(
    whole: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full" if whole else "")
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    skip_lost_calls()
    skip_lost_calls()
    assert is_error(Gone().send_command("asked"))[0]
    logging.error("the user's own")
    assert [record.message for record in caplog.records] == ["Exception while sending command."] * whole + [
        "the user's own"
    ]


@pytest.mark.parametrize(
    ("configuration", "environment", "file"),
    [
        ({"spark.log4j.config.file.name": "mine.xml"}, {"SPARK_LOG4J_CONFIG_FILE_NAME": "theirs.xml"}, "mine.xml"),
        ({"spark.driver.extraJavaOptions": "-Xss4m -Dlog4j2.configurationFile=mine.xml"}, {}, "mine.xml"),
        ({}, {"SPARK_LOG4J_CONFIG_FILE_NAME": "theirs.xml"}, "theirs.xml"),
    ],
)
def test_the_users_settings_of_log4j_stay(
    configuration: dict[str, str], environment: dict[str, str], file: str
) -> None:
    assert log4j_file(configuration, environment) == file


@pytest.mark.ray
def test_spark_starts_without_a_word(printed_at_start: str) -> None:
    lines = printed_at_start.splitlines()
    # Tests give Java options in its environment, which it says.
    assert [line for line in lines if not line.startswith("Picked up JAVA_TOOL_OPTIONS")] == []


@pytest.mark.ray
@pytest.mark.parametrize(("frames", "is_shown"), [("", False), ("full", True)])
def test_what_threads_of_spark_print_as_it_ends_is_shown_on_request(
    spark: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: str, is_shown: bool
) -> None:
    monkeypatch.setenv("PENSTOCK_TRACEBACK", frames)
    gateway: Any = SparkContext._gateway
    java = gateway.jvm.java
    before, shown = java.lang.System.err, tmp_path / "shown"
    java.lang.System.setErr(java.io.PrintStream(str(shown)))
    try:
        hush()
        java.lang.IllegalStateException("others are gone").printStackTrace()
    finally:
        java.lang.System.setErr(before)
    assert ("others are gone" in shown.read_text()) is is_shown

"""Functions on Ray log as the process does that submits their job."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from penstock.actors.driver_logging import with_driver_logging
from penstock.engine.config import DEFAULTS, JobConfig
from tests.actors.test_task_log import LOGGER, installed, said
from tests.coming_loggers import coming_loggers

OTHER = logging.getLogger("tests.other")


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """What tests change of this process's loggers is put back."""
    changed = [logging.getLogger(), LOGGER, OTHER]
    before = [logger.level for logger in changed]
    yield
    for logger, level in zip(changed, before, strict=True):
        logger.setLevel(level)


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root logger as Python begins with it; pytest adds handlers when a test begins."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging.getLogger().setLevel(logging.WARNING)


def shown(config: JobConfig) -> tuple[list[str], list[str]]:
    """What a worker that follows the settings shows of the same four lines, and what it keeps."""
    logging.getLogger().handlers = []
    for logger in (logging.getLogger(), LOGGER, OTHER):
        logger.setLevel(logging.WARNING if logger.name == "root" else logging.NOTSET)
    with installed() as log:
        error = log._error
        assert isinstance(error, io.StringIO)
        # A process may be deployed again.
        for _ in range(2):
            log.set_levels(config.log_levels)
            log.show(config.log_levels, config.log_format)
        for logger in (LOGGER, OTHER):
            logger.debug("%s debug", logger.name)
            logger.info("%s info", logger.name)
        LOGGER.warning("warning")
        return error.getvalue().splitlines(), [text for _, _, text in said(log)]


def test_levels_and_format_of_the_driver_are_those_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s|%(name)s|%(message)s")
    LOGGER.setLevel(logging.DEBUG)
    seen, _ = shown(with_driver_logging(DEFAULTS))
    fraud = ["DEBUG|tests.fraud|tests.fraud debug", "INFO|tests.fraud|tests.fraud info"]
    assert seen == [*fraud, "INFO|tests.other|tests.other info", "WARNING|tests.fraud|warning"]


def test_a_driver_that_has_set_up_nothing_shows_warnings_and_the_rest_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh(monkeypatch)
    seen, kept = shown(with_driver_logging(DEFAULTS))
    assert seen == ["warning"]
    assert kept == ["tests.fraud info", "tests.other info", "warning"]


def test_what_the_configuration_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(monkeypatch)
    LOGGER.setLevel(logging.DEBUG)
    config = JobConfig(log_levels=(("tests.fraud", "ERROR"),))
    assert shown(with_driver_logging(config))[0] == []


def test_other_threads_may_load_modules_meanwhile() -> None:
    OTHER.setLevel(logging.DEBUG)
    with coming_loggers():
        for _ in range(200):
            assert ("tests.other", "DEBUG") in with_driver_logging(JobConfig()).log_levels

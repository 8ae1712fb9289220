"""Bad settings of checkpoints and restarts are named together, each with what may be set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.engine.checkpoint_config import (
    CheckpointConfig,
    ExponentialDelay,
    FailoverConfig,
    FailureRate,
    FixedDelay,
)
from penstock.engine.elements import CheckpointMode
from penstock.engine.errors import ConfigurationError


def test_all_bad_settings_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        CheckpointConfig(interval_ms=-1, timeout_ms=0, max_concurrent=True, tolerable_failures=-2, retained=0)
    for name in ("interval_ms", "timeout_ms", "max_concurrent", "tolerable_failures", "retained"):
        assert f"{name} must be a whole number from" in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval_ms": 700_000}, "interval_ms 700000 is over timeout_ms 600000; raise timeout_ms"),
        ({"mode": CheckpointMode.UNALIGNED, "max_concurrent": 2}, "max_concurrent 2 is more than the 1"),
        ({"alignment_timeout_ms": 50, "max_concurrent": 2}, "max_concurrent 2 is more than the 1"),
        ({"mode": CheckpointMode.AT_LEAST_ONCE, "alignment_timeout_ms": 50}, "means nothing in mode at_least_once"),
        ({"mode": "aligned"}, "mode must be a CheckpointMode, not 'aligned'"),
        ({"storage_overrides": (("a", "s3://x"), ("b", "s3://x"), ("a", "s3://y"))}, "names 'a' more than once"),
    ],
)
def test_settings_that_cannot_be_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CheckpointConfig(**settings)


def test_what_flink_takes_is_taken() -> None:
    assert not CheckpointConfig().enabled
    assert CheckpointConfig(interval_ms=1000, min_pause_ms=5000, max_concurrent=3, tolerable_failures=None).enabled
    CheckpointConfig(interval_ms=1000, mode=CheckpointMode.UNALIGNED, alignment_timeout_ms=0)
    FailoverConfig(restart=FixedDelay(0, 0), standbys=0)
    ExponentialDelay(initial_ms=5, largest_ms=5, factor=1, jitter=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDelay(attempts=-1, delay_ms=1.5), "attempts must .*; delay_ms must be a whole number"),
        (lambda: FailureRate(failures=0), "failures must be a whole number from 1"),
        (lambda: ExponentialDelay(factor=0.5, jitter=2), "factor must .*; jitter must be a number from 0 to 1"),
        (lambda: ExponentialDelay(initial_ms=10, largest_ms=5), "initial_ms 10 is over largest_ms 5"),
        (lambda: FailoverConfig(standbys=-1, restart="fixed"), "standbys must .*; restart must be a restart strategy"),
    ],
)
def test_bad_restart_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()

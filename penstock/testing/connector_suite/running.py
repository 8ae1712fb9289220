"""Runs the checks of a suite without pytest: in a notebook, in a page of documentation, against mutants."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.testing.connector_suite.live_sources import LiveSourceSuite
from penstock.testing.connector_suite.lookups import LookupTableSuite
from penstock.testing.connector_suite.plain_sinks import SinkSuite
from penstock.testing.connector_suite.repeating_sinks import AtLeastOnceSinkSuite
from penstock.testing.connector_suite.sinks import TransactionalSinkSuite
from penstock.testing.connector_suite.sources import SourceSuite


def violations(
    suite: SourceSuite | LiveSourceSuite | TransactionalSinkSuite | AtLeastOnceSinkSuite | SinkSuite | LookupTableSuite,
    checks: Sequence[str] | None = None,
) -> dict[str, str]:
    """What is wrong, by the name of the check; empty if nothing is.

    Args:
        suite: says what to test.
        checks: names of some checks; None for all.

    Example:
        >>> assert not violations(TestTicks())  # doctest: +SKIP
    """
    names = [name for name in dir(suite) if name.startswith("test_")] if checks is None else checks
    found = {}
    for name in names:
        try:
            getattr(suite, name)()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found

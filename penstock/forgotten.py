"""Reminds of a program with sinks, `print()` or `collect()` that nobody has run: the script would end silently.

`StreamEnvironment` makes its programs here, and says when one is run, explained or cleared. Nothing is said behind an
error.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable

from penstock.engine.api.program import Program
from penstock.engine.graph.logical import GraphBuilder
from penstock.engine.job.handle import JobHandle

_LOG = logging.getLogger(__name__)


def reminding_program(submit: Callable[[Program], JobHandle]) -> Program:
    """A program that, where it goes without anybody having asked for it, tells so; `submit` as for `Program`."""
    program = Program(submit)
    reminder = weakref.finalize(program, _remind, program.graph)

    program.asked_for = reminder.detach
    return program


def _remind(graph: GraphBuilder) -> None:
    ends = [node.name for node in graph.build() if node.is_end]
    # Behind an error, only that counts.
    if ends and not hasattr(sys, "last_value") and sys.exc_info()[1] is None:
        _LOG.warning(
            'a program that ends in %s was never run: call env.execute("a name"), or read what collect() returned',
            ", ".join(ends),
        )

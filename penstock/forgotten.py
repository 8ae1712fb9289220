"""Reminds of a program with sinks, `print()` or `collect()` that nobody has run: the script would end silently.

`StreamEnvironment` makes its programs here, and says when one is run, explained or cleared. It is told when the process
ends, and nothing is told behind an error.
"""

from __future__ import annotations

import atexit
import functools
import logging
import sys
import weakref
from collections.abc import Callable

from penstock.engine.api.program import Program
from penstock.engine.graph.logical import GraphBuilder
from penstock.engine.job.handle import JobHandle

_LOG = logging.getLogger(__name__)


def reminding_program(submit: Callable[[Program], JobHandle]) -> Program:
    """A program that, where nobody has asked for it when the process ends, is told of; `submit` as for `Program`."""
    program = Program(submit)
    remind = functools.partial(_remind, weakref.ref(program.graph))
    atexit.register(remind)
    weakref.finalize(program, atexit.unregister, remind).atexit = False
    program.asked_for = functools.partial(atexit.unregister, remind)
    return program


def _remind(graph: weakref.ref[GraphBuilder]) -> None:
    built = graph()
    ends = [] if built is None else [node.name for node in built.build() if node.is_end]
    # Behind an error, only that counts.
    if ends and not hasattr(sys, "last_value"):
        _LOG.warning(
            'a program that ends in %s was never run: call env.execute("a name"), or read what collect() returned',
            ", ".join(ends),
        )

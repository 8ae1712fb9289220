"""A unit harness for functions and operators: push rows, move time by hand, and look at what came of it.

For tests of a process function, a window or any verbs, without a job: no thread, no cluster, no storage. What it runs
are the engine's own operators; time stands still until the test moves it.
"""

from penstock.testing.harness.harness import Harness, Input
from penstock.testing.harness.states import HarnessSnapshot, Timer

__all__ = ["Harness", "HarnessSnapshot", "Input", "Timer"]

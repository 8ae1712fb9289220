"""Draws random operators and steps by a seed, runs them in all ways, and says where these differ."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from penstock.engine.errors import ConfigurationError, GraphError
from tests.parity.rows import KINDS
from tests.property.cuts.drawing import random_operators
from tests.property.cuts.runs import Given, Operators, all_rows, run, shown
from tests.property.cuts.sizes import Lower, as_they_are
from tests.property.cuts.steps import Push, Step, cut, random_steps, resumed


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a seed: "same", "refused" (the API does not take it) or "wrong", with details."""

    kind: str
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """Operators, and what happens to them."""

    seed: int
    kind: str
    operators: Operators
    steps: list[Step]

    def difference(self, steps: Sequence[Step], lower: Lower = as_they_are) -> str:
        """Where ways to run the steps differ; nothing if nowhere. The same ways whatever the steps.

        Args:
            steps: what happens.
            lower: lowers bounds of the engine for runs that are compared with the first one.
        """
        random, operators, kind = Random(self.seed), self.operators, self.kind
        single = run(operators, steps, kind)
        if operators.model is not None and (text := _differs(operators, single, operators.model(steps), loosely=True)):
            return f"plain Python: {text}"
        if operators.twin is not None:
            other = run(operators, steps, kind, build=operators.twin)
            if text := _differs(replace(operators, fewer=all_rows), single, other, loosely=True):
                return f"another way: {text}"
        for share in (0.0, random.random()):
            cuts = cut(random, steps, share)
            with lower(random):
                given = run(operators, cuts, kind)
            if text := _differs(operators, single, given, in_order=operators.is_in_order):
                return f"in batches of {_sizes(cuts)}: {text}"
        if not operators.can_resume:
            return ""
        backend = random.choice(("heap", "heap", "rocksdb"))
        most = random.choice((1, 3)) if operators.keys else 1
        cuts = resumed(random, cut(random, steps, random.choice((0, 0.3, 1))), range(1, most + 1))
        with lower(random):
            given = run(operators, cuts, kind, backend=backend)
        if text := _differs(operators, single, given):
            return f"{backend}, resumed, {_sizes(cuts)}: {text}"
        return ""


def case(seed: int, number: int = 60) -> Case:
    """The operators and steps of a seed."""
    random = Random(seed)
    kind = random.choice(list(KINDS))
    operators = random_operators(random, kind)
    return Case(seed, kind, operators, random_steps(random, kind, operators.inputs, random.randint(1, number)))


def check(seed: int, lower: Lower = as_they_are, most_tries: int = 1000) -> Verdict:
    """Run a seed in all ways.

    Args:
        seed: what is drawn by.
        lower: as for `Case.difference`.
        most_tries: how often fewer steps are tried that show what is wrong.
    """
    made = case(seed)
    about = f"seed {seed}, x: {made.kind}, {made.operators.text}"
    try:
        found = _told(made, made.steps, lower)
    except (GraphError, ConfigurationError) as error:
        return Verdict("refused", about, str(error))
    if not found:
        return Verdict("same", about)
    steps = _fewer(made, lower, most_tries)
    lines = "\n".join(f"  {step}" for step in steps)
    return Verdict("wrong", about, f"{about}\n{lines}\n{_told(made, steps, lower)}")


def _told(made: Case, steps: Sequence[Step], lower: Lower) -> str:
    try:
        return made.difference(steps, lower)
    except (GraphError, ConfigurationError):
        raise
    except Exception as error:  # Whatever it is, it is told.
        return f"{type(error).__name__}: {error}"


def _fewer(made: Case, lower: Lower, most_tries: int) -> list[Step]:
    """Fewer steps that still show a difference."""
    steps, size = list(made.steps), max(1, len(made.steps) // 2)
    while size:
        at = 0
        while at < len(steps) and most_tries:
            most_tries -= 1
            fewer = steps[:at] + steps[at + size :]
            if fewer and _told(made, fewer, lower):
                steps = fewer
            else:
                at += size
        size = size // 2 if most_tries else 0
    return steps


def _differs(
    operators: Operators,
    one: Sequence[Given],
    other: Sequence[Given],
    *,
    in_order: bool = False,
    loosely: bool = False,
) -> str:
    loosely |= not operators.has_lists_in_order
    wanted, given = (shown(operators, each, in_order=in_order, loosely=loosely) for each in (one, other))
    if wanted == given:
        return ""
    lines = []
    for number, (a, b) in enumerate(zip(wanted, given, strict=False)):
        for name, left, right in zip(("rows", *operators.sides), a, b, strict=True):
            changes = list(difflib.ndiff(left, right))
            lines += [f"  part {number}, {name}: {line[:400]}" for line in changes if line[0] in "-+"]
    return "\n" + "\n".join(lines[:8]) if lines else f" {len(wanted)} and {len(given)} parts"


def _sizes(steps: Sequence[Step]) -> str:
    sizes = [str(len(step.rows)) if isinstance(step, Push) else type(step).__name__[0] for step in steps]
    return " ".join(sizes)

"""What happens to the operators of a random program, one thing after another: rows, watermarks, ticks of the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tests.parity.rows import KINDS, Row, Rows

_BASES = (0, 0, -1000, -(10**12), 1_700_000_000_000, 2 * 10**14, -6 * 10**13)
_NEAR = (0, 0, 0, 1, -1, -1, -5, -30, -49, -50, -51, 50, -100, -250, -400, 400, -600)
"""By how much a time may be behind another, also by lengths of windows."""
_FLOATS = (None, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.5, -2.5, 3.0, 100.0)


@dataclass(frozen=True, slots=True)
class Push:
    """Rows that come on input `to`, as one batch."""

    to: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark on input `to`, or on all."""

    to: int | None
    time: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock goes on."""

    ms: int


@dataclass(frozen=True, slots=True)
class Resume:
    """A savepoint is taken, and goes on at this parallelism."""

    parallelism: int


Step: TypeAlias = Push | Mark | Tick | Resume


def random_steps(random: Random, kind: str, inputs: int, number: int) -> list[Step]:
    """Rows of inputs whose `x` is of that type, each in a batch of its own, among watermarks that make some late.

    Watermarks are strictly increasing on each input, as those of a stream are.
    """
    now, to, steps = random.choice(_BASES), 0, list[Step]()
    most, marked, times = now, [now - 10_000] * inputs, [now]
    keys = random.choice([["a"], ["a"], ["", "ä"], ["", "a", "b", "日本"]])
    for _ in range(number):
        chance = random.random()
        if chance < 0.78:
            now += random.choice((0, 0, 1, 3, 40, 90, 250))
            to = to if random.random() < 0.6 else random.randrange(inputs)
            around = random.choice((now, now, max(marked), random.choice(times)))
            time = around + random.choice(_NEAR)
            times.append(time)
            most = max(most, time)
            steps.append(Push(to, [random_row(random, kind, keys, time)]))
        elif chance < 0.95:
            time = most - random.choice((-1, 0, 1, 10, 60, 200, 500))
            on = None if inputs == 1 or random.random() < 0.5 else random.randrange(inputs)
            if all(time > marked[one] for one in range(inputs) if on in (None, one)):
                marked = [time if on in (None, one) else marked[one] for one in range(inputs)]
                steps.append(Mark(on, time))
        else:
            steps.append(Tick(random.choice((1, 7, 50, 400))))
    return steps


def random_row(random: Random, kind: str, keys: Sequence[str], time: int) -> Row:
    """One row, whose event time is `t`."""
    return {
        "k": random.choice(keys),
        "j": random.choice((0, 0, 0, 0, 1, 2**62, -(2**63))),
        "v": random.choice((None, *range(-3, 7))),
        "f": random.choice(_FLOATS),
        "x": random.choice(KINDS[kind]),
        "t": time,
    }


def cut(random: Random, steps: Sequence[Step], share: float) -> list[Step]:
    """The same, where rows that follow each other on one input are one batch, but at `share` of the places."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        if isinstance(step, Push) and isinstance(last, Push) and step.to == last.to and random.random() >= share:
            found[-1] = Push(step.to, [*last.rows, *step.rows])
        else:
            found.append(step)
    return found


def resumed(random: Random, steps: Sequence[Step], parallelisms: Sequence[int]) -> list[Step]:
    """The same, with savepoints at some places."""
    places = sorted(random.randrange(len(steps) + 1) for _ in range(random.choice((1, 1, 2, 3))))
    found = list(steps)
    for place in reversed(places):
        found.insert(place, Resume(random.choice(parallelisms)))
    return found


def singles(steps: Sequence[Step]) -> Iterator[tuple[int, Row]]:
    """All rows, with their inputs."""
    for step in steps:
        if isinstance(step, Push):
            yield from ((step.to, row) for row in step.rows)

"""The conditions of patterns: tests of one row, or of one row and what a partial match holds, joined by and, or, not.

Users give expressions and functions to `Pattern`; the compiler joins them, and the matchers ask them of a `Probe`.
A condition is a value without state: the same answers of its leaves give the same answer, and none is asked in vain.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.errors import PatternError
from penstock.engine.texts import function_name

if TYPE_CHECKING:
    from penstock.engine.expressions import Expr

Row: TypeAlias = Mapping[str, Any]


class MatchContext(Protocol):
    """What an iterative condition may know beside the row."""

    @property
    def timestamp(self) -> int:
        """The row's time (int64 ms): of the event, or of the clock in processing time."""
        ...

    def events(self, name: str) -> list[Any]:
        """The rows (dicts) that the partial match holds for the variable `name`, in their order; [] for none."""
        ...

    def current_processing_time(self) -> int:
        """The time of the clock (int64 ms)."""
        ...


RowTest: TypeAlias = Callable[[Any], object]
"""A Python function of the row (a dict)."""
IterativeTest: TypeAlias = Callable[[Any, MatchContext], object]
"""A Python function of the row and the `MatchContext`."""
Given: TypeAlias = "Expr | RowTest | IterativeTest"
"""What users give as a condition."""


class Probe(Protocol):
    """Answers the leaves for one row, and one partial match."""

    def holds(self, leaf: Leaf) -> bool:
        """Whether the leaf's test is true."""
        ...


class Condition(Protocol):
    """A test of a row."""

    def test(self, probe: Probe) -> bool:
        """Whether it is true, asking no more leaves than it must, from the left."""
        ...

    def leaves(self) -> Iterator[Leaf]:
        """The tests that users gave, in order, repeats included."""
        ...


@dataclass(frozen=True, slots=True)
class Always:
    """True for every row."""

    def test(self, probe: Probe) -> bool:
        return True

    def leaves(self) -> Iterator[Leaf]:
        return iter(())

    def __str__(self) -> str:
        return "true"


ALWAYS: Final = Always()


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One test that a user gave: an expression, a function of the row, or an iterative one.

    Args:
        given: the test.
        is_expression: whether it is a column expression.
        is_iterative: whether it takes a `MatchContext`.
    """

    given: Any
    is_expression: bool = False
    is_iterative: bool = False

    @property
    def is_columnar(self) -> bool:
        """Whether it is asked of whole batches: an expression, or a compiled function of the row."""
        return self.is_expression or isinstance(self.given, CompiledFunction)

    def test(self, probe: Probe) -> bool:
        return probe.holds(self)

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def __str__(self) -> str:
        if self.is_expression:
            from penstock.engine.expressions import Filter, describe

            return describe((Filter(self.given),)).removeprefix("filter(").removesuffix(")")
        return str(getattr(self.given, "__name__", type(self.given).__name__))


@dataclass(frozen=True, slots=True)
class And:
    """Both are true."""

    left: Condition
    right: Condition

    def test(self, probe: Probe) -> bool:
        return self.left.test(probe) and self.right.test(probe)

    def leaves(self) -> Iterator[Leaf]:
        yield from self.left.leaves()
        yield from self.right.leaves()

    def __str__(self) -> str:
        if isinstance(self.left, Always):
            return str(self.right)
        return f"({self.left} and {self.right})"


@dataclass(frozen=True, slots=True)
class Or:
    """One of both is true."""

    left: Condition
    right: Condition

    def test(self, probe: Probe) -> bool:
        return self.left.test(probe) or self.right.test(probe)

    def leaves(self) -> Iterator[Leaf]:
        yield from self.left.leaves()
        yield from self.right.leaves()

    def __str__(self) -> str:
        return f"({self.left} or {self.right})"


@dataclass(frozen=True, slots=True)
class Not:
    """It is not true."""

    condition: Condition

    def test(self, probe: Probe) -> bool:
        return not self.condition.test(probe)

    def leaves(self) -> Iterator[Leaf]:
        return self.condition.leaves()

    def __str__(self) -> str:
        return f"not {self.condition}"


def condition_of(verb: str, given: object) -> Leaf:
    """The condition that a user gave.

    Args:
        verb: what the user called, for messages.
        given: a row-wise boolean expression, a function of the row, or one of the row and a `MatchContext`.

    Raises:
        PatternError: it is none of them.
        GraphError: the expression looks at other rows.
    """
    from penstock.engine.expressions import Expr, Filter

    if isinstance(given, Expr):
        Filter(given)
        return Leaf(given, is_expression=True)
    if not callable(given) or inspect.isclass(given):
        raise PatternError(
            f"{verb}: a condition is an expression such as col('price') > 3, a function of the row (a dict), or a "
            f"function of the row and the match so far, not {given!r:.200}"
        )
    if isinstance(given, CompiledFunction):
        compiled = given.unless_refused(functools.partial(_compiled_of_row, verb, given))
        return Leaf(given.function, is_iterative=True) if compiled is None else Leaf(compiled)
    return Leaf(given, is_iterative=_takes_context(verb, given))


def _compiled_of_row(verb: str, function: CompiledFunction[Any]) -> CompiledFunction[Any]:
    if _takes_context(verb, function.function):
        raise PatternError(
            f"{verb}: {function_name(function)} is compiled, and takes the match so far; compiled conditions take the "
            "row alone, so drop @compiled"
        )
    return function


def _takes_context(verb: str, function: Callable[..., object]) -> bool:
    """Whether a function takes the row and the context, by the number of arguments that it needs."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyword_only = [p.name for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    if keyword_only or not 1 <= len(needed) <= 2:
        raise PatternError(
            f"{verb}: {getattr(function, '__name__', function)!s} takes {len(needed) + len(keyword_only)} arguments; "
            "a condition takes the row, or the row and the match so far: lambda row, match: ..."
        )
    return len(needed) == 2

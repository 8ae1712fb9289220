"""Expressions of plain arithmetic, comparisons and logic, as calls of Arrow's kernels; all others are narwhals' to run.

narwhals evaluates an expression anew for each batch: 0.3 ms for two operations, however few the rows are, of which
Arrow takes a twentieth. `operators/expressions.py` asks for the calls once. Each is the one that narwhals makes, so
that results are the same; where one fails, narwhals runs the batch, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import Batch
from penstock.engine.expressions import Expr, Filter, Select, Step, operations

Columns: TypeAlias = Mapping[str, pa.Array]
_Call: TypeAlias = Callable[[Columns], Any]
_Named: TypeAlias = tuple[str, _Call]

_KERNELS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "__add__": pc.add,
    "__sub__": pc.subtract,
    "__mul__": pc.multiply,
    "__eq__": pc.equal,
    "__ne__": pc.not_equal,
    "__lt__": pc.less,
    "__le__": pc.less_equal,
    "__gt__": pc.greater,
    "__ge__": pc.greater_equal,
    "__and__": pc.and_kleene,
    "__or__": pc.or_kleene,
}
_REFLECTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "__radd__": pc.add,
    "__rsub__": pc.subtract,
    "__rmul__": pc.multiply,
    "__rand__": pc.and_kleene,
    "__ror__": pc.or_kleene,
}
_LITERALS: Final = (bool, int, float, str)


class DirectSteps:
    """Steps that need no narwhals. Made by `direct_steps`."""

    def __init__(self, steps: Sequence[tuple[type[Step], Sequence[_Named], Set[str]]]) -> None:
        self._steps = steps

    def apply(self, batch: Batch, schema: pa.Schema) -> Batch:
        """What `expressions.apply` gives.

        Args:
            batch: any number of rows.
            schema: what `bind` gave for the batch's.

        Raises:
            Exception: of Arrow, where a value cannot be computed, or has another type than the schema says.
        """
        data = batch.data
        columns = dict(zip(data.schema.names, data.columns, strict=True))
        timestamps, kinds = batch.timestamps, batch.kinds
        for kind, calls, wanted in self._steps:
            computed = {name: call(columns) for name, call in calls}
            if kind is Filter:
                (mask,) = computed.values()
                if mask.true_count < len(mask):
                    columns = {name: columns[name].filter(mask) for name in wanted or columns if name in columns}
                    timestamps = None if timestamps is None else timestamps.filter(mask)
                    kinds = None if kinds is None else kinds.filter(mask)
            else:
                columns = computed if kind is Select else {**columns, **computed}
        return Batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema), timestamps, kinds)


def direct_steps(steps: Sequence[Step]) -> DirectSteps | None:
    """The steps as calls of Arrow's kernels; None where one of them is more than these can do.

    Example:
        `direct_steps((Filter(col("x") > 3), with_columns(y=col("x") * 2 + 1)))`
    """
    direct = []
    for place, step in enumerate(steps):
        named = [_named(one) for one in _expressions(step)]
        known = [one for one in named if one is not None]
        if len(known) < len(named):
            return None
        direct.append((type(step), known, _wanted(steps[place + 1 :])))
    return DirectSteps(direct)


def _expressions(step: Step) -> Sequence[object]:
    return (step.predicate,) if isinstance(step, Filter) else step.columns


def _wanted(steps: Sequence[Step]) -> Set[str]:
    """The columns that these steps read, where one of them chooses columns: others need not come to them. Else none."""
    names: set[str] = set()
    for step in steps:
        names.update(*map(_read_by, _expressions(step)))
        if isinstance(step, Select):
            return names
    return set()


def _read_by(expression: object) -> Set[str]:
    """The columns that an expression names."""
    names: set[str] = set()
    for node in (operations(expression) or ()) if isinstance(expression, Expr) else ():
        names.update(map(str, node.kwargs.get("names", ())), *map(_read_by, node.exprs))
    return names


def _named(expression: object) -> _Named | None:
    """Its name, and what computes it."""
    nodes = operations(expression) if isinstance(expression, Expr) else None
    if not nodes or nodes[0].name != "col" or len(names := nodes[0].kwargs.get("names", ())) != 1:
        return None
    name = str(names[0])
    call = _column(name)
    for node in nodes[1:]:
        if node.name == "alias":
            name = node.kwargs["name"]
            continue
        following = _following(node, call)
        if following is None:
            return None
        call = following
    return name, call


def _column(name: str) -> _Call:
    return lambda columns: columns[name]


def _following(node: Any, operand: _Call) -> _Call | None:
    """The operation of a node, on what came before it."""
    if node.name == "__invert__":
        return lambda columns: pc.invert(operand(columns))
    if node.name == "is_null":
        return lambda columns: operand(columns).is_null()
    kernel, reflected = _KERNELS.get(node.name), _REFLECTED.get(node.name)
    if len(node.exprs) != 1 or (kernel is None and reflected is None):
        return None
    other = _operand(node.exprs[0])
    if other is None:
        return None
    if kernel is not None:
        return lambda columns: kernel(operand(columns), other(columns))
    assert reflected is not None
    return lambda columns: reflected(other(columns), operand(columns))


def _operand(value: object) -> _Call | None:
    if isinstance(value, Expr):
        named = _named(value)
        return None if named is None else named[1]
    if type(value) not in _LITERALS:
        return None
    try:
        # As narwhals finds its type.
        scalar = pa.array([value])[0]
    except (pa.ArrowException, OverflowError):
        return None
    return lambda columns: scalar

"""Fingerprints of plan nodes: equal for nodes that compute the same rows of the same inputs, so that state fits.

The lowering makes uids of them, by which a changed query finds the state of what has not changed. The text that is
hashed is a format: what changes it loses the state of every query, and raises `FORMAT`.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Final

from penstock.tables.expressions import UserCall
from penstock.tables.plan.nodes import LookupJoin, PlanNode, Scan, WindowTable, inputs_of
from penstock.tables.types import Kind, SqlType

FORMAT: Final = 1
"""The version of the text; uids begin with it."""
_DIGITS: Final = 12
_HOW: Final[Mapping[type, frozenset[str]]] = {
    Scan: frozenset({"options", "bounded"}),
    LookupJoin: frozenset({"retry"}),
    WindowTable: frozenset({"drops_late"}),
}
"""What says only how rows are come by, or follows from what is above."""
_INPUTS: Final = frozenset({"input", "left", "right", "inputs_"})


def fingerprint(node: PlanNode) -> str:
    """Twelve hexadecimal digits for a node and all below it.

    Columns count by place, name and type; a table counts by its name and the columns that it gives, not by its
    options. A function of the user counts by its name, so a change of its code keeps the state.

    Example:
        >>> from penstock.tables.plan.nodes import Values
        >>> fingerprint(Values((), ())) == fingerprint(Values((), ()))
        True
    """
    below = [fingerprint(child) for child in inputs_of(node)]
    return digest(type(node).__name__, *_own(node), *below)


def digest(*parts: str) -> str:
    """Twelve hexadecimal digits for some texts."""
    text = "\x1f".join((str(FORMAT), *parts))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:_DIGITS]


def _own(node: PlanNode) -> list[str]:
    """What a node is beside its inputs."""
    left_out = _INPUTS | _HOW.get(type(node), frozenset())
    return [f"{field.name}={_text(getattr(node, field.name))}" for field in fields(node) if field.name not in left_out]


def _text(value: object) -> str:
    match value:
        case SqlType(kind=Kind.MULTISET):
            # COLLECT of values that may be null is never null, which it was in the first texts of this format.
            return str(value.with_nullable(value.nullable or value.parts[0].nullable))
        case SqlType(kind=Kind.CHAR, precision=0):
            # The text without a character was one of one in the first texts of this format.
            return str(replace(value, precision=1))
        case SqlType():
            return str(value)
        case UserCall():
            return f"{value.name}({_text(value.arguments)}){value.type}"
        case enum.Enum():
            return value.name
        case frozenset():
            return f"{{{','.join(sorted(map(_text, value)))}}}"
        case Mapping():
            return f"{{{','.join(f'{_text(key)}:{_text(value[key])}' for key in sorted(value))}}}"
        case tuple() | list():
            return f"({','.join(map(_text, value))})"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ",".join(f"{field.name}={_text(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({inner})"
    return repr(value)

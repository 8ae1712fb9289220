"""Replaces parts of a syntax tree; what has not changed is the same object as before.

The environment resolves functions by it, and the binder puts columns in the place of queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from penstock.tables.types import SqlType

_Tree = TypeVar("_Tree")


def rewritten(tree: _Tree, change: Callable[[Any], Any]) -> _Tree:
    """A tree, of which some parts are others.

    Args:
        tree: a part of a statement, or a tuple of such.
        change: gives what takes a part's place, which is not looked into then; None to look at the parts below.
    """
    found: Any = _rewritten(tree, change)
    return found  # type: ignore[no-any-return]


def _rewritten(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, tuple):
        parts = [_rewritten(part, change) for part in tree]
        return tree if all(made is given for made, given in zip(parts, tree, strict=True)) else tuple(parts)
    if isinstance(tree, SqlType) or not is_dataclass(tree) or isinstance(tree, type):
        return tree
    changed = change(tree)
    if changed is not None:
        return changed
    below = {
        part.name: made
        for part in fields(tree)
        if (made := _rewritten(given := getattr(tree, part.name), change)) is not given
    }
    return replace(tree, **below) if below else tree

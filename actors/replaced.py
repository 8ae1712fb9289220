"""Another value for a name of another package, for a while; where there is no such name, nothing changes."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(module_name: str, name: str, replacement: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, what a module has under a name is what `replacement` makes of what it had."""
    try:
        module = importlib.import_module(module_name)
        before = getattr(module, name)
    except (ImportError, AttributeError):
        yield
        return
    setattr(module, name, replacement(before))
    try:
        yield
    finally:
        setattr(module, name, before)

"""Keeps Ray from loading pydantic and Starlette in each process of a job, to teach its pickler one class of either.

The front of a program and the processes of jobs call it as they begin. A process that loads one of the two itself has
Ray's pickler know their classes from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.actors.import_hooks import when_loaded

_PACKAGES: Final = ("pydantic", "starlette")


def register_serializers_later() -> None:
    """Let Ray do without the packages until they are imported. Nothing changes where another Ray has other names."""
    try:
        from ray._private.arrow_serialization import _register_custom_datasets_serializers as register_arrow
        from ray.util import serialization_addons as untyped
    except ImportError:
        return
    addons: Any = untyped
    apply = getattr(addons, "apply", None)
    if apply is not None and not isinstance(apply, _Later):
        addons.apply = _Later(apply, register_arrow)


@dataclass(frozen=True, slots=True)
class _Later:
    """What Ray (2.60) calls for each pickler's context, of which the part for Arrow is needed at once."""

    apply: Callable[[Any], None]
    register_arrow: Callable[[Any], None]

    def __call__(self, context: Any) -> None:
        if any(package in sys.modules for package in _PACKAGES):
            self.apply(context)
            return
        self.register_arrow(context)
        when_loaded(_PACKAGES, lambda: self.apply(context))

"""Keeps Ray from loading pydantic and Starlette in each process of a job, to teach its pickler one class of either.

The front of a program and the processes of jobs call it as they begin. A process that loads one of the two itself has
Ray's pickler know their classes from then on.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from ray._private import arrow_serialization as untyped_arrow
from ray.util import serialization_addons as untyped_addons

from penstock.actors.import_hooks import when_loaded

_PACKAGES: Final = ("pydantic", "starlette")
_addons: Any = untyped_addons
_arrow: Any = untyped_arrow


def register_serializers_later() -> None:
    """Let Ray do without the packages until they are imported. Nothing changes where another Ray has other names."""
    if _addons.apply is not _apply_later and hasattr(_arrow, "_register_custom_datasets_serializers"):
        _addons.apply = _apply_later


def _apply_later(context: Any, _apply: Any = _addons.apply) -> None:
    """What Ray (2.60) calls for each pickler's context, of which the part for Arrow is needed at once."""
    if any(package in sys.modules for package in _PACKAGES):
        _apply(context)
        return
    _arrow._register_custom_datasets_serializers(context)
    when_loaded(_PACKAGES, lambda: _apply(context))

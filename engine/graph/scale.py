"""How many subtasks the operators of a running job have been given, other than it was submitted with.

A `Scale` stands in the job's layout; a `ParallelismRequest` is what users ask for. Values; `rescaling` makes the one of
the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

ParallelismRequest: TypeAlias = int | Mapping[str, int]
"""What a rescale asks for: one number for all operators that set none themselves, or numbers by uid or name."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The parallelism of a job's operators.

    Args:
        default: of operators that set none themselves; None: as it was submitted.
        operators: by uid, of those that were rescaled by themselves; sorted.
        most: of any operator, while there is no room for more; None: there is, as far as is known.
    """

    default: int | None = None
    operators: tuple[tuple[str, int], ...] = ()
    most: int | None = None


def describe_request(wanted: ParallelismRequest) -> str:
    """What is asked for, in words.

    Example:
        >>> describe_request({"window": 3, "sink": 2}), describe_request(4)
        ('window to 3, sink to 2', 'to 4')
    """
    if isinstance(wanted, Mapping):
        return ", ".join(f"{name} to {parallelism}" for name, parallelism in wanted.items())
    return f"to {wanted}"

"""What is shown, as JSON has it: the border between typed values and documents.

The commands with `--json` call it, and the web server. It guarantees that a value has the same JSON everywhere.
"""

from __future__ import annotations

from typing import Any


def document(value: object) -> Any:
    """A dataclass, or whatever is made of them, as JSON has it: members by name, enums by value, tuples as lists.

    Example:
        >>> from penstock.engine.job.info import OperatorInfo
        >>> document(OperatorInfo("count", "totals"))
        {'name': 'count', 'uid': 'totals'}
    """
    from pydantic import TypeAdapter

    return TypeAdapter(type(value)).dump_python(value, mode="json")

"""What a JSON value can be, as the kernel tells `layouts`: plain numbers, since compiled code takes no enumeration."""

from __future__ import annotations

from typing import Final

NULL: Final = 0
TEXT: Final = 1
NUMBER: Final = 2
BOOLEAN: Final = 3
OTHER_TEXT: Final = 4
"""A text that is not ASCII."""

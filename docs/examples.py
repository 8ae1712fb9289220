"""Has the examples of docstrings shown as code: what stands under `Example:` is read like `Examples:`.

mkdocs.yml names it to the reader of docstrings (griffe), which knows the plural alone and takes the other for text.
"""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_HEADING: Final = re.compile(r"^(\s*)Example:[ \t]*$", re.MULTILINE)


class Examples(griffe.Extension):
    """Changes each docstring before it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _HEADING.sub(r"\1Examples:", obj.docstring.value)

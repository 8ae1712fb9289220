"""Halves of surrogate pairs, which JSON may have alone (`"\\ud83d"`), and no text that is stored.

The functions that make such texts call it.
"""

from __future__ import annotations


def storable(text: str) -> str:
    """The text, with `?` for each half, as Java writes it.

    Example:
        >>> storable("a\\ud83d"), storable("é")
        ('a?', 'é')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text

"""All scalar functions by name: what the binder looks calls up in, and the evaluation computes them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.tables.functions import (
    addresses,
    arithmetic,
    bitmaps,
    collections,
    comparison,
    hash_codes,
    json,
    json_texts,
    percentiles,
    strings,
    temporal,
    unix_times,
    urls,
    variants,
)
from penstock.tables.functions.signatures import ScalarFunction

_FAMILIES: Final = (
    *(arithmetic, comparison, strings, temporal, collections, percentiles, json, json_texts, variants),
    *(addresses, hash_codes, bitmaps, urls, unix_times),
)
SCALAR_FUNCTIONS: Final[Mapping[str, ScalarFunction]] = {
    function.name: function for family in _FAMILIES for function in family.FUNCTIONS
}
OF_OPERATORS: Final = frozenset(
    {
        *(name for name in SCALAR_FUNCTIONS if not name[0].isalpha()),
        *("AND", "OR", "NOT", "NEGATE", "LIKE", "SIMILAR", "ARRAY", "MAP", "ROW", "ELEMENT_AT", "FIELD"),
        *("IS_NULL", "IS_NOT_NULL", "IS_TRUE", "IS_FALSE", "IS_DISTINCT", "IS_NOT_DISTINCT"),
        *("PLUS_INTERVAL", "MINUS_INTERVAL", "ADD_INTERVALS", "SUBTRACT_INTERVALS", "MULTIPLY_INTERVAL"),
    }
)
"""Those that SQL writes with signs or words, and nobody calls by name."""

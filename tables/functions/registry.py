"""All scalar functions by name: what the binder looks calls up in, and the evaluation computes them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.tables.functions import (
    arithmetic,
    collections,
    comparison,
    json,
    json_texts,
    percentiles,
    strings,
    temporal,
    variants,
)
from penstock.tables.functions.signatures import ScalarFunction

SCALAR_FUNCTIONS: Final[Mapping[str, ScalarFunction]] = {
    function.name: function
    for family in (arithmetic, comparison, strings, temporal, collections, percentiles, json, json_texts, variants)
    for function in family.FUNCTIONS
}

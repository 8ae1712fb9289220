"""The names that SQL itself calls, which no function of the user may have.

`UserFunctions` asks for them. Each is in capitals.
"""

from __future__ import annotations

from typing import Final

from penstock.tables.bind.expression_binder import CONDITIONALS
from penstock.tables.bind.group_windows import BOUND_CALLS
from penstock.tables.bind.row_references import OF_ROWS
from penstock.tables.bind.table_functions import TABLE_FUNCTIONS
from penstock.tables.functions.aggregates import AGGREGATES, OVER_ONLY, RANKS
from penstock.tables.functions.registry import SCALAR_FUNCTIONS
from penstock.tables.parse.list_calls import OF_LISTS

_OF_THE_PARSER: Final = frozenset({"CURRENT_DATABASE", "DESCRIPTOR", "GROUPING_ID", "GROUP_ID", "ROW", "TRY_CAST"})

BUILT_IN: Final = frozenset().union(
    SCALAR_FUNCTIONS,
    AGGREGATES,
    RANKS,
    OVER_ONLY,
    CONDITIONALS,
    TABLE_FUNCTIONS,
    BOUND_CALLS,
    OF_LISTS,
    OF_ROWS,
    _OF_THE_PARSER,
)
"""All of them."""

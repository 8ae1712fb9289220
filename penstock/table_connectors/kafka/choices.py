"""What the options of Kafka's tables may be, for the tables, and for what makes sources and sinks of them."""

from __future__ import annotations

from typing import Final

from penstock.table_connectors.formats.options import DEBEZIUM, value_format
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable

STARTS: Final = ("group-offsets", "earliest-offset", "latest-offset", "timestamp", "specific-offsets")
ENDS: Final = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
PARTITIONERS: Final = ("default", "fixed", "round-robin")
"""What the options of modes and of the partitioner take."""


def is_changes(table: CatalogTable) -> bool:
    """Whether its records are changes, of which some take rows back."""
    return value_format(TableOptions(table))[0] == DEBEZIUM

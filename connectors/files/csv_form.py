"""How the rows of CSV files are written down: what stands between fields, around them, and in the first line.

The file source reads by it, and the file sink writes by it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.csv as pv

from penstock.connectors.records.csv_format import check_marks
from penstock.engine.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The form of the CSV files of a source or a sink.

    Args:
        delimiter: one ASCII character between fields.
        quote: one around fields, which is doubled within; None: there are none.
        escape: one before a character that is meant as it is; None: there is none.
        header: whether the first line names the columns; else fields are columns in the order of the schema.
        null_values: unquoted texts that mean null, to a reader.

    Raises:
        ConfigurationError: a mark that is no such character or has two meanings.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null_values: Sequence[str] = ("",)

    def __post_init__(self) -> None:
        check_marks("files", delimiter=self.delimiter, quote=self.quote, escape=self.escape)
        if not isinstance(self.header, bool):
            raise ConfigurationError(f"files: header must be True or False, not {self.header!r}")
        if isinstance(self.null_values, str) or not all(isinstance(text, str) for text in self.null_values):
            raise ConfigurationError(f"files: null_values must be a list of texts, not {self.null_values!r}")
        object.__setattr__(self, "null_values", tuple(self.null_values))

    @property
    def first_row(self) -> int:
        """The number of the first row, which is a row itself: 1 where no line with names stands before it."""
        return 2 if self.header else 1

    def placed(self, path: str, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{path}, row {row} (the header is row 1)" if self.header else f"{path}, row {row}"

    def parse_options(self, **others: Any) -> pv.ParseOptions:
        """Arrow's, with `others` beside them."""
        return pv.ParseOptions(
            delimiter=self.delimiter, quote_char=self.quote or False, escape_char=self.escape or False, **others
        )

    @property
    def dialect(self) -> dict[str, Any]:
        """The arguments of `csv.reader` and `csv.writer`."""
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "quoting": csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape,
        }

"""How messages about files say what is to be changed: by the arguments of a program, or the options of another front.

Readers of all formats take their words from here; tables of SQL bring words of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.errors import BadRowError, RecordError


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of one source.

    Args:
        owner: what stands before the name of a file, such as "table 'orders': "; nothing in programs.
        delimiter: says which character stands between fields of CSV, in the place of `{}`.
        no_header: says that no line with the names of the columns stands before the rows of CSV.
        columns: what to do about a file without one of the columns.
        foreign_text: what to do about CSV that is no UTF-8, but to convert it.
        bad_row: the error for a row that does not fit.
    """

    owner: str = ""
    delimiter: str = 'delimiter="{}"'
    no_header: str = "header=False"
    columns: str = (
        "Every file of a source needs all of its columns: correct the file, or read it as a source of its own"
    )
    foreign_text: str = ", or declare the column as 'binary' in `schema` and decode it in the program"
    bad_row: type[BadRowError] = BadRowError

    def placed(self, chunks: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a file, whose errors say to what it belongs."""
        try:
            yield from chunks
        except RecordError as error:
            raise self.of(error) from error

    def of(self, error: RecordError) -> RecordError:
        """The same error, which says to what the file belongs."""
        kind = self.bad_row if isinstance(error, BadRowError) else type(error)
        return kind(f"{self.owner}{error}")


OF_PROGRAMS: Final = Wording()
"""Those of `FileSource.of`."""

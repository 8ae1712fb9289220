"""What collected rows and tables look like in a shell and in a notebook.

`CollectResult` and `tables.Table` call it. Looking runs nothing and takes no rows away: shown is what has come.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import pyarrow as pa


def columns_text(columns: Mapping[str, object]) -> str:
    """Columns with their types on one line.

    Example:
        >>> columns_text({"word": "string", "n": "int64"})
        'word: string, n: int64'
    """
    return ", ".join(f"{name}: {type_}" for name, type_ in columns.items())


def columns_html(columns: Mapping[str, object], rows: Sequence[Sequence[object]], note: str) -> str:
    """A table of HTML: columns with their types, rows, and a line below.

    Args:
        columns: names and types.
        rows: values in the order of the columns.
        note: plain text.
    """
    heads = "".join(f"<th>{_cell(name)}<br><small>{_cell(type_)}</small></th>" for name, type_ in columns.items())
    lines = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>" if columns else ""
    return f"{table}<p>{_cell(note)}</p>"


def first_rows(batches: Sequence[pa.RecordBatch], most: int) -> list[list[object]]:
    """The values of the first rows, with a text in the place of one that Python cannot hold."""
    rows: list[list[object]] = []
    for batch in batches:
        head = batch.slice(0, most - len(rows))
        rows += [[_value(column[row]) for column in head.columns] for row in range(head.num_rows)]
        if len(rows) == most:
            break
    return rows


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return f"a {scalar.type} that Python cannot hold"


def _cell(value: object) -> str:
    return html.escape("" if value is None else str(value))

"""What the verbs of the streams check of names and of side outputs while the program is written.

`DataStream` calls it. It guarantees that a stream's columns, where they are known, are those that its rows will have.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engine.aggregates.accumulators import INTERNAL, plain_type
from penstock.engine.api.program import Program
from penstock.engine.errors import GraphError
from penstock.engine.functions import OutputTag
from penstock.engine.graph.logical import Edge
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.ordering import SortKey, check_sort_keys
from penstock.engine.state.keys.groups import check_key_column
from penstock.engine.texts import columns_text


def check_keys(verb: str, columns: Sequence[str], schema: SchemaOrUnknown) -> None:
    """Make sure that a stream can be divided by `columns`; snapshots have columns of their own beside the keys.

    Raises:
        GraphError: none, one twice, no text, a name as internal columns have it, no such column, or a type that makes
            no key.
    """
    if not columns:
        raise GraphError(f"{verb}: give at least one column")
    for column in columns:
        if not isinstance(column, str):
            raise GraphError(
                f"{verb} takes column names, not {column!r}; compute the key with with_columns(key=...) first"
            )
        if column.startswith(INTERNAL):
            raise GraphError(
                f"{verb}: the name {column!r} begins with {INTERNAL!r}, as only internal columns may; rename it"
            )
        if schema is not None:
            check_key_column(schema, column, verb)
    if len(set(columns)) < len(columns):
        raise GraphError(f"{verb}: a column is given twice: {', '.join(columns)}")


def sort_keys(
    columns: Sequence[str], descending: bool | Sequence[bool], schema: SchemaOrUnknown
) -> tuple[SortKey, ...]:
    """What to sort a stream by.

    Raises:
        GraphError: no column, one twice, no text, no such column, or one without order; another number of directions.
    """
    if not columns:
        raise GraphError("sort: give at least one column")
    for column in columns:
        if not isinstance(column, str):
            raise GraphError(
                f"sort takes column names, each as an argument, not {column!r}; compute a column with "
                "with_columns(...) first, and say descending=True for the reverse"
            )
    if len(set(columns)) < len(columns):
        raise GraphError(f"sort: a column is given twice: {', '.join(columns)}")
    given = descending if isinstance(descending, Sequence) else [descending] * len(columns)
    directions = list(given)
    if len(directions) != len(columns) or not all(isinstance(one, bool) for one in directions):
        raise GraphError(
            f"sort: descending is True or False, or a list of one for each of {', '.join(columns)}; not {descending!r}"
        )
    keys = tuple(map(SortKey, columns, directions))
    if schema is not None:
        check_sort_keys(schema, keys, "sort")
    return keys


def check_bounded(program: Program, edges: Sequence[Edge], verb: str, why: str, instead: str) -> None:
    """Make sure that what comes through `edges` ends.

    Args:
        verb: who needs the end.
        why: and what for.
        instead: what streams without end use.

    Raises:
        GraphError: a source has no end.
    """
    endless = program.graph.build().endless_source(edge.source for edge in edges)
    if endless is not None:
        raise GraphError(
            f"{verb}: {why} when the stream has ended, and source {endless!r} has no end; give it one (until, rows, no "
            f"monitor), or use {instead}"
        )


def side_schema(program: Program, node: int, tag: OutputTag) -> SchemaOrUnknown:
    """The columns of a side output: those that the operator gives it or, where it gives none, those of the tag.

    The operator learns what the tag declares, and holds the rows that are emitted to it.

    Raises:
        GraphError: the tag declares others than the operator, or another tag that is read, has.
    """
    sides = program.graph[node].sides
    if tag.name not in sides and tag.schema is not None:
        program.graph.side(node, tag.name, tag.schema)
        return tag.schema
    known = sides.get(tag.name)
    if known is not None and tag.schema is not None and not _are_alike(known, tag.schema):
        raise GraphError(
            f"get_side_output: {program.graph[node].where} has a side output {tag.name!r} of the columns "
            f"({columns_text(known)}), and the OutputTag declares ({columns_text(tag.schema)}); use one OutputTag for "
            "both, or declare no columns"
        )
    return known


def _are_alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two schemas have the same columns, however their values are encoded."""
    return [(f.name, plain_type(f.type)) for f in one] == [(f.name, plain_type(f.type)) for f in other]

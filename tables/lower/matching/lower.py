"""Lowers MATCH_RECOGNIZE onto its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError
from penstock.tables.lower.matching.operator import MatchRecognizeSpec
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import TimeAttribute

if TYPE_CHECKING:
    from penstock.tables.lower.lowering import Lowering

_MOST_VARIABLES: Final = 62


def lower_match(lowering: Lowering, node: p.MatchRecognize) -> DataStream:
    """The rows that the clause makes of matches.

    Raises:
        GraphError: more variables than there are bits in a number.
    """
    from penstock.tables.lower.lowering import schema_of

    if len(node.match.definitions) > _MOST_VARIABLES:
        raise GraphError(f"PATTERN has {len(node.match.definitions)} variables; {_MOST_VARIABLES} are supported")
    stream = lowering.stream(node.input)
    assert stream.schema is not None, "the columns of tables are known"
    names = [column.name for column in node.input.columns]
    is_event_time = node.time is TimeAttribute.ROWTIME
    spec = MatchRecognizeSpec(
        stream.schema,
        tuple(names[place] for place in node.partition),
        is_event_time,
        node.order,
        node.match,
        schema_of(node.columns),
        lowering.zone,
    )
    return add_changelog(spec, spec.schema, stream, timed=True)

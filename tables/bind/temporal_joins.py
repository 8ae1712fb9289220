"""Binds joins with FOR SYSTEM_TIME AS OF: lookups of a table as it is now, and of a table's versions by event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tables.bind.scopes import Scope
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import PlanNode

if TYPE_CHECKING:
    from penstock.tables.bind.query_binder import QueryBinder


def bind_as_of(
    binder: QueryBinder, join: q.Join, right: q.TableName, left: PlanNode, left_scope: Scope
) -> tuple[PlanNode, Scope]:
    """The plan and the names of such a join.

    Raises:
        SqlUnsupportedError: always so far.
    """
    raise binder.source.unsupported(
        right.at, "FOR SYSTEM_TIME AS OF is not supported; use the streams' lookup_join and temporal join"
    )

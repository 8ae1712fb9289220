"""The text of EXPLAIN: the plan as a tree, with the changes that flow, their keys, and what state stays."""

from __future__ import annotations

from penstock.engine.patterns.rows.syntax import shown
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode, shown_mode, state_bound
from penstock.tables.plan.keys import upsert_keys
from penstock.tables.plan.nodes import INSERT_ONLY, PlanNode, inputs_of
from penstock.tables.plan.shown import shown_expression
from penstock.tables.plan.state_size import state_bytes


def explained(node: PlanNode) -> str:
    """The plan, one line a node, those that feed it below it."""
    return "\n".join(_lines(node, 0))


def described(node: PlanNode) -> str:
    """A node by itself, such as `Scan(orders: id, item)`."""
    return f"{type(node).__name__}({_details(node)})"


def _lines(node: PlanNode, depth: int) -> list[str]:
    bound = state_bound(node)
    mode, keys = changelog_mode(node), upsert_keys(node) if node.columns else ()
    names = [column.name for column in node.columns]
    shown = [f"[{', '.join(names[place] for place in sorted(key))}]" for key in sorted(keys, key=sorted)]
    key = [] if mode == INSERT_ONLY or not shown else [f"upsertKeys=[{', '.join(shown)}]"]
    state = [] if bound is None else [f"state: {bound}; about {state_bytes(node)} bytes a row"]
    facts = ", ".join([f"changelogMode={shown_mode(mode)}", *key, *state])
    line = f"{'  ' * depth}{described(node)} {facts}"
    return [line, *(line for child in inputs_of(node) for line in _lines(child, depth + 1))]


def _details(node: PlanNode) -> str:
    names = [column.name for column in node.columns]
    match node:
        case p.Scan():
            return f"{node.table}: {', '.join(names)}"
        case p.Values():
            return f"{len(node.rows)} rows: {', '.join(names)}"
        case p.Filter():
            return shown_expression(node.condition, _names(node.input))
        case p.Project():
            below = _names(node.input)
            pairs = zip(node.expressions, names, strict=True)
            return ", ".join(_named(shown_expression(expression, below), name) for expression, name in pairs)
        case p.Watermarks():
            watermark = node.watermark
            shown_watermark = "SOURCE_WATERMARK()" if watermark is None else shown_expression(watermark, names)
            return f"{names[node.column]}: {shown_watermark}"
        case p.EventTime():
            return f"{names[node.column]}, {node.delay_ms} ms behind"
        case p.WindowTable():
            return node.window.describe()
        case p.WindowAggregate() | p.Aggregate():
            return _aggregate(node)
        case p.IntervalJoin():
            on = _pairs(node.keys, node.left, node.right)
            return f"{node.kind.value}, {on}, {node.lower_ms} ms to {node.upper_ms} ms"
        case p.Join():
            both = [*_names(node.left), *_names(node.right)]
            return f"{node.kind.value}, {'TRUE' if node.condition is None else shown_expression(node.condition, both)}"
        case p.MatchRecognize():
            partition = ", ".join(_names(node.input)[place] for place in node.partition)
            return f"partitionBy=[{partition}], pattern=[{shown(node.match.pattern)}], select=[{', '.join(names)}]"
        case p.Sort():
            return ", ".join(f"{names[key.column]}{' DESC' if key.descending else ''}" for key in node.order)
    return ", ".join(names)


def _aggregate(node: p.WindowAggregate | p.Aggregate) -> str:
    below = _names(node.input)
    keys = ", ".join(below[key] for key in node.keys)
    calls = ", ".join(_call(call, below) for call in node.calls)
    window = f", window=[{node.window.describe()}]" if isinstance(node, p.WindowAggregate) else ""
    return f"groupBy=[{keys}], select=[{calls}]{window}"


def _call(call: p.AggregateCall, names: list[str]) -> str:
    arguments = ", ".join(names[place] for place in call.arguments) or "*"
    distinct = "DISTINCT " if call.distinct else ""
    condition = "" if call.filter is None else f" FILTER {names[call.filter]}"
    return f"{call.name}({distinct}{arguments}){condition}"


def _pairs(keys: tuple[tuple[int, int], ...], left: PlanNode, right: PlanNode) -> str:
    return " AND ".join(f"{_names(left)[one]} = {_names(right)[other]}" for one, other in keys)


def _names(node: PlanNode) -> list[str]:
    return [column.name for column in node.columns]


def _named(shown: str, name: str) -> str:
    return name if shown == name else f"{shown} AS {name}"

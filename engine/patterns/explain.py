"""A compiled pattern as a text: which states there are, what leads from one to the next, and what bounds them.

`Pattern.explain` calls it. The text is stable for a pattern, so that a changed program can be compared with the old.
"""

from __future__ import annotations

from penstock.engine.durations import format_duration
from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind, Transition
from penstock.engine.patterns.machine import fits

_ARROWS = {Action.TAKE: "takes", Action.IGNORE: "skips", Action.PROCEED: "proceeds"}


def explained(pattern: CompiledPattern) -> str:
    """The automaton, state by state from the start on; states that nothing leads to are left out.

    Example:
        >>> from penstock import Pattern, col
        >>> print(Pattern.begin("a").where(col("x") > 1).next("b").within("5s").explain())
        Pattern a b
          matcher: columns, compiled where there are many rows
          within 5s from the first to the last event; after a match: no skip
          a (start)
            takes a if col(x) > 1 -> b
          b
            takes b -> match
    """
    lines = [f"Pattern {' '.join(pattern.variables)}", f"  matcher: {tier(pattern)}"]
    bound = (
        f"within {format_duration(pattern.within_ms)} from the first to the last event; " if pattern.within_ms else ""
    )
    lines.append(f"  {bound}after a match: {pattern.skip.describe()}")
    for state in _reached(pattern):
        if state.kind in (StateKind.FINAL, StateKind.STOP):
            continue
        lines.append(f"  {state.name}{_marks(pattern, state)}")
        lines.extend(f"    {_transition(transition)}" for transition in state.transitions)
    return "\n".join(lines)


def tier(pattern: CompiledPattern) -> str:
    """How the pattern is run: over RocksDB always by objects."""
    if fits(pattern):
        return "columns, compiled where there are many rows"
    if pattern.is_iterative:
        return "objects, asking functions of the match so far"
    if any(not leaf.is_expression for leaf in pattern.leaves):
        return "objects, asking functions of the row"
    return "objects, over answers of columns"


def _reached(pattern: CompiledPattern) -> list[State]:
    found: dict[int, State] = {}
    waiting = [pattern.states[pattern.start]]
    while waiting:
        state = waiting.pop()
        if state.number not in found:
            found[state.number] = state
            waiting.extend(transition.target for transition in reversed(state.transitions))
    return list(found.values())


def _marks(pattern: CompiledPattern, state: State) -> str:
    marks = []
    if state.kind is StateKind.START:
        marks.append("start")
    if state.kind is StateKind.PENDING:
        marks.append("a match when its time is over")
    if pattern.gaps_ms[state.number]:
        marks.append(f"within {format_duration(pattern.gaps_ms[state.number])} of the event before")
    return f" ({'; '.join(marks)})" if marks else ""


def _transition(transition: Transition) -> str:
    what = _ARROWS[transition.action]
    if transition.action is Action.TAKE:
        what += f" {transition.source.variable}"
    condition = str(transition.condition)
    target = {StateKind.FINAL: "match", StateKind.STOP: "stop"}.get(transition.target.kind, transition.target.name)
    if transition.target is transition.source:
        target = "stays"
    return f"{what}{'' if condition == 'true' else f' if {condition}'} -> {target}"

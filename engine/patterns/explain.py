"""A compiled pattern as a text or a picture: its states, what leads from one to the next, and what bounds them.

`Pattern.explain` and `Pattern.diagram` call it. Both are stable for a pattern, so that a changed program can be
compared with the old.
"""

from __future__ import annotations

from collections.abc import Container

from penstock.engine.durations import format_duration
from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind, Transition
from penstock.engine.patterns.machine import fits

_VERBS = {Action.TAKE: "takes", Action.IGNORE: "skips", Action.PROCEED: "proceeds"}
_ARROWS = {Action.TAKE: "-->", Action.IGNORE: "-.->", Action.PROCEED: "==>"}
_ENDS = {StateKind.FINAL: "match", StateKind.STOP: "stop"}
_ENTITIES = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "#": "#35;", ";": "#59;", "`": "#96;", "\n": " "}


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
    waiting = _looked_at_by_start(pattern)
    for state in _reached(pattern):
        if state.kind in (StateKind.FINAL, StateKind.STOP):
            continue
        lines.append(f"  {state.name}{_marks(pattern, state)}")
        lines.extend(f"    {_transition(transition, waiting)}" for transition in state.transitions)
    return "\n".join(lines)


def diagram(pattern: CompiledPattern) -> str:
    """The automaton as a flowchart in Mermaid's notation, which GitHub and notebooks draw.

    A thin arrow takes an event, a dotted one skips it, a thick one looks at the same event in another state. Of its
    documentation (mermaid.js.org/syntax/flowchart.html) it uses nodes, arrows and entity codes.

    Example:
        >>> from penstock import Pattern, col
        >>> print(Pattern.begin("a").where(col("x") > 1).next("b").diagram())
        flowchart LR
          s2(["a (start)"])
          s1("b")
          match((("match")))
          s2 -->|"takes a if col(x) #gt; 1"| s1
          s1 -->|"takes b"| match
    """
    states, waiting = _reached(pattern), _looked_at_by_start(pattern)
    lines = ["flowchart LR", *(f"  {_node(pattern, state)}" for state in states)]
    for state in states:
        for one in () if state.kind in _ENDS else state.transitions:
            label = _escaped(_what(one, waiting))
            lines.append(f'  {_place(state)} {_ARROWS[one.action]}|"{label}"| {_place(one.target)}')
    return "\n".join(lines)


def tier(pattern: CompiledPattern) -> str:
    """How the pattern is run: over RocksDB always by objects."""
    if fits(pattern):
        return "columns, compiled where there are many rows"
    if pattern.is_iterative:
        return "objects, asking functions of the match so far"
    if any(not leaf.is_columnar for leaf in pattern.leaves):
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


def _looked_at_by_start(pattern: CompiledPattern) -> set[int]:
    """The numbers of the states in which what waits for a first event looks at each event, and is not stopped."""
    found: set[int] = set()
    waiting = [pattern.states[pattern.start]]
    while waiting:
        state = waiting.pop()
        if state.number not in found:
            found.add(state.number)
            waiting.extend(way.target for way in state.transitions if way.action is Action.PROCEED)
    return found


def _marks(pattern: CompiledPattern, state: State) -> str:
    marks = []
    if state.kind is StateKind.START:
        marks.append("start")
    if state.kind is StateKind.PENDING:
        marks.append("a match when its time is over")
    if pattern.gaps_ms[state.number]:
        marks.append(f"within {format_duration(pattern.gaps_ms[state.number])} of the event before")
    return f" ({'; '.join(marks)})" if marks else ""


def _transition(transition: Transition, waiting: Container[int]) -> str:
    target = _ENDS.get(transition.target.kind, transition.target.name)
    if transition.target is transition.source:
        target = "stays"
    return f"{_what(transition, waiting)} -> {target}"


def _what(transition: Transition, waiting: Container[int]) -> str:
    what = _VERBS[transition.action]
    if transition.action is Action.TAKE:
        what += f" {transition.source.variable}"
    condition = str(transition.condition)
    if condition != "true":
        what += f" if {condition}"
    is_passed_over = transition.target.kind is StateKind.STOP and transition.source.number in waiting
    return f"{what}, once a match has begun" if is_passed_over else what


def _place(state: State) -> str:
    return _ENDS.get(state.kind, f"s{state.number}")


def _node(pattern: CompiledPattern, state: State) -> str:
    if state.kind in _ENDS:
        return f'{_place(state)}((("{_ENDS[state.kind]}")))'
    label = f'"{_escaped(state.name + _marks(pattern, state))}"'
    return f"{_place(state)}([{label}])" if state.kind is StateKind.START else f"{_place(state)}({label})"


def _escaped(text: str) -> str:
    """Text for a label: what Mermaid or a browser would read as more than text goes as an entity."""
    return "".join(_ENTITIES.get(letter, letter) for letter in text)

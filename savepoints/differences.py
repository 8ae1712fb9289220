"""What differs between two savepoints (or retained checkpoints): operators, states, rows.

Users and `penstock savepoint diff` call it. Rows are compared by Arrow's hash joins, key groups by key groups, so that
neither state has to fit into memory as a whole, and no row becomes a Python object but those of the samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from penstock.savepoints.compare import compare
from penstock.savepoints.layout import StateKind
from penstock.savepoints.reader import SavedOperator, Savepoint, read
from penstock.savepoints.saved_state import SavedState
from penstock.savepoints.shown import json_value, python_rows, rendered, sized, value_text

SAMPLE: Final = 5
"""How many rows of each sort a comparison shows of each state, unless told."""
_CHUNK_ROWS: Final = 2**20
_LONGEST_VALUE: Final = 80
"""So many characters of it are shown."""


@dataclass(frozen=True, slots=True)
class StateDiff:
    """How one state differs.

    Args:
        uid, state: which one.
        kind: what it holds.
        rows: before and after.
        nbytes: of its files, before and after.
        added, removed, changed, unchanged: numbers of rows. Rows are the same one where their keys (and window, and key
            of the map) are; rows of lists without keys and of joins are added or removed, never changed.
        columns: the columns with their types before and after, where these differ; else None.
        samples: some of the rows as dicts: `"added"`, `"removed"`, and `"changed"` as pairs of before and after.
    """

    uid: str
    state: str
    kind: StateKind
    rows: tuple[int, int]
    nbytes: tuple[int, int]
    added: int
    removed: int
    changed: int
    unchanged: int
    columns: tuple[str, str] | None = None
    samples: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether all rows are the same."""
        return not (self.added or self.removed or self.changed or self.columns)


@dataclass(frozen=True, slots=True)
class SavepointDiff:
    """How one savepoint differs from another.

    Args:
        before, after: where they are.
        operators_added, operators_removed: uids that are in one of the two only.
        states_added, states_removed: (uid, state) that are in one only, of operators that are in both.
        states: how the states differ that are in both, those that do not differ among them.
        unread: uids of operators whose keyed state is in files of their backend, in one of the two at least, and not in
            the same ones in both: its rows are not compared.
    """

    before: str
    after: str
    operators_added: Sequence[str]
    operators_removed: Sequence[str]
    states_added: Sequence[tuple[str, str]]
    states_removed: Sequence[tuple[str, str]]
    states: Sequence[StateDiff]
    unread: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both hold the same state. Of operators in `unread` that is not known, and it is False."""
        only = (self.operators_added, self.operators_removed, self.states_added, self.states_removed, self.unread)
        return not any(only) and all(state.is_empty for state in self.states)

    def describe(self) -> str:
        """The difference as text for people."""
        return rendered(self.__rich__())

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = [Text(f"before: {self.before}\nafter:  {self.after}")]
        parts += [Text(line) for line in self._only()]
        table = Table("operator", "state", "kind", "rows", "added", "removed", "changed", "bytes", box=None)
        for state in self.states:
            table.add_row(
                Text(state.uid),
                Text(state.state),
                state.kind.value,
                _arrow(*map(str, state.rows)),
                *(str(count) if count else "-" for count in (state.added, state.removed, state.changed)),
                _arrow(*map(sized, state.nbytes)),
            )
        if self.states:
            parts.append(table)
        parts += [Text(line) for state in self.states for line in _sample_lines(state)]
        if self.is_empty:
            parts.append(Text("both hold the same state"))
        return Group(*parts)

    def _only(self) -> Iterator[str]:
        yield from (f"+ operator {uid}" for uid in self.operators_added)
        yield from (f"- operator {uid}" for uid in self.operators_removed)
        yield from (f"+ state {uid} / {name}" for uid, name in self.states_added)
        yield from (f"- state {uid} / {name}" for uid, name in self.states_removed)
        unread = (
            "its keyed state is in files of its backend, which are not the same; take savepoints to compare its rows"
        )
        yield from (f"? operator {uid}: {unread}" for uid in self.unread)

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON has it (values that JSON lacks as text)."""
        return {
            "before": self.before,
            "after": self.after,
            "is_empty": self.is_empty,
            "operators_added": list(self.operators_added),
            "operators_removed": list(self.operators_removed),
            "states_added": [{"uid": uid, "state": name} for uid, name in self.states_added],
            "states_removed": [{"uid": uid, "state": name} for uid, name in self.states_removed],
            "states": [_state_dict(state) for state in self.states],
            "unread": list(self.unread),
        }


def diff(before: str | Path | Savepoint, after: str | Path | Savepoint, *, sample: int = SAMPLE) -> SavepointDiff:
    """How `after` differs from `before`.

    Args:
        before, after: savepoints or retained checkpoints, or where they are.
        sample: how many rows of each sort to show of each state.

    Raises:
        CheckpointError: one of them cannot be found.
        CheckpointCorruptError: a file is not as it was written (names it).

    Example:
        `print(diff("file:///savepoints/monday", "file:///savepoints/tuesday").describe())`
    """
    one, other = (given if isinstance(given, Savepoint) else read(given) for given in (before, after))
    operators = [{operator.uid: operator for operator in savepoint.operators} for savepoint in (one, other)]
    states_added, states_removed, states, unread = [], [], [], []
    for uid in operators[0]:
        if uid not in operators[1]:
            continue
        held = [_states(operators[side][uid]) for side in (0, 1)]
        states_added += [(uid, name) for name in held[1] if name not in held[0]]
        states_removed += [(uid, name) for name in held[0] if name not in held[1]]
        states += [_diff_states(held[0][name], held[1][name], sample) for name in held[0] if name in held[1]]
        if operators[0][uid].native_files != operators[1][uid].native_files:
            unread.append(uid)
    return SavepointDiff(
        one.path,
        other.path,
        [uid for uid in operators[1] if uid not in operators[0]],
        [uid for uid in operators[0] if uid not in operators[1]],
        states_added,
        states_removed,
        states,
        unread,
    )


def _states(operator: SavedOperator) -> dict[str, SavedState]:
    return {state.name: state for state in operator.all_states}


def _diff_states(before: SavedState, after: SavedState, sample: int) -> StateDiff:
    counts = {"added": 0, "removed": 0, "changed": 0}
    samples: dict[str, list[Any]] = {name: [] for name in counts}
    unchanged = 0
    for one, other in _chunks(before, after):
        found = compare(one, other, before.identity if before.identity == after.identity else ())
        unchanged += found.unchanged
        for name, tables in (("added", [found.added]), ("removed", [found.removed])):
            counts[name] += tables[0].num_rows
            samples[name] += python_rows(tables[0].slice(0, sample - len(samples[name])))
        counts["changed"] += found.before.num_rows
        wanted = sample - len(samples["changed"])
        pairs = (python_rows(table.slice(0, wanted)) for table in (found.before, found.after))
        samples["changed"] += [list(pair) for pair in zip(*pairs, strict=True)]
    columns = tuple(", ".join(f"{f.name}: {f.type}" for f in state.schema) for state in (before, after))
    return StateDiff(
        uid=before.uid,
        state=before.name,
        kind=before.kind,
        rows=(unchanged + counts["changed"] + counts["removed"], unchanged + counts["changed"] + counts["added"]),
        nbytes=(before.nbytes, after.nbytes),
        unchanged=unchanged,
        columns=None if columns[0] == columns[1] else (columns[0], columns[1]),
        samples={name: rows for name, rows in samples.items() if rows},
        **counts,
    )


def _chunks(before: SavedState, after: SavedState) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The rows of both, such that rows with the same key come together."""
    groups = before.key_groups
    if not groups or groups != after.key_groups:
        yield before.to_arrow(), after.to_arrow()
        return
    pieces = max(1, min(len(groups), -(-max(before.stored_rows, after.stored_rows) // _CHUNK_ROWS)))
    bounds = [len(groups) * piece // pieces for piece in range(pieces + 1)]
    shares = [range(start, stop) for start, stop in itertools.pairwise(bounds)]
    yield from zip(before.shares(shares), after.shares(shares), strict=True)


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _sample_lines(state: StateDiff) -> Iterator[str]:
    if state.is_empty:
        return
    yield f"{state.uid} / {state.state}:"
    if state.columns is not None:
        yield f"  columns ({state.columns[0]}) -> ({state.columns[1]})"
    shown: Sequence[tuple[str, str, Callable[[Any], str]]] = (
        ("added", "+", _row_text),
        ("removed", "-", _row_text),
        ("changed", "~", lambda pair: f"{_row_text(pair[0])} -> {_row_text(pair[1])}"),
    )
    totals = {"added": state.added, "removed": state.removed, "changed": state.changed}
    for name, sign, text in shown:
        rows = state.samples.get(name, ())
        yield from (f"  {sign} {text(row)}" for row in rows)
        if len(rows) < totals[name]:
            yield f"  {sign} ... {totals[name] - len(rows)} more"


def _row_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_cut(value_text(value))}" for name, value in row.items())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _state_dict(state: StateDiff) -> dict[str, Any]:
    return {
        "uid": state.uid,
        "state": state.state,
        "kind": state.kind.value,
        "rows": list(state.rows),
        "bytes": list(state.nbytes),
        "added": state.added,
        "removed": state.removed,
        "changed": state.changed,
        "unchanged": state.unchanged,
        "columns": None if state.columns is None else list(state.columns),
        "samples": json_value(state.samples),
    }

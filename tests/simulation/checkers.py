"""What must hold of committed rows, whatever made them: each checker says what is wrong, and knows no engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]
_TOLD = 3


def differences(rows: Rows, columns: Sequence[str], expected: Iterable[tuple[Any, ...]]) -> list[str]:
    """Each expected row exactly once, and no other."""
    seen, due = Counter(tuple(row[name] for name in columns) for row in rows), Counter(expected)
    lost, extra = due - seen, seen - due
    found = [(f"{count} x {row} missing") for row, count in sorted(lost.items())[:_TOLD]]
    found += [(f"{count} x {row} too many") for row, count in sorted(extra.items())[:_TOLD]]
    return [f"{sum(lost.values())} rows missing, {sum(extra.values())} too many: {'; '.join(found)}"] if found else []


def missing(rows: Rows, columns: Sequence[str], expected: Iterable[tuple[Any, ...]]) -> list[str]:
    """Each expected row at least once, and none that nobody wrote."""
    seen, due = {tuple(row[name] for name in columns) for row in rows}, set(expected)
    found = [f"{row} missing" for row in sorted(due - seen)[:_TOLD]]
    return found + [f"{row} was never written" for row in sorted(seen - due)[:_TOLD]]


def broken_sequences(rows: Rows, counts: Mapping[int, int] | None = None, key: str = "key") -> list[str]:
    """The numbers of each key are 1, 2, 3, ... without a gap or a repetition; up to `counts`, where they are given."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        seen[row[key]].append(row["number"])
    keys = sorted(seen if counts is None else {*seen, *counts})
    return [
        f"key {one}: {sorted(seen[one])} instead of 1..{counts[one] if counts else 'n'}"
        for one in keys
        if sorted(seen[one]) != list(range(1, 1 + (len(seen[one]) if counts is None else counts.get(one, 0))))
    ]

"""Base against change: `python perf/compare.py OLD NEW`, from what `perf/run.py --save` has kept.

OLD and NEW are files or folders of them. Each figure of a variant that both have is a line: the medians of both, the
change, and whether it is more than the spread of either's readings, below which it says nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

FIGURES: Final = (("events_per_second", "rows/s"), ("events_per_cpu_second", "rows/CPU-s"), ("peak_rss_mb", "peak MB"))
_LATENCY: Final = ("p50", "p99")

Line: TypeAlias = Mapping[str, Any]
"""One variant as `--json` prints it."""


class CompareError(Exception):
    """There is nothing to compare: a file is missing or not of ours, or no variant is in both."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one variant, before and after.

    Args:
        noise: the larger spread of the two; 0 where no spread is known.
    """

    variant: str
    figure: str
    old: float
    new: float
    noise: float

    @property
    def relative(self) -> float:
        """By how much the new one is larger, as a share of the old one."""
        return self.new / self.old - 1

    @property
    def says_something(self) -> bool:
        """Whether the change is more than what readings of one and the same thing differ by."""
        return abs(self.relative) > self.noise

    def text(self) -> str:
        """A line of the output."""
        verdict = "" if self.says_something else f"  (within the spread of {self.noise:.0%})"
        values = f"{self.old:>12,.4g} {self.new:>12,.4g} {self.relative:>+8.1%}"
        return f"{self.variant:<44} {self.figure:>26} {values}{verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what has changed; 1 where nothing can be compared."""
    parser = argparse.ArgumentParser(prog="perf/compare.py", description="Base against change, from saved results.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    try:
        found = list(changes(read(given.old), read(given.new)))
        if not found:
            raise CompareError(f"{given.old} and {given.new} have no variant in common")
    except CompareError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    for change in found:
        print(change.text())
    return 0


def read(path: Path) -> list[Line]:
    """The results in a file, or in all files of a folder, the newest last.

    Raises:
        CompareError: there is none.
    """
    files = sorted(path.glob("*.json"), key=lambda file: file.stem[-17:]) if path.is_dir() else [path]
    lines: list[Line] = []
    for file in files:
        try:
            lines += json.loads(file.read_text())["results"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CompareError(f"{file}: no results of perf/run.py --save ({error})") from error
    if not lines:
        raise CompareError(f"{path} has no results")
    return lines


def changes(old: Sequence[Line], new: Sequence[Line]) -> Iterator[Change]:
    """The figures of variants that are in both; of several results for a variant, the last one counts."""
    before, after = ({_name(line): line for line in lines} for lines in (old, new))
    for name in [name for name in before if name in after]:
        noise = max(before[name]["spread"] or 0.0, after[name]["spread"] or 0.0)
        first, second = _figures(before[name]), _figures(after[name])
        for figure, value in first.items():
            if value and figure in second:
                yield Change(name, figure, value, second[figure], noise)


def _name(line: Line) -> str:
    peer = f" / {line['peer']['name'].split()[0]}" if "peer" in line else ""
    return f"{line['name']}: {line['variant']}{peer}"


def _figures(line: Line) -> dict[str, float]:
    ours = line["ours"]
    named = {name: ours.get(key) for key, name in FIGURES}
    named |= {f"{quantile} ms": (ours.get("latency_ms") or {}).get(quantile) for quantile in _LATENCY}
    named["ratio"] = line.get("ratio")
    own = line.get("figures") or {}
    named |= {name: figure["median"] if isinstance(figure, Mapping) else figure for name, figure in own.items()}
    return {name: value for name, value in named.items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())

"""Command line: `python -m tests.property.cuts --seeds 1000 --seed 7` runs more than the tests do."""

from __future__ import annotations

import argparse
from collections import Counter

from tests.property.cuts.checks import check
from tests.property.cuts.sizes import lowered


def main() -> None:
    """Check seeds; every one that is wrong is told, with few steps that show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--refused", action="store_true")
    given = parser.parse_args()
    kinds: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.seeds):
        verdict = check(seed, lowered)
        kinds[verdict.kind] += 1
        if verdict.kind == "wrong" or (given.refused and verdict.kind == "refused"):
            print(f"--- {verdict.kind} {verdict.text}\n{verdict.detail}", flush=True)  # noqa: T201
    print(f"{given.seeds} seeds from {given.seed}: {dict(kinds)}")  # noqa: T201
    raise SystemExit(bool(kinds["wrong"]))


if __name__ == "__main__":
    main()

"""Compare random patterns and MATCH_RECOGNIZE with Flink: `python -m tests.flink [--chains N] [--clauses N]`.

Run by hand, where Flink is installed (`make bench-peers ARGS=flink`). Asks for the cases of `surprises.py`, too. Prints
each case that differs, and exits with 1 where there is one; `--save FILE` keeps all cases with Flink's answers, as
`tests/data/flink-answers.json.gz` has those that are random, and `tests/data/flink-surprises.json.gz` the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.engine.errors import PatternError, SqlError
from perf.peers.engines import flink_cases
from tests.engine.patterns.cases import Case
from tests.flink import chains, clauses, surprises

_FAILED: Final = "the job has failed"
"""What stands for an exception in Flink's operator, or an automaton that does not end: there is nothing to compare."""


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.flink", description=__doc__)
    parser.add_argument("--chains", type=int, default=200, help="how many patterns (default 200)")
    parser.add_argument("--clauses", type=int, default=100, help="how many MATCH_RECOGNIZE (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--save", type=Path, help="a file for the cases and Flink's answers")
    given = parser.parse_args()
    cases = [chains.random_chain(given.first + number) for number in range(given.chains)]
    for case in filter(chains.may_not_end, cases):
        case["alone"] = True
    cases += [clauses.random_clause(given.first + number) for number in range(given.clauses)]
    cases += [*surprises.SURPRISES, *surprises.CLAUSES]
    answers = _answered(cases)
    wrong = [_difference(case, answer) for case, answer in zip(cases, answers, strict=True)]
    for text in filter(None, wrong):
        sys.stdout.write(f"{text}\n")
    failed = sum(answer["error"] == _FAILED for answer in answers)
    refused = sum(answer["error"] is not None for answer in answers) - failed
    rows = sum(len(answer["rows"]) for answer in answers)
    differ = len(list(filter(None, wrong)))
    said = f"Flink refuses {refused}, fails in {failed}, and gives {rows} rows for the others"
    sys.stdout.write(f"{len(cases)} cases: {said}; {differ} differ\n")
    if given.save is not None:
        kept = [{**case, "answer": answer} for case, answer in zip(cases, answers, strict=True)]
        given.save.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    return int(differ > 0)


def _answered(cases: list[Case]) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as name:
        asked, answered = Path(name) / "cases.json", Path(name) / "answers.json"
        asked.write_text(json.dumps(cases))
        subprocess.run(flink_cases("Main", str(asked), str(answered)), check=True)
        loaded: list[Case] = json.loads(answered.read_text())
        return loaded


def _difference(case: Case, answer: Case) -> str | None:
    """What differs, or None."""
    if answer["error"] == _FAILED:
        return None
    try:
        here = (clauses if "clause" in case else chains).found_here(case)
    except (PatternError, SqlError) as error:
        return None if answer["error"] is not None else f"{json.dumps(case)}\n  refused here: {error}"
    if answer["error"] is not None:
        # Clauses may have more here, and what it finds is said where the case is one of those that differ.
        if "here" in case and here != case["here"]:
            return f"{json.dumps(case)}\n  found here: {here}"
        return None if "clause" in case else f"{json.dumps(case)}\n  refused by Flink: {answer['error']}"
    flink = sorted(answer["rows"])
    if "here" in case:
        return None if here == case["here"] != flink else f"{json.dumps(case)}\n  found here: {here}, by Flink: {flink}"
    if here == flink:
        return None
    missing = [one for one in flink if one not in here]
    more = [one for one in here if one not in flink]
    return f"{json.dumps(case)}\n  only Flink: {missing}\n  only here: {more}\n  of {len(flink)} and {len(here)}"


if __name__ == "__main__":
    sys.exit(main())

"""Have Flink's autoscaler decide of random traces: `python -m tests.flink.autoscaler [--traces N] [--save FILE]`.

Run by hand; it takes Maven, which fetches Flink's library, and a JDK. Prints where ours decides otherwise than
`differences.py` says that it does, and exits with 1 then. `--save FILE` keeps traces and answers, as
`tests/data/flink-autoscaler.json.gz` has them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.flink.autoscaler.differences import difference, kinds
from tests.flink.autoscaler.traces import Trace, random_trace

_HERE = Path(__file__).parent


def main() -> int:
    """Ask, compare, keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.flink.autoscaler", description=__doc__)
    parser.add_argument("--traces", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--save", type=Path, help="a file for the traces and Flink's answers")
    given = parser.parse_args()
    answered = _answered([random_trace(given.first + number) for number in range(given.traces)])
    wrong = [text for text in map(difference, answered) if text]
    sys.stdout.write("".join(f"{text}\n" for text in wrong))
    counted = Counter(kind for trace in answered for kind in kinds(trace))
    told = ", ".join(f"{kind}: {count}" for kind, count in counted.most_common())
    sys.stdout.write(f"{len(answered)} traces, {len(wrong)} differ; tasks by what was decided: {told}\n")
    if given.save is not None:
        given.save.write_bytes(gzip.compress(json.dumps(answered).encode(), mtime=0))
    return int(bool(wrong))


def _answered(traces: list[Trace]) -> list[Trace]:
    """The traces, each with Flink's `answer`."""
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as name:
        folder = Path(name)
        listed, asked, answers = (folder / one for one in ("classpath", "traces.json", "answers.json"))
        maven = ["mvn", "--batch-mode", "--quiet", "-f", str(_HERE / "pom.xml"), "dependency:build-classpath"]
        subprocess.run([*maven, f"-Dmdep.outputFile={listed}"], check=True)
        classpath = f"{listed.read_text().strip()}:{folder}"
        subprocess.run(["javac", "-d", name, "-cp", classpath, str(_HERE / "Decisions.java")], check=True)
        asked.write_text(json.dumps(traces))
        subprocess.run(["java", "-cp", classpath, "Decisions", str(asked), str(answers)], check=True)
        found = json.loads(answers.read_text())
    return [{**trace, "answer": answer} for trace, answer in zip(traces, found, strict=True)]


if __name__ == "__main__":
    raise SystemExit(main())

"""What is decided by a job's status, an attempt or a checkpoint's number is decided in `engine/job` and
`engine/checkpointing`: the tree says so.

Elsewhere such a comparison is a defect, but for those listed here, each with what it does instead of deciding.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("engine", "actors", "connectors", "savepoints", "console", "tables", "penstock")
NOT_ASKED = ("engine/job/", "engine/checkpointing/", "penstock/testing/")
"""Where it is decided; and the test kit, which looks at jobs from without."""
COMPARED = {
    # Who is called, or gets rows, passes over what is meant for another attempt.
    "engine/local/execution.py": 1,
    "engine/local/runtime.py": 2,
    "actors/subtask.py": 1,
    "actors/client.py": 5,
    # What people and programs are told of a job: words, reports, errors.
    "actors/registry.py": 2,
    "console/run.py": 1,
    "penstock/client.py": 2,
    "penstock/web/observed.py": 2,
    # Which run of a name has left something to resume from.
    "savepoints/runs.py": 1,
    # Within one subtask: in which order barriers pass it, and what waits for which.
    "engine/exchange/outputs.py": 1,
    "engine/task/barriers.py": 6,
    "engine/task/checkpoints.py": 8,
    "engine/task/input_gate.py": 2,
    "engine/task/source_head.py": 4,
    # Rows, transactions and segments that belong to checkpoints up to one: final, committed or needed no more.
    "engine/client_rows.py": 1,
    "engine/operators/sink.py": 2,
    "actors/results.py": 1,
    "connectors/kafka/committer.py": 1,
    "connectors/kafka/writers.py": 1,
    "connectors/lakes/delta.py": 1,
    "connectors/lakes/iceberg.py": 1,
    "savepoints/history.py": 2,
    # Whether files are what they should be.
    "savepoints/store.py": 2,
}
"""How many such comparisons a file has: a new one is a decision of the brain, or is listed."""


def _names(node: ast.AST) -> bool:
    """Whether an expression is a status of a job, or the number of an attempt or a checkpoint."""
    match node:
        case ast.Attribute(value=ast.Name(id="JobStatus")) | ast.Attribute(attr="attempt" | "checkpoint" | "completed"):
            return True
        case ast.Name(id="attempt" | "checkpoint" | "completed"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="attempts") | ast.Name(id="attempts"), attr="number"):
            return True
        case ast.Attribute(value=inner, attr="value"):
            return _names(inner)
        case ast.Tuple(elts=several) | ast.Set(elts=several) | ast.List(elts=several):
            return any(map(_names, several))
        case _:
            return False


def _is_none(node: ast.AST) -> bool:
    """Whether something is only asked whether it is there."""
    return isinstance(node, ast.Constant) and node.value is None


def _comparisons(source: str) -> Iterator[int]:
    """The lines in which one of them is compared."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(_names, [left, *others])):
                if not any(map(_is_none, others)):
                    yield node.lineno
            case ast.MatchValue(value=value) if _names(value):
                yield node.value.lineno


def test_comparisons_are_found() -> None:
    source = """
if brain.status is JobStatus.RUNNING: pass
if status in (JobStatus.FAILED, JobStatus.FINISHED): pass
if running.attempt != attempt: pass
while brain.attempts.number <= seen: pass
if brain.completed < checkpoint: pass
if deploy.checkpoint is None: pass
text == JobStatus.FAILED.value
match status:
    case JobStatus.FAILED: pass
shown = JobStatus.FAILED
"""
    assert sorted(_comparisons(source)) == [2, 3, 4, 5, 6, 8, 10]


def test_no_status_attempt_or_checkpoint_is_compared_where_nothing_may_be_decided() -> None:
    found: Counter[str] = Counter()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(NOT_ASKED):
                found[name] += len(list(_comparisons(path.read_text())))
    assert +found == Counter(COMPARED)

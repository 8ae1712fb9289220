"""What is decided by a job's status, an attempt or a checkpoint's number is decided in `engine/job` and
`engine/checkpointing`: the tree says so.

Elsewhere such a comparison is a defect, but for those listed here, each with what it does instead of deciding. To ask
the brain (`brain.ended`) is no comparison: then the brain decides.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("engine", "actors", "connectors", "savepoints", "console", "tables", "penstock")
NOT_ASKED = ("engine/job/", "engine/checkpointing/", "penstock/testing/")
"""Where it is decided; and the test kit, which looks at jobs from without."""
COMPARED = {
    # What an instruction of the brain says is carried out: with the checkpoint that it names, if it names one.
    "engine/local/checkpoints.py": 2,
    "engine/local/deployment.py": 1,
    "actors/brain_shell.py": 2,
    "actors/checkpoints.py": 2,
    # Who is called, or gets rows, passes over what is meant for another attempt, or for none.
    "engine/local/execution.py": 1,
    "engine/local/manager.py": 1,
    "engine/local/runtime.py": 2,
    "actors/subtask.py": 1,
    "actors/client.py": 6,
    "actors/log_writer.py": 1,
    # A job in batch mode has no attempts, no checkpoints and no brain: it ends once.
    "actors/spark/batch_job.py": 6,
    # What people and programs are told of a job: words, reports, errors, lists.
    "actors/manager_start.py": 1,
    "actors/registry.py": 4,
    "console/job_views.py": 5,
    "console/jobs.py": 1,
    "console/run.py": 1,
    "console/web_commands.py": 1,
    "penstock/client.py": 6,
    "penstock/live_view.py": 3,
    "penstock/web/cluster.py": 1,
    "penstock/web/collector.py": 2,
    "penstock/web/export/exporter.py": 1,
    "penstock/web/export/spans.py": 1,
    "penstock/web/flink.py": 7,
    "penstock/web/flink_metrics.py": 3,
    "penstock/web/observed.py": 10,
    "penstock/web/own_routes.py": 2,
    "penstock/web/prometheus.py": 2,
    "penstock/web/requests.py": 1,
    "penstock/web/rescales.py": 2,
    "penstock/web/serve.py": 2,
    "penstock/web/stored_jobs.py": 1,
    "penstock/web/why_slow.py": 1,
    # Which run of a name has left something to resume from.
    "savepoints/runs.py": 1,
    # Within one subtask: in which order barriers pass it, and what waits for which.
    "engine/exchange/outputs.py": 1,
    "engine/task/barriers.py": 6,
    "engine/task/checkpoints.py": 9,
    "engine/task/input_gate.py": 2,
    "engine/task/source_head.py": 4,
    # What was measured of another attempt is forgotten.
    "engine/autoscaler/autoscaler.py": 1,
    # Rows, transactions and segments that belong to checkpoints up to one: final, committed or needed no more.
    "engine/client_rows.py": 1,
    "engine/operators/sink.py": 2,
    "actors/results.py": 1,
    "connectors/kafka/committer.py": 1,
    "connectors/kafka/writers.py": 2,
    "connectors/lakes/delta.py": 1,
    "connectors/lakes/iceberg.py": 1,
    "savepoints/history.py": 2,
    # Whether files are what they should be, and are there.
    "savepoints/store.py": 5,
    # An attempt to match or to write, the status of a watermark or of HTTP: other things by the same words.
    "engine/task/chain.py": 1,
    "penstock/web/security.py": 1,
    "savepoints/storage.py": 1,
    "tables/lower/matching/object_partitions.py": 2,
}
"""How many such comparisons a file has: a new one is a decision of the brain, or is listed."""
WORDS = frozenset({"attempt", "checkpoint", "completed", "epoch"})
TEXT = re.compile(r'"""[\s\S]*?"""|#.*')
ASKED = re.compile(
    r"^(?=.*(?:attempt|checkpoint|completed|epoch|status))(?=.*(?:[=!<>]=|[<>\[]|\b(?:is|in|if|while|assert|case)\b))",
    re.M,
)
"""A line that may decide something, in a source without its texts: few files have one."""


class _Finder(ast.NodeVisitor):
    """Gathers where something is decided by a status or a number, by comparing it or by asking whether it is there.

    Args:
        words: the last words of names that mean one.
    """

    def __init__(self, words: frozenset[str]) -> None:
        self._words = words
        self._others: frozenset[str] = frozenset()
        """Further names of such values, in the function that is looked at."""
        self.found: set[tuple[int, int]] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._others
        self._others |= {name for part in ast.walk(node) for name in self._named_anew(part)}
        self.generic_visit(node)
        self._others = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Compare(self, node: ast.Compare) -> None:
        if any(map(self._means_one, [node.left, *node.comparators])):
            self._find(node)
        self.generic_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        if self._means_one(node.value):
            self._find(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Attribute) and node.slice.attr == "status" and "status" in self._words:
            self._find(node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp | ast.Assert) -> None:
        self._ask(node.test)
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_Assert = visit_If

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._ask(condition)
        self.generic_visit(node)

    def _ask(self, condition: ast.expr) -> None:
        match condition:
            case ast.BoolOp(values=parts):
                for part in parts:
                    self._ask(part)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                self._ask(part)
            case _ if self._means_one(condition):
                self._find(condition)

    def _find(self, node: ast.expr) -> None:
        self.found.add((node.lineno, node.col_offset))

    def _named_anew(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._means_one(value):
                yield name
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if self._means_one(value):
                yield name

    def _means_one(self, node: ast.AST) -> bool:
        """Whether an expression is a status of a job, or the number of an attempt, a checkpoint or a manager."""
        match node:
            case ast.Attribute(value=ast.Name(id="JobStatus")):
                return True
            case ast.Attribute(attr=name) | ast.Name(id=name) if self._is_one(name):
                return True
            case ast.Name(id=name):
                return name in self._others
            case ast.Attribute(value=ast.Attribute(attr="attempts") | ast.Name(id="attempts"), attr="number"):
                return True
            case ast.Attribute(value=inner, attr="value" | "ended") | ast.NamedExpr(value=inner):
                return self._means_one(inner)
            case ast.Tuple(elts=several) | ast.Set(elts=several) | ast.List(elts=several):
                return any(map(self._means_one, several))
            case _:
                return False

    def _is_one(self, name: str) -> bool:
        first, *_, last = ("", *name.strip("_").removesuffix("_number").removesuffix("_id").split("_"))
        return (last in self._words and not name.strip("_").startswith("is_")) or first in self._words


def _comparisons(source: str, words: frozenset[str] = WORDS | {"status"}) -> list[int]:
    """The lines in which something is decided by one of them."""
    finder = _Finder(words)
    finder.visit(ast.parse(source))
    return [line for line, _ in sorted(finder.found)]


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
    case JobStatus.FAILED | JobStatus.CANCELLED: pass
shown = JobStatus.FAILED
"""
    assert _comparisons(source) == [2, 3, 4, 5, 6, 7, 8, 10, 10]


def test_comparisons_that_hide_are_found() -> None:
    source = """
if info.status.ended: pass
done = [one for one in jobs if not one.info.status.ended]
if self._attempt == 3 or wanted_attempt > 1: pass
if attempt and there: pass
text = "new" if view.status.value == "created" else ""
def f(one):
    mine = one.checkpoint
    return mine < limit
async def g(one):
    while (now := one.status) is not END: pass
if one.status in ENDS: pass
word = WORDS[info.status]
if job_attempt_number > 1 or checkpoint_id is None: pass
assert epoch >= newest
def h(other):
    mine = other.rows
    return mine < limit
if is_checkpoint: pass
print(attempt, checkpoint)
"""
    assert _comparisons(source) == [2, 3, 4, 4, 5, 6, 9, 11, 12, 13, 14, 14, 15]


def test_no_status_attempt_or_checkpoint_is_compared_where_nothing_may_be_decided() -> None:
    found: Counter[str] = Counter()
    for folder in CODE:
        # Connectors know no job: what they call a status is an answer of a server.
        words = WORDS if folder == "connectors" else WORDS | {"status"}
        for path in sorted((ROOT / folder).rglob("*.py")):
            name, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            if not name.startswith(NOT_ASKED) and ASKED.search(TEXT.sub("", source)):
                found[name] += len(_comparisons(source, words))
    assert +found == Counter(COMPARED)

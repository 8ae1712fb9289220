"""The checks of a transactional sink: `TransactionalSinkSuite`, which its author subclasses, or calls method by method.

pytest runs its methods, each on targets of its own; it raises `ConformanceError`, which names the rule that is broken.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from penstock.engine.connectors import TransactionalSink
from penstock.testing.connector_suite.any_sinks import AnySinkSuite
from penstock.testing.connector_suite.crash_points import leaving_things_open, spread
from penstock.testing.connector_suite.jobs import check_sink_job
from penstock.testing.connector_suite.rows import as_table, difference, every, surplus
from penstock.testing.connector_suite.rules import (
    ABANDONED,
    COMMIT_AGAIN,
    COMMIT_ELSEWHERE,
    CRASH,
    INVISIBLE,
    RESUMED,
    SUCCESSOR,
    VISIBLE,
    WRITER_CLOSE,
    WRITER_NAME,
    ConformanceError,
    Rule,
    obeying,
    require,
)
from penstock.testing.connector_suite.writing import (
    SinkJob,
    SinkSubtask,
    prepared_by,
    writers_of,
)


class TransactionalSinkSuite(AnySinkSuite[TransactionalSink]):
    """What every transactional sink must keep. Subclass it, and give `sink` and `read_back`.

    Attributes:
        seeds: of the jobs that are run with crashes.
        most_crashes: at how many lines of write, prepare and commit each the process dies.

    Example:
        >>> class TestLedger(TransactionalSinkSuite):
        ...     def sink(self):
        ...         return LedgerSink(new_folder())
        ...     def read_back(self, sink):
        ...         return read_ledger(sink.folder)
    """

    seeds: Sequence[int] = (1, 2, 3)
    most_crashes: int = 15

    # Commits

    def test_rows_are_seen_when_they_are_committed(self) -> None:
        rows = self.rows(0, 9)
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(rows)
            self._expect(job, rows.slice(0, 0), INVISIBLE, "before prepare()")
            subtask.prepare(1)
            self._expect(job, rows.slice(0, 0), INVISIBLE, "before commit()")
            subtask.complete(1)
            self._expect(job, rows, VISIBLE, "behind commit()")
            subtask.close()
            self._expect(job, rows, VISIBLE, "behind close()")

    def test_each_commit_shows_its_own_rows(self) -> None:
        with self._job() as job:
            subtask = job.subtask()
            for checkpoint in (1, 2, 3):
                subtask.write(self.rows(10 * checkpoint, 4))
                subtask.prepare(checkpoint)
            subtask.write(self.rows(40, 4))
            subtask.complete(1)
            self._expect(job, self.rows(10, 4), INVISIBLE, "checkpoint 1 is complete, 2 and 3 are prepared")
            subtask.complete(3)
            shown = [self.rows(10 * checkpoint, 4) for checkpoint in (1, 2, 3)]
            self._expect(job, pa.concat_tables(shown), VISIBLE, "checkpoints 1 and 3 are complete, 2 was given up")
            subtask.close()

    def test_a_commit_may_be_repeated(self) -> None:
        rows = self.rows(0, 9)
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(rows)
            held = subtask.prepare(1)
            subtask.complete(1)
            for times in (2, 3):
                with obeying(COMMIT_AGAIN, f"commit() of the same committables, time {times},"):
                    job.subtask(held).close()
                self._expect(job, rows, COMMIT_AGAIN, f"committed {times} times")

    def test_a_commit_may_be_repeated_with_others(self) -> None:
        rows = self.rows(0, 12)
        with self._job() as job:
            subtask = job.subtask()
            for checkpoint in (1, 2, 3):
                subtask.write(rows.slice(4 * checkpoint - 4, 4))
                held = subtask.prepare(checkpoint)
            for checkpoint in (1, 2, 3, 2, 1):
                with obeying(COMMIT_AGAIN, f"commit() of the committables up to checkpoint {checkpoint}"):
                    job.subtask(prepared_by(held, checkpoint)).close()
            self._expect(job, rows, COMMIT_AGAIN, "checkpoints were committed alone and together with others")

    def test_another_process_commits_for_a_writer_that_died(self) -> None:
        rows = self.rows(0, 9)
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(rows)
            held = subtask.prepare(1)
            subtask.close()
            self._expect(job, rows.slice(0, 0), INVISIBLE, "the writer was closed behind prepare()")
            with obeying(COMMIT_ELSEWHERE, "commit() in another process"):
                job.subtask(held, 2, 3).close()
            self._expect(job, rows, COMMIT_ELSEWHERE, "another subtask committed")

    def test_prepared_rows_are_committed_after_a_rescale(self) -> None:
        for before, behind in ((1, 3), (3, 1), (2, 3), (3, 2)):
            rows, later = self.rows(0, 12), self.rows(20, 12)
            with self._job() as job:
                held = self._write_by(job, rows, before, 1)
                # The last subtask first: a writer may open before those who commit have their turn.
                where = f"{before} writers prepared, {behind} subtasks committed: "
                with obeying(COMMIT_ELSEWHERE, where):
                    subtasks = [job.subtask(_shared(held, i, behind), i, behind) for i in reversed(range(behind))]
                self._expect(job, rows, COMMIT_ELSEWHERE, where)
                for number, subtask in enumerate(subtasks):
                    subtask.write(every(later, number, behind))
                    subtask.prepare(2)
                for subtask in subtasks:
                    subtask.complete(2)
                    subtask.close()
                self._expect(job, pa.concat_tables([rows, later]), VISIBLE, where)

    def test_writers_have_names_of_their_own(self) -> None:
        names: list[set[str]] = []
        with self._job() as job, self._other(job) as other:
            for number, index in itertools.product(range(2), range(3)):
                subtask = (job, other)[number].subtask(None, index, 3)
                subtask.write(self.rows(10 * (3 * number + index), 4))
                names.append(writers_of(subtask.prepare(1)))
        found = sorted(name for some in names for name in some)
        alike = sorted({name for name in found if found.count(name) > 1})
        require(not alike, WRITER_NAME, f"two subtasks, or those of two jobs, have writers that are called {alike}")

    def test_a_writer_without_rows_commits_nothing(self) -> None:
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(self.rows(0, 4).slice(0, 0))
            held = subtask.prepare(1)
            subtask.complete(1)
            job.subtask(held).close()
            subtask.write(self.rows(0, 4))
            subtask.prepare(2)
            subtask.complete(2)
            self._expect(job, self.rows(0, 4), VISIBLE, "checkpoint 1 was without rows")

    def test_without_checkpoints_rows_are_seen_at_the_end(self) -> None:
        rows = self.rows(0, 9)
        with self._job() as job:
            subtask = job.subtask(takes_checkpoints=False)
            subtask.write(rows)
            self._expect(job, rows.slice(0, 0), INVISIBLE, "before the end of a job without checkpoints")
            subtask.finish()
            self._expect(job, rows, VISIBLE, "at the end of a job without checkpoints")
            subtask.close()

    # Failures

    def test_rows_of_a_failed_attempt_are_never_seen(self) -> None:
        rows = self.rows(0, 12)
        with self._job() as job:
            first = job.subtask()
            first.write(rows.slice(0, 4))
            held = first.prepare(1)
            first.complete(1)
            # The next checkpoint is prepared and never complete, and more rows are on their way when it fails.
            first.write(rows.slice(4, 4))
            first.prepare(2)
            first.write(rows.slice(8, 4))
            with obeying(SUCCESSOR, "the writer of the next attempt"):
                second = job.subtask(held)
            self._expect(job, rows.slice(0, 4), ABANDONED, "an attempt failed behind checkpoint 1")
            with obeying(SUCCESSOR, "the writer of the next attempt"):
                second.write(rows.slice(4))
                second.prepare(3)
            second.complete(3)
            self._expect(job, rows, ABANDONED, "rows came again in checkpoint 3")
            with contextlib.suppress(Exception):
                first.operator.close()
            self._expect(job, rows, ABANDONED, "the writer that had failed was closed at last")

    def test_a_writer_that_is_closed_leaves_nothing(self) -> None:
        for rows in (0, 9):
            with self._job() as job:
                subtask = job.subtask()
                subtask.write(self.rows(0, rows))
                subtask.close()
                with obeying(WRITER_CLOSE, "the second close()"):
                    subtask.operator.close()
                self._expect(job, self.rows(0, 0), WRITER_CLOSE, f"{rows} rows were written and not prepared")
                other = job.subtask()
                other.write(self.rows(20, 4))
                other.prepare(1)
                other.complete(1)
                self._expect(job, self.rows(20, 4), WRITER_CLOSE, f"{rows} rows of a closed writer, 4 of the next")

    def test_jobs_do_not_touch_each_others_rows(self) -> None:
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(self.rows(0, 4))
            held = subtask.prepare(1)
            with self._other(job) as other:
                theirs = other.subtask()
                theirs.write(self.rows(10, 4))
                theirs.prepare(1)
                theirs.complete(1)
                self._expect(job, self.rows(10, 4), INVISIBLE, "another job committed its checkpoint 1")
            with obeying(SUCCESSOR, "commit() of rows that were prepared before another job wrote"):
                job.subtask(held).close()
            self._expect(job, pa.concat_tables([self.rows(0, 4), self.rows(10, 4)]), SUCCESSOR, "both jobs committed")

    def test_a_job_goes_on_from_a_savepoint(self) -> None:
        with self._job() as job:
            subtask = job.subtask()
            subtask.write(self.rows(0, 4))
            held = subtask.prepare(1)
            subtask.complete(1)
            subtask.close()
            with self._other(job) as later:
                with obeying(RESUMED, "check() and prepare() of resumed()"):
                    later.begin(self.rows(0, 0).schema)
                self._expect(job, self.rows(0, 4), RESUMED, "resumed().prepare()")
                again = later.subtask(held)
                again.write(self.rows(4, 4))
                again.prepare(2)
                again.complete(2)
                again.close()
            self._expect(job, self.rows(0, 8), RESUMED, "the job resumed from a savepoint")

    def test_a_crash_while_rows_are_written_loses_and_doubles_nothing(self) -> None:
        self._crash("write()", lambda subtask: subtask.write(self.rows(4, 4)))

    def test_a_crash_while_rows_are_prepared_loses_and_doubles_nothing(self) -> None:
        self._crash("prepare()", lambda subtask: subtask.prepare(2), lambda subtask: subtask.write(self.rows(4, 4)))

    def test_a_crash_while_rows_are_committed_loses_and_doubles_nothing(self) -> None:
        with leaving_things_open():
            for fatal in self._fatal_lines(self._crash_in_commit):
                self._crash_in_commit(fatal, self.rows(0, 12))

    def test_a_job_that_crashes_shows_every_row_once(self) -> None:
        for seed in self.seeds:
            sink = self.sink()
            check_sink_job(sink, partial(self.read_back, sink), self.rows(0, 60), self.clock(), seed)

    # Parts

    def _job(self) -> SinkJob:
        return SinkJob(self.sink(), self.clock()).begin(self.rows(0, 0).schema)

    def _other(self, job: SinkJob) -> SinkJob:
        """Another job with the same target."""
        sink = job.sink.resumed()
        if not isinstance(sink, TransactionalSink):
            raise ConformanceError(RESUMED, f"resumed() gave {sink!r}, which is not transactional")
        return SinkJob(sink, self.clock())

    def _expect(self, job: SinkJob, rows: pa.Table, rule: Rule, when: str) -> None:
        wrong = difference(self._seen(job), rows)
        require(not wrong, rule, f"{when}: {wrong}")

    def _seen(self, job: SinkJob) -> pa.Table:
        schema = self.rows(0, 0).schema
        with obeying(VISIBLE, f"bringing read_back() to the columns {schema.names}"):
            return as_table(self.read_back(job.sink), schema)

    @staticmethod
    def _write_by(job: SinkJob, rows: pa.Table, parallelism: int, checkpoint: int) -> list[pa.Table | None]:
        """What a checkpoint holds of subtasks that have written and died."""
        held = []
        for index in range(parallelism):
            subtask = job.subtask(None, index, parallelism)
            subtask.write(every(rows, index, parallelism))
            held.append(subtask.prepare(checkpoint))
        return held

    def _fatal_lines(self, attempt: Callable[[int | None, pa.Table], int]) -> Sequence[int]:
        return spread(attempt(None, self.rows(0, 12)), self.most_crashes)

    def _crash(
        self,
        what: str,
        step: Callable[[SinkSubtask], object],
        before: Callable[[SinkSubtask], object] = lambda _: None,
    ) -> None:
        """Crash at each line of a step between checkpoints 1 and 2, and resume from checkpoint 1."""

        def attempt(fatal: int | None, rows: pa.Table) -> int:
            with self._job() as job:
                subtask = job.subtask()
                subtask.write(rows.slice(0, 4))
                held = subtask.prepare(1)
                subtask.complete(1)
                before(subtask)
                counter = subtask.until_line(fatal)
                if counter.run(lambda: step(subtask)):
                    counter.require_lines(what)
                where = f"the process died in line {fatal} of {what}: "
                self._expect(job, rows.slice(0, 4), CRASH, where)
                with obeying(CRASH, f"{where}the next attempt"):
                    again = job.subtask(held)
                    again.write(rows.slice(4))
                    again.prepare(3)
                    again.complete(3)
                self._expect(job, rows, CRASH, f"{where}after the next attempt: ")
                return counter.lines

        with leaving_things_open():
            for fatal in self._fatal_lines(attempt):
                attempt(fatal, self.rows(0, 12))

    def _crash_in_commit(self, fatal: int | None, rows: pa.Table) -> int:
        with self._job() as job:
            subtask = job.subtask()
            held = None
            for checkpoint in (1, 2, 3):
                subtask.write(rows.slice(4 * checkpoint - 4, 4))
                held = subtask.prepare(checkpoint)
            counter = subtask.until_line(fatal)
            if counter.run(lambda: subtask.complete(3)):
                counter.require_lines("commit()")
            where = f"the process died in line {fatal} of commit(): "
            wrong = surplus(self._seen(job), rows)
            require(not wrong, CRASH, f"{where}{wrong}")
            with obeying(CRASH, f"{where}commit() in the next attempt"):
                job.subtask(held, 0, 2).close()
            self._expect(job, rows, CRASH, f"{where}after the next attempt: ")
            return counter.lines


def _shared(held: Sequence[pa.Table | None], index: int, parallelism: int) -> pa.Table | None:
    """The committables that a subtask gets after a rescale: those of the old subtasks index, index + parallelism ..."""
    tables = [table for table in held[index::parallelism] if table is not None]
    return pa.concat_tables(tables) if tables else None

"""Every error that Penstock raises on purpose.

    PenstockError
    ├── ConfigurationError          an option has a value that cannot be used
    │   ├── UnknownOperatorError    a running job has no operator of that name, or several
    │   └── SinkNotReadyError       the target of a sink cannot be made ready; the job has written nothing
    ├── GraphError                  the program does not make a job (also a ValueError)
    │   ├── MissingColumnError      a column that the stream does not have
    │   ├── ColumnTypeError         a column of a type that the operation does not take
    │   ├── PatternError            a pattern over events that makes no sense: says which stage and why
    │   ├── ChangelogError          updates or deletes for an operator that takes added rows alone
    │   ├── SerializationError      a function or object that cannot be sent to the cluster
    │   └── SqlError                a statement of SQL cannot be run: has the line and the column
    │       ├── SqlSyntaxError      it is no SQL
    │       ├── SqlValidationError  a name, a type or an option in it is wrong
    │       └── SqlUnsupportedError Flink would run it, Penstock does not
    ├── RecordError                 data that cannot be processed: says where it came from and what to do
    │   ├── FileColumnsError        a file has other columns than those that are read
    │   ├── BadRowError             a row of a file does not fit the columns that are read
    │   │   └── BadTableRowError    the same of a file of a table of SQL
    │   ├── ResultError             a function returned or keeps what does not fit what it declared
    │   └── RefusedRowsError        the target of a sink does not take rows, by a constraint for example
    ├── WriteError                  a file of a sink cannot be written, such as on a full disk
    ├── UserCodeError               a function of the user raised: carries its traceback and the row or batch
    │   ├── LifeCycleError          before, between or behind rows: in its `open`, `close` or `snapshot_state`
    │   │   └── SplitsError         before the job: in the `splits` of a source
    │   └── CallTimeoutError        it did not raise: a call took longer than `map_async` gives it
    ├── StateError                  state or a timer used where there is none: outside open, a key, a keyed stream
    │   ├── TimerError              a function without `on_timer` registers a timer
    │   ├── UnknownStateError       a job has no operator, or an operator no state, of the name that was asked for
    │   └── StateNotReadyError      state of a running job that cannot be read just now: try again
    ├── CheckpointError             a checkpoint or savepoint failed, is damaged, or does not fit the job
    │   ├── NotRunningError         one was asked for while the job starts or restarts: names the failure
    │   ├── CheckpointCorruptError  a file of it is missing or not as it was written (names the file)
    │   └── RestoreError            its state does not fit the program: says which operators and why
    │       └── NoCheckpointError   there is none to resume from, or not by what the job was told
    ├── SubtaskError                a subtask ended by an error that is none of these: carries its traceback
    │   └── ServerError             a server that a connector works with cannot be reached, refuses, or broke off
    ├── ClusterError                the cluster cannot be reached
    │   └── NoRoomError             it has no room for the job: says what is needed and what is there
    └── JobError
        ├── JobFailedError          the job ended by an error (its cause)
        ├── JobCancelledError       the job was cancelled before it ended
        ├── WorkerLostError         a process of the job died (killed, out of memory, node lost)
        │   └── NoAnswerError       the job's manager does not answer now: stopped, cut off, or being restarted
        └── FencedError             another attempt or job manager has taken over; this one must do nothing more

Each message says what is wrong, where, and what to do about it. All of them survive pickling, because they travel from
a worker to the client.
"""

from __future__ import annotations

import difflib
import os
import re
import traceback
from collections.abc import Iterable
from typing import ClassVar, Final


class PenstockError(Exception):
    """Base class of all errors below."""

    remedy: ClassVar[str] = ""
    """What to do where the message does not say it; shown behind the error, and in the error reference."""


_MOST_OF_A_SUMMARY: Final = 1_000
_MOST_OF_A_LINE: Final = 160
"""How much of a line of SQL is shown."""


def summary(error: BaseException) -> str:
    """Class and first line of an error, in at most 1,000 characters: what may be kept, as rows and tracebacks may not.

    Example:
        >>> summary(CheckpointError("chk-3 is damaged"))
        'CheckpointError: chk-3 is damaged'
    """
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:_MOST_OF_A_SUMMARY]


class ConfigurationError(PenstockError, ValueError):
    """An option or argument has a value that cannot be used."""

    remedy = (
        "Correct what the message names: an option, an argument, a file or an address; "
        "`penstock config --all` lists the keys of the configuration."
    )


class UnknownOperatorError(ConfigurationError):
    """A running job has no operator of that name, or several."""


class SinkNotReadyError(ConfigurationError):
    """The target of a sink cannot be made ready where the job begins; nothing was written."""

    remedy = "Make the target reachable and writable, or choose another mode of the sink; nothing was written."


class GraphError(PenstockError, ValueError):
    """The program does not make a job; raised while it is built, before anything runs."""

    remedy = "Change the program where the message says; nothing has run."


class MissingColumnError(GraphError):
    """A column was named that the stream does not have."""

    remedy = "Take one of the columns that the message lists, or declare the columns where they are made (returns=)."


class ColumnTypeError(GraphError):
    """A column's type does not fit the operation."""

    remedy = "Cast the column before the operation, or declare its type where it is made (returns=)."


class PatternError(GraphError):
    """A pattern over events makes no sense, or asks for what cannot be found."""

    remedy = "Change the stage that the message names."


class ChangelogError(GraphError):
    """An operator would get updates or deletes, and takes rows that are only added."""

    remedy = (
        "Turn the updates into rows first, or use an operator that takes updates; `env.explain()` shows "
        "which kind each operator gives."
    )


class SerializationError(GraphError):
    """A function or object of the job cannot be sent to the cluster."""

    remedy = "Create the object in the worker: in the `open()` of a function, or inside of it."


class SqlError(GraphError):
    """A statement of SQL cannot be run.

    Args:
        problem: what is wrong, and what to do about it.
        line, column: where in the text, from 1.
        excerpt: the line of the text.
    """

    def __init__(self, problem: str, line: int, column: int, excerpt: str) -> None:
        super().__init__(problem, line, column, excerpt)
        self.problem = problem
        self.line = line
        self.column = column
        self.excerpt = excerpt

    def __str__(self) -> str:
        # Of a script in one line, what stands around the place.
        begin = max(0, min(self.column - _MOST_OF_A_LINE // 2, len(self.excerpt) - _MOST_OF_A_LINE))
        before = "..." if begin else ""
        behind = "..." if len(self.excerpt) > begin + _MOST_OF_A_LINE else ""
        shown = f"{before}{self.excerpt[begin : begin + _MOST_OF_A_LINE]}{behind}"
        mark = " " * (self.column - 1 - begin + len(before)) + "^"
        return f"line {self.line}, column {self.column}: {self.problem}\n  {shown}\n  {mark}"


class SqlSyntaxError(SqlError):
    """The text is no SQL; the message says what was expected."""

    remedy = "Mend the text at the mark."


class SqlValidationError(SqlError):
    """A name that there is not, a type that does not fit, an option with a wrong value."""

    remedy = "Mend the name, type or option at the mark."


class SqlUnsupportedError(SqlError):
    """What Flink SQL has and Penstock does not; the message says why, and what to write instead."""

    remedy = "Write what the message proposes instead."


class RecordError(PenstockError):
    """Data that cannot be processed. The message names file and row, or operator, column and row."""

    remedy = "Mend such rows where they come from, or keep them from the operator: the message says which and how."

    @property
    def placed(self) -> bool:
        """Whether the message begins with the operator."""
        return str(self).startswith("operator ")

    def at(self, where: str) -> RecordError:
        """The same error behind its place.

        Args:
            where: operator and subtask.
        """
        return type(self)(f"{where}: {self}")


class FileColumnsError(RecordError):
    """A file lacks a column that is read, has it twice, or has others. The message names both."""

    remedy = "Declare the columns that the file has, or correct the file: the message says which it has."


class BadRowError(RecordError):
    """A row of a CSV file, or a line of JSON, does not fit the columns that are read. The message names the first."""

    remedy = (
        'Correct the row in the file, or read the files with a schema and `bad_records="keep"`: bad rows are then rows '
        "of the stream, with what is wrong with each."
    )


class BadTableRowError(BadRowError):
    """A row of a file does not fit the columns that CREATE TABLE declares. The message names the first."""

    remedy = (
        "Correct the row in the file, or the type of the column in CREATE TABLE; with 'csv.ignore-parse-errors' = "
        "'true' ('json.ignore-parse-errors' of JSON) fields that cannot be read are NULL, and what is no row is left "
        "out."
    )


class ResultError(RecordError):
    """A function of the user returned, or keeps in its state, what does not fit what it declared."""

    remedy = "Mend the function, or declare what it gives (`returns=`, or the type of the state); no row is to blame."


class RefusedRowsError(RecordError):
    """The target of a sink does not take rows, by a constraint for example."""

    remedy = "Alter the target, or drop such rows before the sink where they are not in a checkpoint yet."


class WriteError(PenstockError):
    """A file of a sink cannot be written. The message names the file, the operator and why."""

    remedy = (
        "Free space there, or mend the rights, then start the job again; with checkpoints and a restart strategy it "
        "resumes by itself from the last one."
    )


class UserCodeError(PenstockError):
    """A function of the user raised.

    Args:
        operator: name of the operator that called the function.
        subtask: index of the subtask, from 0.
        given: what the function was called with (a row or a batch, shortened).
        error: the exception as `Type: message`.
        traceback: its traceback, as text, with all frames; `str` shows the user's.
    """

    remedy = (
        "Mend the function for this row, or catch the error in it and give the row to a side output; the "
        "row would fail each attempt."
    )

    def __init__(self, operator: str, subtask: int, given: str, error: str, traceback: str) -> None:
        super().__init__(operator, subtask, given, error, traceback)
        self.operator = operator
        self.subtask = subtask
        self.given = given
        self.error = error
        self.traceback = traceback

    @property
    def place(self) -> str:
        """Where it arose, in words."""
        return f"operator {self.operator!r}, subtask {self.subtask}"

    def told(self, frames: str) -> str:
        """Its text with these frames, those of `traceback` or fewer."""
        return f"{self.place}: the user function raised {self.error}\n  called with: {self.given}\n{frames}".rstrip()

    def __str__(self) -> str:
        return self.told(_shown(self.traceback))


class LifeCycleError(UserCodeError):
    """A function of the user raised where no row is to blame: in its constructor, `open`, `snapshot_state` or `close`.

    Args: as those of `UserCodeError`; `given` is the call, such as `open(context)`.
    """

    remedy = (
        "Mend the function where the traceback says, or what it needs there: files, addresses and packages must be "
        "there for every worker."
    )


class SplitsError(LifeCycleError):
    """`Source.splits` raised where the job is planned; nothing has started.

    Args: as those of `UserCodeError`; `operator` is the source, `given` the call, and no subtask has made it.
    """

    remedy = (
        "Mend splits() where the traceback says, or what it needs there: it is called by the program that submits the "
        "job, and by the job manager where the source runs at another parallelism."
    )

    @property
    def place(self) -> str:
        return f"source {self.operator!r}"


class CallTimeoutError(UserCodeError):
    """A function of `map_async` took longer for a row than its timeout, all retries included.

    Args: as those of `UserCodeError`; `error` is the whole text, and there is no traceback.
    """

    remedy = (
        "Give map_async a longer timeout, or fewer rows at a time (capacity=) where the service is overloaded, or an "
        "AsyncFunction whose timeout(row) emits rows in place of the error."
    )

    def told(self, frames: str) -> str:
        return f"{self.place}: {self.error}\n  called with: {self.given}"


class StateError(PenstockError):
    """State or a timer was used where there is none: not declared, without a current key, on a stream without keys."""

    remedy = (
        "Declare every state in `open`, call `key_by` before keyed state and timers, and keep types and "
        "keys from version to version."
    )


class TimerError(StateError):
    """A function registers a timer, and has no `on_timer` that would be called when it fires."""

    remedy = "Implement `on_timer(self, timestamp, ctx)` in the function, or register no timer."


class UnknownStateError(StateError):
    """There is no operator, or no state of it, of the name that was asked for."""

    remedy = "Take one of the names that the message gives; `penstock info` lists the operators of a job."


class StateNotReadyError(StateError):
    """State of a job cannot be read now: the job starts, recovers or is rescaled, or many ask. Try again."""

    remedy = "Ask again in a second or two; `penstock info JOB` says what the job is at."


class CheckpointError(PenstockError):
    """A checkpoint or savepoint could not be made, found or read."""

    remedy = (
        "See that the storage can be reached and written by every process; the job runs on, or begins "
        "from its last checkpoint."
    )


class NotRunningError(CheckpointError):
    """A checkpoint or savepoint was asked for while the job starts or restarts. The message names why it restarts."""

    remedy = (
        "Try again once the job runs. One that keeps restarting: mend what it fails by, cancel it, and submit it with "
        '`resume="latest"` (`--resume`).'
    )


class CheckpointCorruptError(CheckpointError):
    """A file of a checkpoint or savepoint is missing or is not as it was written. The message names the file."""

    remedy = "Resume from another savepoint or checkpoint; nothing older is taken silently."


class RestoreError(CheckpointError):
    """The state of a checkpoint or savepoint does not fit the program that is to resume from it."""

    remedy = "Give operators the uids that they had, or drop their state with allow_non_restored_state=True (-n)."


class NoCheckpointError(RestoreError):
    """There is no checkpoint or savepoint where the job is to resume from; nothing was started."""

    remedy = (
        "Name a savepoint or a `chk-*` folder that is there (savepoint=, -s PATH), or begin without state: leave "
        "savepoint and resume out."
    )


class SubtaskError(PenstockError):
    """A subtask ended by an error that is none of ours, such as a full disk under a sink.

    Args:
        task: name of the task.
        subtask: index of the subtask, from 0.
        error: the exception as `Type: message`.
        traceback: its traceback, as text, with all frames; `str` shows the user's.
    """

    remedy = "Mend what it says, and start the job again."

    def __init__(self, task: str, subtask: int, error: str, traceback: str) -> None:
        super().__init__(task, subtask, error, traceback)
        self.task = task
        self.subtask = subtask
        self.error = error
        self.traceback = traceback

    @property
    def place(self) -> str:
        """Where it arose, in words."""
        return f"task {self.task!r}, subtask {self.subtask}"

    def told(self, frames: str) -> str:
        """Its text with these frames, those of `traceback` or fewer."""
        return f"{self.place}: {self.error}\n{frames}".rstrip()

    def __str__(self) -> str:
        return self.told(_shown(self.traceback))


class ServerError(SubtaskError):
    """A server that a connector works with cannot be reached, refuses, or broke off. The message says which and why.

    Connectors raise it as `ConnectionError`, with a text that needs no traceback.

    Args: as those of `SubtaskError`; `error` is the text.
    """

    remedy = "Mend that, and start the job again; with a restart strategy (`restart=`) it tries again by itself."

    def told(self, frames: str) -> str:
        placed = self.error.startswith("operator ")
        return self.error if placed else f"{self.place}: {self.error}"


def wants_everything() -> bool:
    """Whether the user has asked for all frames of errors (`PENSTOCK_TRACEBACK=full`)."""
    return os.environ.get("PENSTOCK_TRACEBACK", "") == "full"


def _shown(frames: str) -> str:
    # What a job that does not fail does without is not loaded.
    from penstock.engine.tracebacks import in_short

    return frames if wants_everything() else in_short(frames)


def in_full(error: BaseException) -> str:
    """What an error says, with all frames that it, or that of the job whose failure it is, carries; for a log.

    Example:
        >>> in_full(SubtaskError("sink", 0, "OSError: disk full", "Traceback: all frames"))
        "task 'sink', subtask 0: OSError: disk full\\nTraceback: all frames"
    """
    cause = cause_of(error)
    if isinstance(cause, UserCodeError | SubtaskError):
        return str(error).replace(str(cause), cause.told(cause.traceback), 1)
    return str(error)


def cause_of(error: BaseException) -> BaseException:
    """The one error that counts: of the failure of a job that by which it failed."""
    return error.__cause__ if isinstance(error, JobFailedError) and error.__cause__ is not None else error


def encodable(text: str) -> str:
    """The text with what has no bytes in UTF-8, half of a surrogate pair, as its escape: files and JSON cannot have it.

    Example:
        >>> encodable("a" + chr(0xD83D))
        'a\\\\ud83d'
    """
    return text.encode(errors="backslashreplace").decode()


def named(error: BaseException) -> str:
    """The class and the text of an error, also of one of the user's that has none: its `__str__` may raise.

    Example:
        >>> named(ValueError("no number"))
        'ValueError: no number'
    """
    try:
        text = str(error)
    except BaseException as raised:
        text = f"(its __str__ raises {type(raised).__name__})"
    return f"{type(error).__name__}: {text}"


def located(error: BaseException, task: str, subtask: int) -> PenstockError:
    """The error as one that names its place: ours do already, any other is wrapped."""
    if isinstance(error, PenstockError):
        return error
    # As such, and not as one of the subclasses that the system raises, it is raised on purpose.
    if type(error) is ConnectionError:
        wrapped: PenstockError = ServerError(task, subtask, str(error), "")
        wrapped.__cause__ = error
        return wrapped
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    wrapped = SubtaskError(task, subtask, named(error), text)
    wrapped.__cause__ = error
    return wrapped


class ClusterError(PenstockError):
    """The cluster cannot be reached, or has no room for the job."""

    remedy = "Do what the message says; else start a cluster, give its address, add nodes, or lower the parallelism."


class NoRoomError(ClusterError):
    """The cluster has no room for the job.

    Args:
        message: what is needed, and what is there.
        room: for how many slots of the job there is room.
    """

    remedy = "Add nodes, end other jobs, lower the parallelism, or set penstock.restart.min-parallelism."

    def __init__(self, message: str, room: int) -> None:
        super().__init__(message, room)
        self.message = message
        self.room = room

    def __str__(self) -> str:
        return self.message


class JobError(PenstockError):
    """The job did not run to its end."""

    remedy = "See how it stands: `penstock list`, `penstock info JOB`."


class JobFailedError(JobError):
    """The job ended by an error: `__cause__` is that error where the process had it, the message has its text."""

    remedy = 'Mend what it says; `resume="latest"` (`--resume`) restores the newest checkpoint.'


class JobCancelledError(JobError):
    """The job was cancelled before it ended."""

    remedy = 'Submit it again; `resume="latest"` restores a checkpoint that was kept (`retain_on_cancel`, `suspend`).'


class WorkerLostError(JobError):
    """A process of the job died: it was killed, ran out of memory, or its node was lost."""

    remedy = (
        "Look for what killed the process: memory, a lost node, `ray logs`; with checkpoints the job "
        "recovers by itself."
    )


class NoAnswerError(WorkerLostError):
    """The manager of a job does not answer now; the job itself may well run."""

    remedy = "Wait until the manager answers: commands that end the job are recorded; `penstock list` shows when."


class FencedError(JobError):
    """Another attempt, or another manager of the same job, has taken over; this one must do nothing more."""

    remedy = "Nothing: the attempt or manager that took over does the work."


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint such as ` (did you mean 'carrier'?)`, or an empty text where nothing is near."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def missing_column(name: str, names: Iterable[str], where: str) -> MissingColumnError:
    """The error for column `name`, which is not among `names`, in the operation `where`."""
    known = list(names)
    hint = nearest(name, known)
    if re.search(r"[<>=+*/]", name):
        hint = " (a text is the name of a column; compute with col(...), such as col('n') > 1)"
    return MissingColumnError(f"{where}: no column {name!r}{hint}; the stream has {', '.join(known) or 'no columns'}")

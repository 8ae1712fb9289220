"""The rules of the connector API, each with what to do about it, and the error that names the one that is broken.

The suites raise `ConformanceError`; authors read its message. A rule is told by what a user of the connector would
lose without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of `penstock.engine.connectors`.

    Args:
        text: what must hold, and why.
        remedy: what to do where it does not.
    """

    text: str
    remedy: str


class ConformanceError(AssertionError):
    """A connector breaks a rule.

    Args:
        rule: which one.
        found: what the suite saw.
    """

    def __init__(self, rule: Rule, found: str) -> None:
        super().__init__(rule, found)
        self.rule = rule
        self.found = found

    def __str__(self) -> str:
        return f"{self.found}\n  the rule: {self.rule.text}\n  what to do: {self.rule.remedy}"


def require(holds: bool, rule: Rule, found: str) -> None:
    """Raise `ConformanceError` unless the rule holds."""
    if not holds:
        raise ConformanceError(rule, found)


@contextlib.contextmanager
def obeying(rule: Rule, what: str) -> Iterator[None]:
    """An error in here breaks the rule.

    Args:
        rule: which one.
        what: what is done in here, for the message.
    """
    try:
        yield
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(rule, f"{what} raised {type(error).__name__}: {error}") from error


PICKLE: Final = Rule(
    "descriptions (Source, Split, Sink, LookupTable) travel to the cluster, so they must be picklable, and the copy "
    "must do what the original does",
    "keep paths, addresses and options in them, all as values; open files and clients in open()",
)
DESCRIBE: Final = Rule(
    "describe() is one short line for explain()", "return a text such as 'files(flights.csv)', without a password"
)
SCHEMA: Final = Rule(
    "every batch has exactly the columns, types and nullability that `schema` declares: the plan was made for them",
    "build batches with pa.RecordBatch.from_arrays(columns, schema=schema)",
)
MAX_ROWS: Final = Rule(
    "next_batch(max_rows) gives at most that many rows, so that memory and latency keep their limits, and the rows do "
    "not depend on how many are asked for",
    "keep what is left for the next call: batch.slice(offset, max_rows)",
)
ROWS: Final = Rule(
    "the splits together give every row once, in any order",
    "look at the bounds of each split: the first and the last row, and where one split ends and the next begins",
)
PARALLELISM: Final = Rule(
    "the rows of all splits together are the same at every parallelism",
    "let splits(parallelism) only share the rows out; no row may depend on who reads it",
)
SPLIT_IDS: Final = Rule(
    "split ids are texts, unique within the source, and the same each time and in each process that plans the program: "
    "checkpoints find splits again by them",
    "name a split by what it holds (path, partition, range), never by id(), hash(), a counter or a random number",
)
DISCOVERY: Final = Rule(
    "split(split_id) gives the split with that id: one that was discovered is in no plan, and checkpoints have its id",
    "let the id have all that it takes to make the split, such as topic and partition",
)
ENDS: Final = Rule(
    "a bounded source comes to its end: next_batch gives None behind the last row, and Wait only while more may come",
    "return None at the end; or say `bounded = False`, and let expected() have all rows that are there now",
)
POSITION: Final = Rule(
    "position() is a mapping as JSON has it, costs nothing and changes nothing: every checkpoint asks for it",
    "return a dict of texts and whole numbers that the reader keeps anyway, such as {'row': 7}",
)
REWIND: Final = Rule(
    "open_at(split, position) gives the rows that followed when a reader gave the position, in any process, again and "
    "again: after a failure rows would be lost or doubled otherwise",
    "let position() count the rows that next_batch has returned (not those that were fetched), and open_at() skip "
    "exactly those",
)
REASSIGN: Final = Rule(
    "a split resumes where it was in whichever subtask gets it after a rescale",
    "keep all progress in position(), nothing of it in the source, in files or by the subtask's number",
)
READER_CLOSE: Final = Rule(
    "close() releases what a reader holds at any time: unread, half read, after an error, twice",
    "close what is open if anything is, and raise nothing",
)
JOB: Final = Rule(
    "a job that fails at any moment shows each row exactly once in the end",
    "look for the smaller check that fails too; else run this seed under a debugger: all of it is in this process",
)
INVISIBLE: Final = Rule(
    "rows that are not committed are invisible: those of a failed attempt come again",
    "stage rows in write() and prepare(), under a hidden name, in the Committable or uncommitted; publish in commit()",
)
VISIBLE: Final = Rule(
    "when commit() returns, all rows of its committables are visible, once, and no others",
    "publish everything that the committables name, before commit() returns",
)
COMMIT_AGAIN: Final = Rule(
    "commit() is repeated after a failure, by a process that does not know whether it was done, alone or together with "
    "others: what was committed stays so, once",
    "write a marker (writer and checkpoint of the committable) in the transaction that publishes the rows, and skip "
    "committables whose marker is there; or make publishing idempotent, as a rename is",
)
COMMIT_ELSEWHERE: Final = Rule(
    "committables are committed from what the checkpoint holds: by another process, another subtask, at another "
    "parallelism, when the writer has died",
    "put all that it takes into Committable.data, and use nothing of the writer or of memory in commit()",
)
ABANDONED: Final = Rule(
    "rows that no complete checkpoint holds are never seen, also when others are committed later",
    "publish by the committables alone, not all that is staged; rows of an attempt that failed are nobody's",
)
SUCCESSOR: Final = Rule(
    "a writer opens beside what others have left: prepared rows that are still to be committed, and writers that hang",
    "name staged data by a writer id that nobody else has (secrets.token_hex), remove only what no committable can "
    "name, and hold no lock between two calls",
)
COMMITTABLE: Final = Rule(
    "a Committable belongs to the checkpoint it was prepared for, its data has at least one row, and the same columns "
    "in all committables of the sink: the checkpoint keeps it as rows of one table",
    "build data with one schema, pa.Table.from_pylist(rows, SCHEMA), and give [] where there is nothing to commit",
)
WRITER_NAME: Final = Rule(
    "Committable.writer names the writers of one subtask of one job for ever: others with that name would take each "
    "other's commits for done",
    "draw the name when the writer opens: secrets.token_hex(8); or make it of context.identity and context.subtask",
)
WRITER_CLOSE: Final = Rule(
    "close() releases what a writer holds at any time, also after an error or twice, and publishes nothing",
    "close what is open if anything is, drop what was not prepared, and raise nothing",
)
CRASH: Final = Rule(
    "a process may die between any two lines; the next attempt shows each row once all the same",
    "order the steps so that rows become visible by one atomic step, and what is before it is harmless to repeat",
)
CRASH_POINTS: Final = Rule(
    "the suite lets a process die before each line of the packages that a connector, its readers and its writers are "
    "in; where none of them runs, nothing is known of crashes",
    "let methods of these classes, in modules of Python, do the work",
)
RESUMED: Final = Rule(
    "a job that resumes from a savepoint finds its earlier rows in place: resumed() gives a sink whose check() accepts "
    "them and whose prepare() keeps them",
    "override resumed() where check() refuses or prepare() empties a target that has rows",
)
FINISH: Final = Rule(
    "a plain sink's rows are visible when finish() returned, each once",
    "flush, and publish everything in finish(); close() drops what was not finished",
)
AT_MOST_ONCE: Final = Rule(
    "a source that cannot be rewound may lose rows over a failure, but gives what the server sends to the new "
    "connection, and no row more often than it was sent",
    "let open_at() connect anew, whatever the position, and keep no row of the connection before",
)
AT_LEAST_ONCE: Final = Rule(
    "rows that were written before a checkpoint is complete are there whatever fails behind it; they may come again, "
    "but no others",
    "let prepare() of a transactional writer, or write() of a plain one, return when the target has the rows",
)
LOOKUP: Final = Rule(
    "lookup(keys) gives all rows that have one of the keys and no others, with the declared columns, those of one key "
    "always in the same order",
    "select by the key columns alone, and build the answer with the table's schema",
)
LOOKUP_COPY: Final = Rule(
    "each subtask works on a shallow copy: what one opens or closes must not be another's",
    "open clients in open(), into attributes, and change no object that the copies share",
)

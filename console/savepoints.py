"""The commands on savepoints: `savepoint inspect`, `diff` and `dispose`; of anything else, `savepoint` takes one.

They need no cluster, but for a savepoint in its own storage (`ray://`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import FAILED, error_document, message_of
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.savepoints import diff
from penstock.savepoints.inspection import hashes, inspect, lengths
from penstock.savepoints.manifest import decode_manifest
from penstock.savepoints.paths import DATA, MANIFEST, join_url
from penstock.savepoints.storage import BlobStore, open_blobs

TAKE: Final = "take"
Path = Annotated[str, typer.Argument(metavar="PATH", help="Folder of a savepoint: a path or URL.")]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="URL", help="Storage of single operators, where there is any; may be repeated."),
]


class SavepointGroup(TyperGroup):
    """`savepoint JOB [DIR]` beside `savepoint inspect PATH`: the name of a command wins over a job of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Where no command is named, `take` is meant; after `--`, whatever the job is called."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [TAKE, *args]
        return super().parse_args(ctx, args)


def inspect_command(
    context: typer.Context,
    path: Path,
    storage: Storage = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its hash.")] = False,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show the operators and states of a savepoint or retained checkpoint, and which of its files are damaged."""
    output = output_of(context)
    with output.progress("verifying" if verify else "reading"):
        inspection = inspect(path, hashes if verify else lengths, storage or [])
    problems, document = inspection.problems, inspection.to_dict()
    if not problems:
        if verify:
            files = len({file.path for file in inspection.savepoint.checkpoint.files()})
            output.say(f"{files} files are as they were written")
        output.result(document, inspection)
        return
    # What could be read is shown, but the command has failed.
    output.result({**document, **error_document(problems[0])}, inspection)
    for problem in problems:
        output.say(f"error: {message_of(problem, output.tracebacks)}")
    raise typer.Exit(FAILED)


def diff_command(
    context: typer.Context,
    before: Path,
    after: Path,
    sample: Annotated[int, typer.Option(metavar="N", min=0, help="Rows of each sort to show of each state.")] = 5,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show how one savepoint differs from another."""
    output = output_of(context)
    with output.progress("comparing"):
        difference = diff(before, after, sample=sample)
    output.result(difference.to_dict(), difference)


def dispose_command(context: typer.Context, path: Path, as_json: Json = False, tracebacks: Traceback = False) -> None:
    """Delete a savepoint; refuses a folder that is not one."""
    output = output_of(context)
    blobs = open_blobs(path)
    paths = [name for name, _ in blobs.list()]
    savepoint = check_disposable(blobs, paths)
    with output.progress("deleting"):
        # Without its manifest it is no savepoint any more, whatever happens next.
        blobs.delete([MANIFEST])
        blobs.delete([name for name in paths if name != MANIFEST])
    document = {"path": blobs.url, "job_name": savepoint.job_name, "files": len(paths)}
    output.result(document, f"deleted {blobs.url} ({len(paths)} files, of job {savepoint.job_name})")


def check_disposable(blobs: BlobStore, paths: Sequence[str]) -> CompletedCheckpoint:
    """What the manifest of a savepoint's folder says.

    Args:
        blobs: the folder.
        paths: everything in it.

    Raises:
        CheckpointError: it is no savepoint, or holds something else as well. Nothing was deleted.
    """
    if MANIFEST not in paths:
        raise CheckpointError(f"{blobs.url} is no savepoint: it has no {MANIFEST}; nothing was deleted")
    found = decode_manifest(bytes(memoryview(blobs.get(MANIFEST))), join_url(blobs.url, MANIFEST))
    if found.kind is SnapshotKind.CHECKPOINT:
        raise CheckpointError(
            f"{blobs.url} is checkpoint {found.checkpoint} of job {found.job_name!r}, which owns it, and no savepoint; "
            "nothing was deleted"
        )
    others = [name for name in paths if name != MANIFEST and not name.startswith(f"{DATA}/")]
    if others:
        raise CheckpointError(
            f"{blobs.url} holds more than a savepoint, such as {others[0]}; move that away first; nothing was deleted"
        )
    return found

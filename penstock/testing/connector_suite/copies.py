"""What travels between the processes of a job, without a cluster: copies of descriptions, and texts from a new process.

The suites call it wherever the engine would send a description to another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from penstock.engine.connectors import Source
from penstock.testing.connector_suite.rules import PICKLE, SPLIT_IDS, ConformanceError, obeying

_T = TypeVar("_T")

_PROGRAM: Final = """\
import json, pickle, sys
source, parallelisms = pickle.load(sys.stdin.buffer)
print(json.dumps([[split.split_id for split in source.splits(p)] for p in parallelisms]))
"""
_SECONDS: Final = 60


def copied(description: _T) -> _T:
    """What another process of the job has of a source, a split or a sink."""
    with obeying(PICKLE, f"pickling {type(description).__name__}"):
        pickler = _pickler()
        copy: _T = pickler.loads(pickler.dumps(description))
        return copy


def split_ids_elsewhere(source: Source, parallelisms: Sequence[int]) -> list[list[str]]:
    """The split ids of the source at each parallelism, as a new Python process with other hashes sees them."""
    what = f"pickling {type(source).__name__}"
    with obeying(PICKLE, what), _by_value(type(source)):
        content = _pickler().dumps((source, list(parallelisms)))
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # noqa: S603 - this interpreter and a constant program
        [sys.executable, "-c", _PROGRAM],
        input=content,
        env=environment,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ConformanceError(SPLIT_IDS, f"splits() failed in another process: {done.stderr.decode()[-2000:]}")
    ids: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return ids


def _pickler() -> Any:
    # The one that sends jobs to the cluster; Ray takes a second to import.
    from ray import cloudpickle

    return cloudpickle


@contextlib.contextmanager
def _by_value(connector: type) -> Iterator[None]:
    """Send classes of the author's modules whole: a test module may not be found by another process."""
    names = {kind.__module__ for kind in connector.__mro__ if not kind.__module__.startswith(("penstock.", "builtins"))}
    modules = [sys.modules[name] for name in sorted(names - {"abc", "typing", "__main__"}) if name in sys.modules]
    pickler = _pickler()
    for module in modules:
        pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            pickler.unregister_pickle_by_value(module)

"""Makes the keyed state backend that the job's settings ask for.

Called by operators with keyed state, once in each subtask. Any backend can restore what another has saved.
"""

from __future__ import annotations

from penstock.engine.config import STATE_BACKENDS
from penstock.engine.errors import ConfigurationError, nearest
from penstock.engine.state.backend import BackendContext, KeyedStateBackend
from penstock.engine.state.columnar import ColumnarBackend
from penstock.engine.state.heap import HeapBackend


def create_backend(kind: str, context: BackendContext) -> KeyedStateBackend:
    """A backend for functions that work row by row.

    Args:
        kind: `"heap"` or `"rocksdb"`, as `JobConfig.state_backend`.
        context: of the operator.

    Raises:
        ConfigurationError: no such kind, or its package is not installed.

    Example:
        `create_backend("heap", BackendContext("operator 'f', subtask 0", ("user",), 128, SystemClock()))`
    """
    match kind:
        case "heap":
            return HeapBackend(context)
        case "rocksdb":
            from penstock.engine.state.rocksdb.backend import RocksDbBackend

            return RocksDbBackend(context)
        case _:
            known = ", ".join(STATE_BACKENDS)
            hint = nearest(kind, STATE_BACKENDS)
            raise ConfigurationError(f"state_backend must be one of {known}, not {kind!r}{hint}")


def create_columnar_backend(context: BackendContext) -> KeyedStateBackend:
    """A backend in memory for functions that work batch by batch, where the settings say `"heap"`.

    Args:
        context: of the operator.
    """
    return ColumnarBackend(context) if context.keys else HeapBackend(context)

"""Short texts by name in the cluster's own table: what must outlive the processes of a job, and be read without them.

Job managers write down how their jobs ended; clients, which commands they gave. The table lives as long as the
cluster does (in Redis, where its head keeps it there). All calls block for a millisecond or so.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, Protocol

_NAMESPACE: Final = "penstock"
_CLUSTER: Final = "cluster"


class Notes(Protocol):
    """The table."""

    def put(self, name: str, text: str) -> None:
        """Write a text down, over one of the same name."""
        ...

    def get(self, name: str) -> str | None:
        """The text of that name."""
        ...

    def names(self, prefix: str) -> Sequence[str]:
        """The names that begin so, sorted."""
        ...

    def remove(self, name: str) -> None:
        """Forget a text, if there is one."""
        ...


class ClusterNotes:
    """The table of the cluster that this process is connected to."""

    def __init__(self) -> None:
        from ray.experimental import internal_kv

        self._table: Any = internal_kv

    def put(self, name: str, text: str) -> None:
        self._table._internal_kv_put(name, text, overwrite=True, namespace=_NAMESPACE)

    def get(self, name: str) -> str | None:
        found = self._table._internal_kv_get(name, namespace=_NAMESPACE)
        return None if found is None else bytes(found).decode()

    def names(self, prefix: str) -> Sequence[str]:
        return sorted(bytes(name).decode() for name in self._table._internal_kv_list(prefix, namespace=_NAMESPACE))

    def remove(self, name: str) -> None:
        self._table._internal_kv_del(name, namespace=_NAMESPACE)


def cluster_id(notes: Notes) -> str:
    """What tells the cluster of these notes from others, as long as it lives; drawn where nobody has asked before."""
    found = notes.get(_CLUSTER)
    if found is None:
        found = secrets.token_hex(8)
        notes.put(_CLUSTER, found)
    return found

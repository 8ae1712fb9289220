"""Where the states of a backend read and write now: the current key, or the keys of the current batch.

A backend moves its cursor, its states look at it. Without a current key, any dict that is asked for the place raises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from penstock.engine.errors import StateError
from penstock.engine.state.backend import Key, Namespace

Place = Hashable
"""The key, or (key, namespace) where there is a namespace. No key holds a tuple, so the two differ."""


class _NoKey:
    """Stands for the current key where there is none: any dict that is asked for it raises."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __hash__(self) -> int:
        raise outside_key(self._where)


def outside_key(where: str) -> StateError:
    """The error for state that is used without a current key."""
    return StateError(
        f"{where}: keyed state was used outside a keyed context (in open, close or process_broadcast_element, or by a "
        "reference kept in another thread); use it in process_element or on_timer; process_batch has "
        "several keys, and value state has values() and update_values(...) for them"
    )


class Cursor:
    """Where the states of one backend read and write now."""

    __slots__ = ("_batch", "_batch_keys", "_no_key", "_where", "at")

    def __init__(self, where: str) -> None:
        self._where = where
        self._no_key = _NoKey(where)
        self.at: Place = self._no_key
        self._batch: Callable[[], list[Key]] | None = None
        self._batch_keys: list[Key] | None = None

    def clear(self) -> None:
        """There is no current key, nor are there current keys."""
        self.at = self._no_key
        self._batch = self._batch_keys = None

    def set_batch(self, keys: Callable[[], list[Key]]) -> None:
        """The current keys of a batch are those that `keys` gives, when somebody asks for them."""
        self._batch, self._batch_keys = keys, None

    @property
    def has_key(self) -> bool:
        """Whether there is a current key."""
        return self.at is not self._no_key

    def batch_keys(self) -> list[Key]:
        """The current keys of a batch.

        Raises:
            StateError: no batch is being worked on.
        """
        if self._batch is None:
            raise StateError(
                f"{self._where}: values() and update_values(...) are for process_batch; call value() and update() here"
            )
        if self._batch_keys is None:
            self._batch_keys = self._batch()
        return self._batch_keys


def place_of(key: Key, namespace: Namespace) -> Place:
    """The place of a key and namespace."""
    return key if namespace is None else (key, namespace)


def key_and_namespace(place: Place) -> tuple[Key, Namespace]:
    """The key and namespace of a place."""
    if isinstance(place, tuple) and len(place) == 2 and isinstance(place[1], tuple):
        return place
    return place, None

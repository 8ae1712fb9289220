"""Notes of a cluster, kept in this process: for tests of what records and finds them."""

from __future__ import annotations

from collections.abc import Sequence


class InMemory:
    """A table of notes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def put(self, name: str, text: str) -> None:
        self.texts[name] = text

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def names(self, prefix: str) -> Sequence[str]:
        return sorted(name for name in self.texts if name.startswith(prefix))

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)

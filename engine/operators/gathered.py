"""A collector that keeps what an operator emits, for the operator that runs it within itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.elements import Batch, Control


@dataclass(slots=True)
class Gathered:
    """Takes rows alone: watermarks and ends are the affair of the operator around.

    Args:
        batches: what has come, in order.
    """

    batches: list[Batch] = field(default_factory=list)

    def collect(self, batch: Batch) -> None:
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        raise AssertionError(f"an operator within another one emits rows, and no {type(element).__name__}")

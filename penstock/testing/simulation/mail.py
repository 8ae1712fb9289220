"""A mailbox like a network: letters come late, in another order, or twice."""

from __future__ import annotations

from typing import Final

from penstock.engine.local.mail import Letter, LetterKind, Mailbox
from penstock.testing.simulation.faults import Dice

_CALLS: Final = (
    LetterKind.TRIGGER,
    LetterKind.COMMIT,
    LetterKind.ABORT,
    LetterKind.END_INPUT,
    LetterKind.ANSWER,
    LetterKind.TELL,
)
"""Calls between processes may come twice; work within one is done once."""
_LOST: Final = (LetterKind.TRIGGER, LetterKind.COMMIT, LetterKind.ABORT)
"""Calls that may never come, though both processes live. What a subtask has to tell is asked for until it comes."""


class SimulatedMailbox(Mailbox):
    """Letters in any order, some twice.

    Args:
        dice: decides which.

    Attributes:
        last: what the letter that was taken last is about.
    """

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice = dice
        self.last: LetterKind | None = None

    def post(self, kind: LetterKind, letter: Letter) -> None:
        if kind in _LOST and self._dice.strikes(self._dice.rates.lose, f"{kind.value} is lost"):
            return
        super().post(kind, letter)
        if kind in _CALLS and self._dice.strikes(self._dice.rates.repeat, f"{kind.value} comes twice"):
            super().post(kind, letter)

    def take(self, number: int) -> None:
        if self._dice.chosen.random() < self._dice.rates.delay:
            # It stays where it is; another turn, another choice.
            return
        self.last = self._posted[number].kind
        super().take(number)

    def take_next(self) -> None:
        """Take the oldest letter, at once."""
        super().take(0)

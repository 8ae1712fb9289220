"""A mailbox like a network: mails come late, in another order, or twice."""

from __future__ import annotations

from typing import Final

from penstock.engine.local.execution import Mail, Mailbox, MailKind, Posted
from penstock.testing.simulation.faults import Dice

_CALLS: Final = (
    MailKind.TRIGGER,
    MailKind.COMMIT,
    MailKind.ABORT,
    MailKind.END_INPUT,
    MailKind.ANSWER,
    MailKind.TELL,
)
"""Calls between processes may come twice; work within one is done once."""
_LOST: Final = (MailKind.TRIGGER, MailKind.COMMIT, MailKind.ABORT)
"""Calls that may never come, though both processes live. What a subtask has to tell is asked for until it comes."""

_HELD: Final = (
    MailKind.STORE,
    MailKind.PRELOAD,
    MailKind.WRITE,
    MailKind.END_INPUT,
    MailKind.ANSWER,
    MailKind.TELL,
)
"""What may take long: storage, and what goes between processes."""
_HELD_STEPS: Final = (50, 1000)


class SimulatedMailbox(Mailbox):
    """Mails in any order, some twice, some very late.

    Args:
        dice: decides which.

    Attributes:
        last: what the mail that was taken last is about.
    """

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice = dice
        self.last: MailKind | None = None
        self._held: list[tuple[int, Posted]] = []

    def post(self, kind: MailKind, mail: Mail) -> None:
        if kind in _LOST and self._dice.strikes(self._dice.rates.lose, f"{kind.value} is lost"):
            return
        rates = self._dice.rates
        rate = rates.late if kind is MailKind.TELL and rates.late else rates.hold
        if rate and kind in _HELD and self._dice.strikes(rate, f"{kind.value} is held up"):
            until = self._dice.step + self._dice.chosen.randint(*_HELD_STEPS)
            self._held.append((until, Posted(kind, mail)))
            return
        super().post(kind, mail)
        if kind in _CALLS and self._dice.strikes(self._dice.rates.repeat, f"{kind.value} comes twice"):
            super().post(kind, mail)

    def take(self, number: int) -> None:
        if self._dice.chosen.random() < self._dice.rates.delay:
            # It stays where it is; another turn, another choice.
            return
        self.last = self._posted[number].kind
        super().take(number)

    @property
    def is_expecting(self) -> bool:
        return bool(self._held)

    def release_due(self) -> None:
        """What was held up long enough can be taken."""
        if not self._held:
            return
        self._posted += [posted for until, posted in self._held if until <= self._dice.step]
        self._held = [(until, posted) for until, posted in self._held if until > self._dice.step]

    def release_all(self) -> None:
        """What was held up can be taken."""
        self._posted += [posted for _, posted in self._held]
        self._held = []

    def take_next(self) -> None:
        """Take the oldest mail, at once."""
        super().take(0)

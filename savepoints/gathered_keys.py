"""Keys that several threads ask for at a time become one question: what comes while one is under way is the next.

`LiveState.get` uses it. A call to a subtask costs it and who asks most of a millisecond, whatever it asks for, so that
a thousand single keys a second would keep a core busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.engine.errors import PenstockError, StateNotReadyError

Key: TypeAlias = "tuple[Any, ...]"


@dataclass(slots=True, eq=False)
class _Wanted:
    key: Key
    value: Any = None
    error: PenstockError | None = None
    is_answered: bool = False


class GatheredKeys:
    """Asks for the keys that wait as soon as the question before has been answered.

    Args:
        ask: what each of some keys has, in their order; may raise.
    """

    def __init__(self, ask: Callable[[Sequence[Key]], Sequence[Any]]) -> None:
        self._ask = ask
        self._turn = threading.Lock()
        self._adding = threading.Lock()
        self._waiting: list[_Wanted] = []

    def get(self, key: Key) -> Any:
        """What the key has; raises what `ask` raises for it."""
        mine = _Wanted(key)
        with self._adding:
            self._waiting.append(mine)
        with self._turn:
            # Who had the turn before may have asked for this key with its own.
            if not mine.is_answered:
                with self._adding:
                    wanted, self._waiting = self._waiting, []
                self._answer(wanted)
        if mine.error is not None:
            raise mine.error
        return mine.value

    def _answer(self, wanted: Sequence[_Wanted]) -> None:
        try:
            for one, value in zip(wanted, self._ask([one.key for one in wanted]), strict=True):
                one.value = value
        except PenstockError as error:
            if len(wanted) > 1 and not isinstance(error, StateNotReadyError):
                # One of the keys does not fit; the others are nobody else's fault.
                for one in wanted:
                    self._answer([one])
                return
            for one in wanted:
                one.error = error
        except BaseException:
            for one in wanted:
                one.error = StateNotReadyError("who has asked for this key with others was interrupted; ask again")
            raise
        finally:
            for one in wanted:
                one.is_answered = True

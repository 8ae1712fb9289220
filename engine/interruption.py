"""What ends the code of a job from outside, wherever it is: no failure of that code, and nobody takes it for one.

Whatever else a function of the user raises is its failure, also what is no `Exception`.
"""

from __future__ import annotations

import signal


class Interruption(BaseException):
    """Breaks off what runs in this process: a job that is interrupted again, or a process that is to seem dead."""


def pass_interruption(error: BaseException) -> None:
    """Raise the error again where it comes from outside the code that it has broken off; else return.

    For handlers of `BaseException` around code of the user. That is so of an `Interruption`; of a `KeyboardInterrupt`
    where Python's own handler of Ctrl-C may have raised it; and of the `GeneratorExit` that closes the generator in
    which the handler stands, but not of one that comes out of a call in it.

    Example:
        >>> pass_interruption(KeyboardInterrupt())
        Traceback (most recent call last):
        KeyboardInterrupt
        >>> pass_interruption(ValueError("no number"))
    """
    if isinstance(error, Interruption) or _is_of_python(error) or closes_generator(error):
        raise error


def closes_generator(error: BaseException) -> bool:
    """Whether the error ends the generator that handles it, and comes out of no call in that."""
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and trace is not None and trace.tb_next is None


def _is_of_python(error: BaseException) -> bool:
    """Other threads are not interrupted, and a local job that moves has a handler of its own."""
    if type(error) is not KeyboardInterrupt or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:
        # Not the main thread.
        return False
    return True

"""The function objects that users give to `process`: checked while the program is built, created in each subtask.

The specs of the operators of process functions check them, the operators create the subtask's own.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, Final

from penstock.engine.errors import GraphError, SerializationError
from penstock.engine.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
)
from penstock.engine.operators.base import USER_FAILURES, OperatorContext

_NO_ON_TIMER: Final = (
    KeyedProcessFunction.on_timer,
    KeyedCoProcessFunction.on_timer,
    KeyedBroadcastProcessFunction.on_timer,
)


def create_function(given: Any, context: OperatorContext) -> Any:
    """The subtask's own function: a copy of the object, or an object of the class.

    Raises:
        SerializationError: the object cannot be copied.
        LifeCycleError: the class cannot be called.
    """
    if inspect.isclass(given):
        try:
            return given()
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, f"{given.__name__}()") from error
    try:
        return copy.deepcopy(given)
    except Exception as error:
        raise SerializationError(
            f"{context.where}: {given!r:.200} cannot be copied ({type(error).__name__}: {error}); each subtask needs "
            "one of its own, so pass the class, or create in open(self, context) what cannot be copied"
        ) from error


def check_function(verb: str, given: object, kind: type, methods: Sequence[str], otherwise: str) -> None:
    """Make sure that `given` is a function object of `kind`, or its class, with its methods implemented.

    Args:
        verb: what the user called.
        given: what the user gave.
        kind: what it must be.
        methods: the methods that it must implement.
        otherwise: what to do where it is of another kind.

    Raises:
        GraphError: it is not.
    """
    function = _class_of(given)
    if not issubclass(function, kind):
        shown = function.__name__ if hasattr(function, "process_element") else repr(given)
        raise GraphError(f"{verb}: takes a {kind.__name__} (an object or its class), not {shown:.200}; {otherwise}")
    for method in methods:
        if not implements(given, kind, method):
            raise GraphError(f"{verb}: {function.__name__} does not implement {method}, which is called for each row")


def implements(given: object, kind: type, method: str) -> bool:
    """Whether a function object (or class) overrides a method of `kind`."""
    function = _class_of(given)
    return getattr(function, method) is not getattr(kind, method)


def implements_on_timer(given: object) -> bool:
    """Whether a function object (or class) says itself what to do when a timer fires."""
    method = getattr(given, "on_timer", None)
    return method is not None and getattr(method, "__func__", method) not in _NO_ON_TIMER


def _class_of(given: object) -> type:
    """The class of a function, which may be given itself."""
    return given if inspect.isclass(given) else type(given)


def refuse_broadcast(verb: str, given: object) -> None:
    """Make sure that a function of two streams, neither of which is broadcast, needs no broadcast stream.

    Raises:
        GraphError: it does.
    """
    function = _class_of(given)
    if issubclass(function, BroadcastProcessFunction):
        raise GraphError(
            f"{verb}: {function.__name__} takes a stream and a broadcast stream, and the other stream is not "
            "broadcast; give connect(other.broadcast(MapStateDescriptor(...)))"
        )


def refuse_keyed(verb: str, given: object, kind: type) -> None:
    """Make sure that a function without keys is none of `kind`, which needs them.

    Raises:
        GraphError: it is.
    """
    function = _class_of(given)
    if issubclass(function, kind):
        raise GraphError(
            f"{verb}: {function.__name__} is a {kind.__name__}, and the stream has no keys; call key_by first"
        )

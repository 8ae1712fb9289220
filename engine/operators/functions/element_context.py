"""The `Context` that functions of users are given beside each row or timer, and its `TimerService`.

Made by the operators of process functions, one an operator, which set its time and key before each call. They
guarantee that keys and timers are refused, with the remedy, where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import ConfigurationError, StateError, TimerError, nearest
from penstock.engine.functions import OutputTag
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.functions.row_results import SideOutputs
from penstock.engine.operators.functions.user_functions import implements_on_timer
from penstock.engine.operators.keyed import KeyedServices
from penstock.engine.state.backend import Key, MapState, Namespace
from penstock.engine.state.descriptors import KeyedDescriptor, MapStateDescriptor
from penstock.engine.state.timers import TimerQueue, timer_time


class _NoKey:
    """Stands for the current key where there is none."""

    def __repr__(self) -> str:
        return "no key"


NO_KEY: Final = _NoKey()


class FunctionTimers:
    """The `TimerService` of one operator.

    Args:
        where: operator and subtask, for messages.
        function: the user's, an object or a class: without an `on_timer` of its own, it may register no timers.
        element: knows the current key.
        services: keyed state and timers, or None where the stream is not keyed.
        now_ms: the clock.
        watermark: event time so far.
    """

    def __init__(
        self,
        where: str,
        function: object,
        element: ElementContext,
        services: KeyedServices | None,
        now_ms: Callable[[], int],
        watermark: Callable[[], int],
    ) -> None:
        self._where = where
        self._function = function
        self._handles_timers = implements_on_timer(function)
        self._element = element
        self._services = services
        self.current_processing_time = now_ms
        self.current_watermark = watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        self._handled(self._event_timers()).register(self._time(timestamp), self._element.current_key)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._handled(self._processing_timers()).register(self._time(timestamp), self._element.current_key)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event_timers().delete(self._time(timestamp), self._element.current_key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing_timers().delete(self._time(timestamp), self._element.current_key)

    def register_event_time_timers(self, timestamps: Any) -> None:
        self._register_all(self._handled(self._event_timers()), timestamps)

    def register_processing_time_timers(self, timestamps: Any) -> None:
        self._register_all(self._handled(self._processing_timers()), timestamps)

    def _register_all(self, queue: TimerQueue, timestamps: Any) -> None:
        keys = self._element.batch_keys()
        times = self._times(timestamps)
        if len(times) != len(keys):
            raise StateError(
                f"{self._where}: {len(times)} timers were given for {len(keys)} keys; give one for each row of "
                "batch.keys, null where a key gets none"
            )
        for time, key in zip(times, keys, strict=True):
            if time is not None:
                queue.register(self._time(time), key)

    def _times(self, timestamps: Any) -> list[Any]:
        try:
            array = timestamps if isinstance(timestamps, (pa.Array, pa.ChunkedArray)) else pa.array(timestamps)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise StateError(
                f"{self._where}: timers for many keys were given as {timestamps!r:.100} ({error}); give an Arrow or "
                "NumPy array, or a list, of one time (int64 ms) for each row of batch.keys, null where a key gets none"
            ) from error
        times: list[Any] = array.to_pylist()
        return times

    def _handled(self, timers: TimerQueue) -> TimerQueue:
        """The timers to register with, for a function that would be called when they fire."""
        if not self._handles_timers:
            function = self._function if isinstance(self._function, type) else type(self._function)
            raise TimerError(
                f"{self._where}: {function.__name__} registers a timer and does not implement on_timer, so nothing "
                "would happen when it fires; implement on_timer(self, timestamp, ctx)"
            )
        return timers

    def _event_timers(self) -> TimerQueue:
        return self._keyed().event_timers

    def _processing_timers(self) -> TimerQueue:
        return self._keyed().processing_timers

    def _keyed(self) -> KeyedServices:
        if self._services is None:
            raise StateError(f"{self._where}: timers belong to keys, and the stream has none; call key_by first")
        return self._services

    def _time(self, timestamp: object) -> int:
        return timer_time(timestamp, self._where, "ctx.timestamp + 60_000")


class ElementContext:
    """The `Context` (and `OnTimerContext`) of one operator: `timestamp` and `key` are set before each call.

    Args:
        context: where the operator runs.
        function: the user's, an object or a class.
        services: keyed state and timers, or None where the stream is not keyed.
        sides: takes what is emitted to side outputs.
        watermark: event time so far.
    """

    def __init__(
        self,
        context: OperatorContext,
        function: object,
        services: KeyedServices | None,
        sides: SideOutputs,
        watermark: Callable[[], int],
    ) -> None:
        self._where = context.where
        self._services = services
        self._sides = sides
        self.timestamp: int | None = None
        self.is_event_time = True
        self.key: Any = NO_KEY
        self.batch_keys: Callable[[], Sequence[Key]] = self.no_batch
        self.timer_service = FunctionTimers(context.where, function, self, services, context.clock.now_ms, watermark)

    @property
    def current_key(self) -> Any:
        if self.key is NO_KEY:
            raise StateError(
                f"{self._where}: there is no current key "
                + (
                    "here; in process_batch use batch.keys, in process_broadcast_element ctx.apply_to_keyed_state(...)"
                    if self._services is not None
                    else "on a stream without keys; call key_by first"
                )
            )
        return self.key

    def output(self, tag: OutputTag, row: Mapping[str, Any]) -> None:
        self._sides.add(tag, row, self.timestamp)

    def no_batch(self) -> Sequence[Key]:
        raise StateError(
            f"{self._where}: timers for many keys at once are registered in process_batch; here, call "
            "register_event_time_timer(timestamp)"
        )


class BroadcastMaps:
    """The broadcast states of one operator, as one of its methods may use them.

    Args:
        where: operator and subtask, for messages.
        maps: by the names of their descriptors.
    """

    def __init__(self, where: str, maps: Mapping[str, MapState]) -> None:
        self._where = where
        self._maps = maps

    def get(self, descriptor: MapStateDescriptor) -> MapState:
        """The map of a descriptor.

        Raises:
            StateError: it was not given to `DataStream.broadcast(...)`.
        """
        if isinstance(descriptor, MapStateDescriptor) and (found := self._maps.get(descriptor.name)) is not None:
            return found
        name = getattr(descriptor, "name", repr(descriptor))
        raise StateError(
            f"{self._where}: there is no broadcast state {name!r}{nearest(name, self._maps)}; give its "
            f"MapStateDescriptor to broadcast(...), which has {', '.join(map(repr, self._maps))}"
        )


class ReadingContext(ElementContext):
    """The context of `process_element` and `on_timer` in a broadcast function."""

    broadcast_maps: BroadcastMaps

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        return self.broadcast_maps.get(descriptor)


class WritingContext(ElementContext):
    """The context of `process_broadcast_element`.

    `keyed_states` are the keyed states that the function declared, by name, with their descriptors.
    """

    broadcast_maps: BroadcastMaps
    keyed_states: Mapping[str, tuple[KeyedDescriptor, Any]]
    _applied_at: tuple[Key, Namespace] | None = None

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        return self.broadcast_maps.get(descriptor)

    def apply_to_keyed_state(self, descriptor: KeyedDescriptor, function: Callable[[Key, Any], None]) -> None:
        if self._services is None:
            raise StateError(
                f"{self._where}: apply_to_keyed_state needs keys, and the stream has none; call key_by first"
            )
        if not callable(function):
            raise ConfigurationError(
                f"{self._where}: apply_to_keyed_state takes a function of a key and the state, not {function!r:.200}"
            )
        state = self._declared(descriptor)
        backend, outer = self._services.backend, self._applied_at
        try:
            for place in backend.entries(descriptor.name):
                self._applied_at = place
                backend.set_current_key(*place)
                function(place[0], state)
        finally:
            self._applied_at = outer
            if outer is None:
                backend.clear_current_key()
            else:
                backend.set_current_key(*outer)

    def _declared(self, descriptor: KeyedDescriptor) -> Any:
        """The state of a descriptor, which need not be the same object as that given in `open`."""
        name = getattr(descriptor, "name", repr(descriptor))
        if name not in self.keyed_states:
            raise StateError(
                f"{self._where}: apply_to_keyed_state: no keyed state {name!r}{nearest(name, self.keyed_states)} was "
                "declared; declare it in open(self, context)"
            )
        declared, state = self.keyed_states[name]
        if type(descriptor) is not type(declared) or descriptor.value_type != declared.value_type:
            raise StateError(
                f"{self._where}: apply_to_keyed_state: state {name!r} was declared as {declared}, and is asked for as "
                f"{descriptor}; give the descriptor with which it was declared in open"
            )
        return state

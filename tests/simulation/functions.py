"""The functions of the simulated jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import penstock as ps

END_OF_TIME = 2**63 - 2
RULES = ps.MapStateDescriptor("rules", "int64", key_type="string")


@dataclass(frozen=True, slots=True)
class Repeated:
    """Rows of even values so many times over: with many, rows of a key are merged before they travel."""

    times: int

    def of(self, value: int) -> int:
        """How often a row of that value is given."""
        return 1 if value % 2 else self.times

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [row] * self.of(row["value"])


class Numbered(ps.KeyedProcessFunction):
    """Numbers the rows of each key: 1, 2, 3, ... A lost or repeated row breaks the sequence."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._count = context.get_state(ps.ValueStateDescriptor("count", "int64"))

    def process_element(self, row: Any, context: Any) -> Any:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield {"key": row["key"], "number": number}


class Forgotten(ps.KeyedProcessFunction):
    """Numbers the rows of each key 1, 2, 3, and forgets the key."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._count = context.get_state(ps.ValueStateDescriptor("count", "int64"))

    def process_element(self, row: Any, context: Any) -> Any:
        number = (self._count.value() or 0) + 1
        if number < 3:
            self._count.update(number)
        else:
            self._count.clear()
        yield {"key": row["key"], "number": number}


class NumberedSides(ps.KeyedCoProcessFunction):
    """Numbers the rows of each key, whichever stream they come from, and counts those of each stream."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._counts = context.get_map_state(ps.MapStateDescriptor("counts", "int64", key_type="string"))

    def _next(self, row: Any, side: str) -> Any:
        number = (self._counts.get("all") or 0) + 1
        of_side = (self._counts.get(side) or 0) + 1
        self._counts.put("all", number)
        self._counts.put(side, of_side)
        yield {"key": row["key"], "number": number, "side": side, "of_side": of_side}

    def process_element1(self, row: Any, ctx: Any) -> Any:
        return self._next(row, "left")

    def process_element2(self, row: Any, ctx: Any) -> Any:
        return self._next(row, "right")


class Delayed(ps.KeyedProcessFunction):
    """Holds rows back until a timer of the clock, or the end of the input, lets them go."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._held = context.get_list_state(ps.ListStateDescriptor("held", "int64"))

    def process_element(self, row: Any, context: Any) -> Any:
        timers = context.timer_service
        if not list(self._held.get()):
            timers.register_processing_time_timer(timers.current_processing_time() + 7)
            timers.register_event_time_timer(END_OF_TIME)
        self._held.add(row["value"])

    def on_timer(self, timestamp: int, context: Any) -> Any:
        held = list(self._held.get())
        self._held.clear()
        return [{"key": context.current_key, "value": value} for value in held]


class HeldUntilRule(ps.BroadcastProcessFunction):
    """Keeps rows in operator state until the rule has come; then it lets them and all later ones pass, with it."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._held = context.get_operator_list_state(ps.ListStateDescriptor("held", "int64"))

    def process_element(self, row: Any, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(RULES).get("factor")
        if rule is None:
            self._held.add(row["value"])
            return []
        return [{"value": row["value"], "rule": rule}]

    def process_broadcast_element(self, row: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put("factor", row["value"])
        held = list(self._held.get())
        self._held.clear()
        return [{"value": value, "rule": row["value"]} for value in held]

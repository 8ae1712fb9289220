"""The slots of a job on the cluster: one placement group each, so that a rescale can add and give back single ones.

The job manager's execution reserves them before it creates actors, and releases them when the job ends. They bear the
job's id, because Ray keeps them when it restarts a job manager: the new one removes those of the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import ray
from ray.util import get_placement_group
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock.actors.groups import remove_groups, remove_groups_soon
from penstock.engine.errors import NoRoomError

_AT_ONCE_SECONDS: Final = 1.0
"""How long it takes at most to reserve slots for which there is room."""
_LOOK_SECONDS: Final = 2.0
_ROUNDING: Final = 1e-3
_MOST_HOLDERS: Final = 5
"""How many of the jobs that hold what is missing are named."""
_JOB: Final = re.compile("penstock:(.+):[0-9]+")
"""The id of the job in a slot's name."""
_NODE_ID: Final = "ray.io/node-id"
"""The label of its id that Ray gives to each node."""


@dataclass(frozen=True, slots=True)
class _Slot:
    bundle: Mapping[str, float]
    group: PlacementGroup


@dataclass(frozen=True, slots=True)
class _Shortage:
    """What a job waits for.

    Args:
        missing: how many slots are on no node yet.
        slots: that, of how many.
        figures: what these need, what is free, and who holds the rest.
    """

    missing: int
    slots: str
    figures: str


class Slots:
    """The slots of one job.

    Args:
        job_id: whose.
        timeout_s: how long to wait for room.
        labels: by name, what those of their nodes must be, in the words of Ray's label selectors.

    Attributes:
        waiting_for: what the job waits for, with numbers, while there is no room; else None.
    """

    def __init__(self, job_id: str, timeout_s: float, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        self.waiting_for: str | None = None
        self._job_id = job_id
        self._prefix = _prefix(job_id)
        self._timeout_s = timeout_s
        self._labels = labels
        self._slots: list[_Slot] = []
        self._others: dict[int, _Slot] = {}
        self._made = 0

    async def resize(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Have exactly these slots: those that fit already are kept. The actors in the others must be gone.

        Raises:
            NoRoomError: there is no room.
        """
        kept = self.kept(bundles)
        self.shrink(kept)
        for bundle in bundles[kept:]:
            self._slots.append(self._new(bundle))
        try:
            await self.placed(range(kept, len(bundles)))
        except BaseException:
            # Groups that are left would take room as soon as there is some, and count as slots that are there.
            self.shrink(kept)
            raise

    def shrink(self, kept: int) -> None:
        """Give back all but the first `kept` slots; the actors in the others must be gone."""
        remove_groups_soon(slot.group for slot in self._slots[kept:])
        del self._slots[kept:]

    def _new(self, bundle: Mapping[str, float], lost: Collection[str] = ()) -> _Slot:
        avoiding = {_NODE_ID: f"!in({','.join(sorted(lost))})"} if lost else {}
        return _Slot(bundle, self._group([bundle], {**self._labels, **avoiding}))

    def _group(self, bundles: Sequence[Mapping[str, float]], labels: Mapping[str, str]) -> PlacementGroup:
        self._made += 1
        name = f"{self._prefix}{self._made}"
        selector = [dict(labels) for _ in bundles] if labels else None
        wanted = [dict(one) for one in bundles]
        group: PlacementGroup = placement_group(wanted, "PACK", name, bundle_label_selector=selector)
        return group

    async def find_others(self, slots: Collection[int]) -> None:
        """Reserve others for the slots of these numbers, on nodes that stay; those that are there remain until `move`.

        Raises:
            NoRoomError: there is no room.
        """
        self.drop_others()
        self._others = {slot: self._new(self._slots[slot].bundle) for slot in sorted(slots)}
        try:
            await self._await(list(self._others.values()))
        except BaseException:
            self.drop_others()
            raise

    async def replace(self, slots: Collection[int], lost: Collection[str]) -> None:
        """Have others for slots on nodes that are lost; the actors there must be gone.

        The old ones are given back first: Ray would place them on the node that comes for a lost one, and the new ones
        would find no room.

        Args:
            slots: their numbers.
            lost: ids of these nodes, which Ray may take for alive yet.

        Raises:
            NoRoomError: there is no room; they wait for some.
        """
        self.drop_others()
        self._renew(slots, lost)
        try:
            await self.placed(slots)
        except NoRoomError:
            # By now Ray knows which of these nodes are dead. One that only seemed so may have the room.
            groups = await asyncio.to_thread(placement_group_table)
            self._renew([slot for slot in slots if not _is_placed(self._slots[slot], groups)])
            raise

    def _renew(self, slots: Collection[int], lost: Collection[str] = ()) -> None:
        remove_groups_soon([self._slots[slot].group for slot in slots])
        for slot in sorted(slots):
            self._slots[slot] = self._new(self._slots[slot].bundle, lost)

    def move(self) -> None:
        """Take the others that were found; what still runs in the slots that they replace is killed."""
        remove_groups_soon(self._slots[slot].group for slot in self._others)
        for slot, other in self._others.items():
            self._slots[slot] = other
        self._others = {}

    def drop_others(self) -> None:
        """Give back the others that were found."""
        remove_groups_soon(slot.group for slot in self._others.values())
        self._others = {}

    def kept(self, bundles: Sequence[Mapping[str, float]]) -> int:
        """How many slots, the first ones, `resize` would keep."""
        pairs = zip(self._slots, bundles, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0].bundle == pair[1], pairs))

    def lengthened(self, bundles: Sequence[Mapping[str, float]], count: int) -> Sequence[Mapping[str, float]]:
        """These bundles, and behind them those of the next slots that there are, up to `count` in all."""
        return [*bundles, *(slot.bundle for slot in self._slots[len(bundles) : count])]

    async def placed(self, slots: Collection[int]) -> None:
        """Return when the slots with these numbers are on a node: those of a lost one wait for room on another.

        Raises:
            NoRoomError: there is no room.
        """
        await self._await([self._slots[slot] for slot in slots])

    async def _await(self, slots: Sequence[_Slot]) -> None:
        deadline = time.monotonic() + self._timeout_s
        groups = [slot.group for slot in slots]
        if await asyncio.to_thread(_all_ready, groups, min(deadline, time.monotonic() + _AT_ONCE_SECONDS)):
            return
        # Whether the cluster is about to grow, by itself or by hand, nobody can tell.
        if shortage := await asyncio.to_thread(self._shortage, slots):
            self.waiting_for = f"room for {shortage.slots}, for up to {self._timeout_s:g} s: {shortage.figures}"
        try:
            there_is_room = await asyncio.to_thread(_all_ready, groups, deadline)
        finally:
            self.waiting_for = None
        if there_is_room:
            return
        if shortage := await asyncio.to_thread(self._shortage, slots):
            raise NoRoomError(
                f"no room for {shortage.slots} within {self._timeout_s:g} s: {shortage.figures}; lower the parallelism "
                "or slot_cpus, or add nodes",
                self.count - shortage.missing,
            )

    def _shortage(self, slots: Sequence[_Slot]) -> _Shortage | None:
        """What these slots lack; None: the last one has found its room while this asked."""
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        groups = placement_group_table()
        missing = [slot.bundle for slot in slots if not _is_placed(slot, groups)]
        if not missing:
            return None
        needed = _sum(missing)
        some = f"{len(missing)} of " if len(missing) < self.count else ""
        count = f"{some}{self.count} {'slot' if self.count == 1 else 'slots'}"
        text = f"{'it needs' if len(missing) == 1 else 'they need'} {_amounts(needed)}"
        if self._labels:
            text += f" on nodes with {', '.join(f'{name}={value}' for name, value in self._labels.items())}"
        figures = ", ".join(f"{free.get(name, 0):g} of {there.get(name, 0):g} {name}" for name in needed)
        text += f"; free in the cluster: {figures}"
        if all(free.get(name, 0) >= amount for name, amount in needed.items()):
            text += " (being taken now, or on no node that may have a whole slot)"
        return _Shortage(
            len(missing), count, text + _holders(_held(groups.values()), needed, there, free, self._job_id)
        )

    async def room_for(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Return when there is room for those of the slots that are not there yet, which reserves none of them.

        One placement group asks for it: it has all or nothing, so that while it waits it is in nobody's way, and a
        cluster that grows by itself hears of it.
        """
        missing = bundles[self.count :]
        if not missing:
            return
        group = self._group(missing, self._labels)
        try:
            while not await asyncio.to_thread(group.wait, _LOOK_SECONDS):
                pass
        finally:
            remove_groups_soon([group])

    def strategy(self, slot: int) -> PlacementGroupSchedulingStrategy:
        """Where an actor of slot number `slot` is placed: in the other one, where it is about to move there."""
        return PlacementGroupSchedulingStrategy(self._others.get(slot, self._slots[slot]).group, 0)

    @property
    def count(self) -> int:
        return len(self._slots)

    def release(self) -> None:
        """Give all slots back; Ray kills what still runs in them."""
        self.drop_others()
        self.shrink(0)


def remove_slots(job_id: str) -> None:
    """Give back what a job manager of this job had reserved, and has not given back before it died."""
    for group in placement_group_table().values():
        if str(group["name"]).startswith(_prefix(job_id)) and group["state"] != "REMOVED":
            # Ray may have removed it since, as its creator has died.
            with contextlib.suppress(ValueError):
                remove_groups([get_placement_group(group["name"])])


def _prefix(job_id: str) -> str:
    return f"penstock:{job_id}:"


def _is_placed(slot: _Slot, groups: Mapping[str, Any]) -> bool:
    """Whether a slot is on a node, by Ray's table of groups: Ray's `wait` may deny at once what has long been there."""
    return bool(groups.get(slot.group.id.hex(), {}).get("state") == "CREATED")


def _all_ready(groups: Sequence[PlacementGroup], deadline: float) -> bool:
    """Wait until all groups have been placed, or the deadline (monotonic seconds) has come."""
    # Ray takes whole seconds, and of others what is before the point.
    return all(group.wait(max(1, math.ceil(deadline - time.monotonic()))) for group in groups)


def _held(groups: Iterable[Mapping[str, Any]]) -> Mapping[str, Counter[str]]:
    """What the slots of each job hold, by its id."""
    held: dict[str, Counter[str]] = {}
    for group in groups:
        if group["state"] == "CREATED" and (found := _JOB.match(str(group["name"]))):
            for bundle in group["bundles"].values():
                held.setdefault(found[1], Counter()).update(bundle)
    return held


def _holders(
    held: Mapping[str, Counter[str]],
    needed: Mapping[str, float],
    there: Mapping[str, float],
    free: Mapping[str, float],
    own: str,
) -> str:
    """Which jobs hold how much of the resources that are needed, the largest first, and what is not in slots."""
    shares = {job: Counter({name: all_of[name] for name in needed if all_of[name]}) for job, all_of in held.items()}
    largest = sorted(((job, share) for job, share in shares.items() if share), key=lambda one: -one[1].total())
    told = [f"{'this job' if job == own else f'job {job}'} holds {_amounts(share)}" for job, share in largest]
    rest = len(told) - _MOST_HOLDERS
    if rest > 0:
        told[_MOST_HOLDERS:] = [f"{rest} more {'job holds' if rest == 1 else 'jobs hold'} the rest"]
    else:
        jobs = _sum(shares.values())
        others = {name: there.get(name, 0) - free.get(name, 0) - jobs.get(name, 0) for name in needed}
        if beside := {name: amount for name, amount in others.items() if amount > _ROUNDING}:
            told.append(f"what is not Penstock's holds {_amounts(beside)}")
    return "".join(f"; {one}" for one in told)


def _sum(amounts: Collection[Mapping[str, float]]) -> Mapping[str, float]:
    names = dict.fromkeys(name for one in amounts for name in one)
    return {name: sum(one.get(name, 0.0) for one in amounts) for name in names}


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())

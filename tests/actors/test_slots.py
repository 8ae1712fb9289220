"""The slots of a job, with placement groups of this process: which are reserved, kept and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from ray._private.label_utils import validate_label_selector

from penstock.actors import slots as module
from penstock.actors.slots import Slots
from penstock.engine.errors import NoRoomError

NODE = "0123456789abcdef" * 3 + "01234567"


@dataclass(eq=False)
class Group:
    """A placement group."""

    selector: Mapping[str, str] | None
    has_room: bool

    def wait(self, seconds: float) -> bool:
        return self.has_room


class Cluster:
    """Makes groups, and notes which there are."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.has_room = True
        self.table: list[Mapping[str, Any]] = []

    def make(
        self,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        name: str,
        *,
        bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
    ) -> Group:
        group = Group(bundle_label_selector[0] if bundle_label_selector else None, self.has_room)
        self.groups.append(group)
        return group


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "placement_group", made.make)
    monkeypatch.setattr(module, "remove_placement_group", made.groups.remove)
    monkeypatch.setattr(module, "PlacementGroupSchedulingStrategy", lambda group, bundle: group)
    monkeypatch.setattr(module, "placement_group_table", lambda: dict(enumerate(made.table)))
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr("ray.available_resources", lambda: {"CPU": 0.5})
    return made


def with_two(use: Callable[[Slots], Any], **labels: str) -> Any:
    async def main() -> Any:
        slots = Slots("job", 0.01, labels)
        await slots.resize([{"CPU": 1.0}] * 2)
        return await use(slots)

    return asyncio.run(main())


def test_a_slot_that_moves_is_there_twice_until_it_has_moved(cluster: Cluster) -> None:
    async def move(slots: Slots) -> None:
        stays, _old = cluster.groups
        await slots.find_others({1})
        new = cluster.groups[2]
        assert (slots.strategy(0), slots.strategy(1), slots.count) == (stays, new, 2)
        slots.move()
        assert (cluster.groups, slots.strategy(1)) == ([stays, new], new)
        slots.release()
        assert cluster.groups == []

    with_two(move)


def test_where_there_is_no_room_elsewhere_slots_stay(cluster: Cluster) -> None:
    async def refused(slots: Slots) -> None:
        before = list(cluster.groups)
        cluster.has_room = False
        with pytest.raises(NoRoomError, match=r"of which 0\.5 are free; lower"):
            await slots.find_others({0, 1})
        assert cluster.groups == before
        slots.move()
        assert [slots.strategy(0), slots.strategy(1)] == before

    with_two(refused)


def _reserved(name: str, *cpus: float, state: str = "CREATED") -> Mapping[str, Any]:
    """A placement group as Ray's table has it."""
    return {"name": name, "state": state, "bundles": {place: {"CPU": cpu} for place, cpu in enumerate(cpus)}}


def test_where_there_is_no_room_the_jobs_that_hold_it_are_named(cluster: Cluster) -> None:
    cluster.table = [
        _reserved("penstock:clicks-1f09a3c2:1", 1.0),
        _reserved("penstock:orders-00000000:1", 2.0),
        _reserved("penstock:orders-00000000:7", 2.0),
        _reserved("penstock:job:1", 0.5),
        _reserved("penstock:job:2", 9.0, state="PENDING"),
        _reserved("of something else", 1.0),
        {"name": "penstock:gpus-12345678:1", "state": "CREATED", "bundles": {0: {"GPU": 1.0}}},
    ]

    async def refused(slots: Slots) -> None:
        cluster.has_room = False
        with pytest.raises(NoRoomError) as caught:
            await slots.resize([{"CPU": 1.0}] * 4)
        assert str(caught.value).startswith(
            "no room for 4 slots within 0.01 s: they need 4 CPU, and the whole cluster has 8 CPU, of which 0.5 are "
            "free; job orders-00000000 holds 4 CPU; job clicks-1f09a3c2 holds 1 CPU; this job holds 0.5 CPU; lower"
        )

    with_two(refused)


def test_of_many_jobs_that_hold_the_room_the_largest_are_named(cluster: Cluster) -> None:
    cluster.table = [_reserved(f"penstock:job-{cpus:08}:1", float(cpus)) for cpus in range(1, 8)]

    async def refused(slots: Slots) -> None:
        cluster.has_room = False
        with pytest.raises(NoRoomError, match=r"job-00000007 holds 7 CPU; .*; 2 more jobs hold the rest; lower"):
            await slots.find_others({0})

    with_two(refused)


def test_what_was_found_and_is_not_wanted_is_given_back(cluster: Cluster) -> None:
    async def dropped(slots: Slots) -> None:
        before = list(cluster.groups)
        await slots.find_others({0})
        await slots.find_others({1})
        assert len(cluster.groups) == 3
        slots.drop_others()
        assert (cluster.groups, slots.strategy(1)) == (before, before[1])

    with_two(dropped)


def test_a_node_that_is_lost_is_avoided_in_rays_words(cluster: Cluster) -> None:
    async def avoid(slots: Slots) -> Mapping[str, str] | None:
        await slots.find_others({1}, {NODE, "f" * 56})
        return cluster.groups[-1].selector

    selector = with_two(avoid)
    assert selector == {"ray.io/node-id": f"!in({NODE},{'f' * 56})"}
    assert not validate_label_selector(dict(selector))


def test_slots_come_to_nodes_with_the_labels_that_are_wanted(cluster: Cluster) -> None:
    async def others(slots: Slots) -> None:
        await slots.find_others({1}, {NODE})
        await slots.room_for([{"CPU": 1.0}] * 3)

    made: list[Mapping[str, str] | None] = []
    original = cluster.make

    def make(*arguments: Any, **named: Any) -> Group:
        group = original(*arguments, **named)
        made.append(group.selector)
        return group

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "placement_group", make)
        with_two(others, zone="a")
    assert made == [{"zone": "a"}, {"zone": "a"}, {"zone": "a", "ray.io/node-id": f"!in({NODE})"}, {"zone": "a"}]

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
    monkeypatch.setattr(module, "_shortage", lambda bundles, labels: "nothing is free")
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
        with pytest.raises(NoRoomError, match="nothing is free"):
            await slots.find_others({0, 1})
        assert cluster.groups == before
        slots.move()
        assert [slots.strategy(0), slots.strategy(1)] == before

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

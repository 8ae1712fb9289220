"""The slots of a job, with placement groups of this process: which are reserved, kept and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
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

    name: str
    bundles: Sequence[Mapping[str, float]]
    selector: Mapping[str, str] | None
    has_room: bool

    @property
    def id(self) -> bytes:
        return self.name.encode()

    def wait(self, seconds: int) -> bool:
        # As Ray does, which answers at once where it is asked to wait for less than a second.
        return self.has_room and int(seconds) > 0

    @property
    def in_table(self) -> Mapping[str, Any]:
        return _reserved(self.name, *(bundle["CPU"] for bundle in self.bundles), state=self.state)

    @property
    def state(self) -> str:
        return "CREATED" if self.has_room else "PENDING"


class Cluster:
    """Makes groups, and notes which there are."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.has_room = True
        self.table: list[Mapping[str, Any]] = []
        self.looked: Callable[[], None] = lambda: None

    def make(
        self,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        name: str,
        *,
        bundle_label_selector: Sequence[Mapping[str, str]] | None = None,
    ) -> Group:
        if not bundles:
            # As Ray does.
            raise ValueError("Bundles must not be empty")
        group = Group(name, bundles, bundle_label_selector[0] if bundle_label_selector else None, self.has_room)
        self.groups.append(group)
        return group

    def remove(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self.groups.remove(group)

    def look(self) -> Mapping[str, Mapping[str, Any]]:
        """Ray's table of them, and of those of others."""
        self.looked()
        others = {str(place): group for place, group in enumerate(self.table)}
        return {**others, **{group.id.hex(): group.in_table for group in self.groups}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "placement_group", made.make)
    monkeypatch.setattr(module, "remove_groups_soon", made.remove)
    monkeypatch.setattr(module, "PlacementGroupSchedulingStrategy", lambda group, bundle: group)
    monkeypatch.setattr(module, "placement_group_table", made.look)
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
        with pytest.raises(
            NoRoomError,
            match=r"0\.5 of 8 CPU; this job holds 2 CPU; what is not Penstock's holds 5\.5 CPU; lower",
        ):
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
        _reserved("penstock:orders-00000000:7", 1.0),
        _reserved("penstock:orders-00000000:8", 9.0, state="PENDING"),
        _reserved("of something else", 1.0),
        {"name": "penstock:gpus-12345678:1", "state": "CREATED", "bundles": {0: {"GPU": 1.0}}},
    ]

    async def refused(slots: Slots) -> None:
        cluster.has_room = False
        with pytest.raises(NoRoomError) as caught:
            await slots.resize([{"CPU": 1.0}] * 4)
        assert str(caught.value).startswith(
            "no room for 2 of 4 slots within 0.01 s: they need 2 CPU; free in the cluster: 0.5 of 8 CPU; job "
            "orders-00000000 holds 3 CPU; this job holds 2 CPU; job clicks-1f09a3c2 holds 1 CPU; what is not "
            "Penstock's holds 1.5 CPU; lower"
        )
        assert caught.value.room == 2

    with_two(refused)


def test_what_is_waited_for_is_what_is_not_there_yet(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []

    async def waits(slots: Slots) -> None:
        cluster.has_room = False
        monkeypatch.setattr(Group, "wait", lambda *_: told.append(slots.waiting_for))
        with pytest.raises(NoRoomError):
            await slots.resize([{"CPU": 1.0}] * 3)

    with_two(waits)
    assert told[0] is None
    assert told[1] == (
        "room for 1 of 3 slots, for up to 0.01 s: it needs 1 CPU; free in the cluster: 0.5 of 8 CPU; this job holds 2 "
        "CPU; what is not Penstock's holds 5.5 CPU"
    )


@pytest.mark.parametrize("look", [1, 2], ids=["before it is waited for", "when the time is over"])
def test_a_slot_that_finds_its_room_while_one_looks_what_is_missing_lacks_none(cluster: Cluster, look: int) -> None:
    looks: list[None] = []

    async def late(slots: Slots) -> None:
        def looked() -> None:
            looks.append(None)
            cluster.groups[-1].has_room = len(looks) == look

        cluster.has_room, cluster.looked = False, looked
        await slots.resize([{"CPU": 1.0}] * 3)
        assert slots.count == 3

    with_two(late)
    assert len(looks) == look


def test_slots_that_are_placed_within_a_second_are_not_waited_for(cluster: Cluster) -> None:
    async def placed(slots: Slots) -> None:
        await slots.placed(range(2))

    cluster.looked = lambda: pytest.fail("nothing is missing")
    with_two(placed)


def test_of_many_jobs_that_hold_the_room_the_largest_are_named(cluster: Cluster) -> None:
    cluster.table = [_reserved(f"penstock:job-{cpus:08}:1", float(cpus)) for cpus in range(1, 8)]

    async def refused(slots: Slots) -> None:
        cluster.has_room = False
        with pytest.raises(NoRoomError, match=r"job-00000007 holds 7 CPU; .*; 3 more jobs hold the rest; lower"):
            await slots.find_others({0})

    with_two(refused)


def test_room_for_slots_that_are_there_is_not_waited_for(cluster: Cluster) -> None:
    async def asked(slots: Slots) -> None:
        await slots.room_for([{"CPU": 1.0}] * 2)
        await slots.room_for([{"CPU": 1.0}])
        assert len(cluster.groups) == 2

    with_two(asked)


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
        await slots.replace({1}, {NODE, "f" * 56})
        return cluster.groups[-1].selector

    selector = with_two(avoid)
    assert selector == {"ray.io/node-id": f"!in({NODE},{'f' * 56})"}
    assert not validate_label_selector(dict(selector))


def test_slots_on_lost_nodes_are_given_back_before_others_are_asked_for_which_wait_for_room(cluster: Cluster) -> None:
    """Else Ray places them again on the node that comes for the lost one, and the others never find room."""

    async def lose(slots: Slots) -> None:
        stays, lost = cluster.groups
        cluster.has_room = False
        with pytest.raises(NoRoomError, match="no room for 1 of 2 slots"):
            await slots.replace({1}, {NODE})
        assert lost not in cluster.groups
        assert cluster.groups[1].selector is None, "the lost node may have come back"
        assert (slots.count, slots.strategy(0), slots.strategy(1)) == (2, stays, cluster.groups[1])
        cluster.groups[1].has_room = True
        await slots.placed({1})

    with_two(lose)


def test_slots_come_to_nodes_with_the_labels_that_are_wanted(cluster: Cluster) -> None:
    async def others(slots: Slots) -> None:
        await slots.replace({1}, {NODE})
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

"""A file comes back for deletion exactly when the last checkpoint that refers to it is released."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.checkpointing.handles import FileHandle, distinct
from penstock.engine.checkpointing.retained import SharedFiles
from tests.engine.checkpointing.coordinator_driver import paths_of


def file(name: str) -> FileHandle:
    return FileHandle(name, 10, "")


def test_sizes_count_a_file_once_a_checkpoint_and_as_new_once_at_all() -> None:
    files = SharedFiles()
    files.open(1)
    assert files.add(1, [file("a"), file("a"), file("b")]) == (20, 20)
    assert files.add(1, [file("b")]) == (0, 0)
    files.open(2)
    assert files.add(2, [file("b"), file("c")]) == (20, 10)


def test_held_twice_is_released_twice() -> None:
    files = SharedFiles()
    files.open(1)
    files.add(1, [file("a")])
    files.hold(1)
    assert files.release(1) == []
    assert files.unreferenced([file("a"), file("z"), file("z")]) == [file("z")]
    assert files.release(1) == [file("a")]
    assert len(files) == 0


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=5), max_size=8), st.randoms(use_true_random=False))
def test_same_as_looking_through_all_checkpoints(contents: list[list[str]], random: object) -> None:
    files = SharedFiles()
    for number, names in enumerate(contents):
        files.open(number)
        files.add(number, [file(name) for name in names])
    left = dict(enumerate(contents))
    order = list(left)
    random.shuffle(order)  # type: ignore[attr-defined]
    for number in order:
        gone = set(left.pop(number)) - {name for names in left.values() for name in names}
        assert paths_of(files.release(number)) == gone
        assert len(files) == len({name for names in left.values() for name in names})


def test_distinct_keeps_the_order() -> None:
    assert distinct([file("b"), file("a"), file("b")]) == [file("b"), file("a")]

"""A changelog by key gets the rows that were before, and loses what says nothing new."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Materialised, Row

SCHEMA = pa.schema({"v": pa.list_(pa.int64()), "k": pa.int64()})
UPSERTS: st.SearchStrategy[list[list[Change]]] = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["+I", "+U", "-D"]),
            st.tuples(st.sampled_from([None, (), (1, 2)]), st.sampled_from([0, 1, None])),
        ),
        min_size=1,
        max_size=5,
    ),
    max_size=6,
)


@settings(max_examples=drawn(12))
@given(
    backend=st.sampled_from(["heap", "heap", "rocksdb"]),
    batches=UPSERTS,
    restart_at=st.integers(0, 5),
    emits=st.sampled_from([ChangelogMode.RETRACT, ChangelogMode.UPSERT]),
)
def test_the_last_row_of_each_key_is_there(
    backend: str, batches: list[list[Change]], restart_at: int, emits: ChangelogMode
) -> None:
    job = ChangelogJob(
        NormalizeSpec(SCHEMA, ("k",), emits), [SCHEMA], 2, backend, Materialised([1], emits is ChangelogMode.RETRACT)
    )
    there: dict[object, Row] = {}
    for number, batch in enumerate(batches):
        if number == restart_at:
            job.restart(3)
        said = job.send(batch)
        before = dict(there)
        for kind, row in batch:
            there.pop(row[1], None)
            if kind != "-D":
                there[row[1]] = row
        assert job.materialised.rows == sorted(there.values(), key=repr)
        assert bool(said) == (before != there)
    job.close()


def test_a_delete_needs_nothing_but_the_key() -> None:
    job = ChangelogJob(NormalizeSpec(SCHEMA, ("k",)), [SCHEMA], materialised=Materialised([1]))
    assert job.send([("+U", ((3,), 1))]) == [("+I", ((3,), 1))]
    assert job.send([("-D", (None, 1)), ("-D", (None, 2))]) == [("-D", ((3,), 1))]

"""Files of operators with storage of their own lie there, under plain paths of the job's folder."""

from __future__ import annotations

import pytest

from penstock.engine.errors import CheckpointError
from penstock.savepoints.paths import check_path, route_of
from penstock.savepoints.storage import routed
from tests.savepoints.subtasks import ROOT, Storage

HOT = "memory://hot/state"


def test_each_file_is_written_read_listed_and_deleted_where_its_path_says() -> None:
    storage = Storage()
    blobs = routed(storage.open(ROOT), [("count", HOT), ("other", HOT)], "job", storage.open)
    own, hot = "shared/a.arrow", f"{route_of(HOT)}/shared/b.arrow"
    assert check_path(hot, ROOT) == hot
    blobs.put(own, b"a")
    blobs.create(hot, b"bb")
    assert storage.open(ROOT).files == {own: b"a"}
    assert storage.open(f"{HOT}/job").files == {"shared/b.arrow": b"bb"}
    assert (blobs.get(own).to_pybytes(), blobs.get(hot).to_pybytes()) == (b"a", b"bb")
    assert list(blobs.list()) == [(hot, 2), (own, 1)]
    assert list(blobs.list("shared")) == [(own, 1)]
    assert list(blobs.list(f"{route_of(HOT)}/shared")) == [(hot, 2)]
    blobs.delete([own, hot])
    assert list(blobs.list()) == []


def test_storage_that_is_not_configured_is_never_opened() -> None:
    storage = Storage()
    blobs = routed(storage.open(ROOT), [], "job", storage.open)
    with pytest.raises(CheckpointError, match=r"at-.* lies in the storage of a single operator"):
        blobs.get(f"{route_of(HOT)}/shared/b.arrow")
    assert list(storage.folders) == [ROOT]

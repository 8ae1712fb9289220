"""Windows over two real git histories, against digests of a brute-force computation over the whole files.

The files and their digests (golden.json) lie beside the checkout; its README says how the digests were made.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy, col, count, session, sliding, tumbling
from penstock.batch import Mode

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
HISTORIES = ["commits-a", "commits-b"]
DIGESTS = ["tumbling_1d_count_by_ext", "session_30min_count_by_author", "sliding_24h_by_6h_count_by_op"]

OTHER = pytest.mark.long("each history by one number of subtasks, and each number by one history")

pytestmark = pytest.mark.skipif(
    not (DATA / "golden.json").is_file(), reason=f"the histories and golden.json are not beside the checkout ({DATA})"
)


@pytest.mark.parametrize(
    ("history", "parallelism"),
    [
        ("commits-a", 3),
        ("commits-b", 1),
        pytest.param("commits-a", 1, marks=OTHER),
        pytest.param("commits-b", 3, marks=OTHER),
    ],
)
def test_windows_of_a_history_in_one_process(history: str, parallelism: int) -> None:
    check(history, StreamEnvironment(parallelism, "local"))


@pytest.mark.long("the local runtime above; tests/transcripts runs windows on Ray")
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("history", HISTORIES)
def test_windows_of_a_history_on_ray(history: str, parallelism: int) -> None:
    check(history, StreamEnvironment(parallelism, "ray"))


def check(history: str, env: StreamEnvironment, mode: Mode = "streaming") -> None:
    """Run the three windowed counts as one job, and compare each with its digest."""
    golden = json.loads((DATA / "golden.json").read_text())[history]
    changes = (
        env.from_files(DATA / f"{history}.jsonl.gz")
        .with_columns(at=col("author_ts") * 1000)
        .assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness(f"{golden['max_disorder_seconds']}s"))
    )
    days = changes.key_by("ext").window(tumbling("1d")).aggregate(n=count()).collect()
    sessions = changes.key_by("author").window(session("30m")).aggregate(n=count()).collect()
    sliding_days = changes.key_by("op").window(sliding("24h", "6h")).aggregate(n=count()).collect()

    metrics = env.execute(history, mode=mode).metrics()

    computed = {
        "tumbling_1d_count_by_ext": digest(days.to_arrow(), ["ext", "window_start", "n"]),
        "session_30min_count_by_author": digest(sessions.to_arrow(), ["author", "window_start", "window_end", "n"]),
        "sliding_24h_by_6h_count_by_op": digest(sliding_days.to_arrow(), ["op", "window_start", "n"]),
    }
    assert computed == {name: golden[name] for name in DIGESTS}
    assert metrics.operators[0].rows_out == golden["events"]
    assert metrics.late_rows == 0


def digest(table: pa.Table, columns: list[str]) -> dict[str, Any]:
    """The rows as sorted text lines (times in seconds): their number, the SHA-256 and the first three."""
    lines = sorted(map(line_of, table.select(columns).to_pylist()))
    text = "".join(f"{line}\n" for line in lines)
    return {"rows": len(lines), "sha256": hashlib.sha256(text.encode()).hexdigest(), "first": lines[:3]}


def line_of(row: dict[str, Any]) -> str:
    return ",".join(str(int(value.timestamp()) if hasattr(value, "timestamp") else value) for value in row.values())

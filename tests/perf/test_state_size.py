"""The size of SQL's state: a savepoint has what a job keeps, and Flink is asked in the order that its figures need."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from perf import nexmark
from perf.nexmark_flink import FlinkSide
from perf.peers import batch
from perf.state_size import ours

ANSWERING = """
import pathlib, sys
for line in sys.stdin:
    order, folder, output = (text for text in line.rstrip("\\n").split("\\t"))
    if order == "savepoint":
        (pathlib.Path(folder) / "savepoints").mkdir()
    else:
        pathlib.Path(output).write_text({"start": "", "rows": "1\\t7\\n", "heap": "4096"}[order])
    print("done", flush=True)
"""


def test_a_savepoint_has_more_bytes_than_the_values_of_its_keys(tmp_path: Path) -> None:
    for name, events in (("few", 50), ("many", 2_000)):
        nexmark.written(tmp_path / name, events)
    # 40 people and 120 auctions: two numbers each at the least.
    assert ours("join of people", tmp_path, 1).savepoint > 160 * 2 * 8


def test_a_peer_waits_for_its_rows_before_its_heap_is_read(tmp_path: Path) -> None:
    with batch.started([sys.executable, "-c", ANSWERING]) as process:
        flink = FlinkSide(process, tmp_path)
        flink.start(["CREATE TABLE a"], "SELECT 7")
        flink.wait_for(Counter({("7",): 1}), 10)
        assert flink.heap_in_use() == 4096
        assert flink.savepoint().is_dir()

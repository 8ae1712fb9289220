"""Random jobs are scaled as by Flink's autoscaler, whose decisions `python -m tests.flink.autoscaler --save` keeps."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from tests.flink.autoscaler.differences import difference, kinds
from tests.flink.autoscaler.traces import Trace, random_trace

_KEPT = Path(__file__).parents[2] / "data" / "flink-autoscaler.json.gz"


def kept() -> list[Trace]:
    traces: list[Trace] = json.loads(gzip.decompress(_KEPT.read_bytes()))
    return traces


def test_jobs_are_scaled_as_flink_scales_them() -> None:
    assert [text for text in map(difference, kept()) if text] == []


def test_the_traces_have_all_kinds_of_decisions() -> None:
    counted = Counter(kind for trace in kept() for kind in kinds(trace))
    assert all(counted[kind] >= 20 for kind in ("stays", "more", "fewer", "believed less")), counted


def test_the_kept_traces_are_those_of_their_seeds() -> None:
    for trace in kept():
        answer = trace.pop("answer")
        assert json.loads(json.dumps(random_trace(trace["seed"]))) == trace
        assert len(answer) == len(trace["tasks"])

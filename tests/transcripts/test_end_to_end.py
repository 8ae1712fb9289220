"""A sample of the transcripts as whole jobs: rows and watermarks come from a source, on both runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkGenerator, WatermarkOutput, WatermarkStrategy, col
from tests.transcripts.driver import LATE, Fired, Function, Transcript, as_fired, parse, rows_of, windowed
from tests.transcripts.stories import STORIES

_COLUMNS = pa.schema({"k": "string", "at": "int64", "v": "float64", "watermark": "int64"})
SCRIPTED = [story for story in STORIES if "\n        p " not in story.steps and "processing" not in story.name]
LONG = pytest.mark.long("one transcript shows that Ray gives what the local runtime does")
ON_RAY = [
    "sliding: the worked example, 27 and 22",
    "session, lateness: a late row bridges two fired sessions",
    "count window of 4 by 2",
    "tumbling, lateness: late and punctual rows together",
]


class _AsWritten(WatermarkGenerator):
    """Emits the watermarks that rows of the source carry."""

    def on_event(self, row: dict[str, Any], timestamp: int, output: WatermarkOutput) -> None:
        if row["watermark"] is not None:
            output.emit_watermark(row["watermark"])


def _script(transcript: Transcript) -> Iterator[dict[str, Any]]:
    for step in parse(transcript.steps):
        match step.verb:
            case "+":
                yield from ({"k": k, "at": at, "v": v, "watermark": None} for k, at, v in rows_of(step.text))
            case "w" if step.text != "max":
                yield {"k": "", "at": 0, "v": 0.0, "watermark": int(step.text)}


def _expected(transcript: Transcript) -> tuple[list[Fired], list[Any]]:
    steps = parse(transcript.steps)
    return [fired for step in steps for fired in step.fired], [row for step in steps for row in step.late]


def _run(transcript: Transcript, function: Function, env: StreamEnvironment) -> tuple[list[Fired], list[Any]]:
    rows = env.from_collection(list(_script(transcript)), schema=_COLUMNS)
    timed = rows.assign_timestamps("at", WatermarkStrategy.for_generator(_AsWritten))
    stream = windowed(transcript, function, timed.filter(col("watermark").is_null()))
    late = stream.get_side_output(LATE).collect() if "~" in transcript.steps else []
    fired = [as_fired(row) for row in stream.collect()]
    return fired, [(row["k"], row["at"], row["v"]) for row in late]


def _is_whole(transcript: Transcript) -> bool:
    """Bounded input ends with a last watermark, which would fire what a transcript leaves open."""
    watermarks = [step.text for step in parse(transcript.steps) if step.verb == "w"]
    return not watermarks or watermarks[-1] == "max"


WHOLE = [story for story in SCRIPTED if _is_whole(story)]
FUNCTIONS: tuple[Function, ...] = ("aggregate", "process", "reduce")
OTHER_FUNCTION = pytest.mark.long("each transcript has one function, each function a third; all: test_transcripts.py")


@pytest.mark.parametrize(
    ("transcript", "function"),
    [
        pytest.param(story, function, id=f"{story!r}-{function}", marks=() if number % 3 == turn else OTHER_FUNCTION)
        for number, story in enumerate(WHOLE)
        for turn, function in enumerate(FUNCTIONS)
    ],
)
def test_a_transcript_is_the_same_as_a_whole_job(transcript: Transcript, function: Function) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    fired, late = _run(transcript, function, env)
    expected_fired, expected_late = _expected(transcript)
    assert sorted(fired, key=str) == sorted(expected_fired, key=str)
    assert sorted(late) == sorted(expected_late)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", [ON_RAY[0], *(pytest.param(name, marks=LONG) for name in ON_RAY[1:])])
def test_a_transcript_is_the_same_on_ray(name: str) -> None:
    (transcript,) = (story for story in STORIES if story.name == name)
    env = StreamEnvironment(parallelism=1, max_batch_rows=1)
    fired, late = _run(transcript, "process", env)
    expected_fired, expected_late = _expected(transcript)
    assert sorted(fired, key=str) == sorted(expected_fired, key=str)
    assert sorted(late) == sorted(expected_late)

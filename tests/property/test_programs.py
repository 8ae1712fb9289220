"""Results depend on the program and its data alone: not on batches, parallelism, credits, runtime or scheduling."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock import StreamEnvironment
from tests.draws import drawn
from tests.property.programs import Program, programs


@settings(max_examples=drawn(50), suppress_health_check=list(HealthCheck))
@given(
    program=programs(),
    parallelism=st.integers(1, 4),
    batch_rows=st.sampled_from([1, 2, 7, 1000]),
    channel_credits=st.integers(1, 4),
    timeout=st.sampled_from(["0ms", "1ms"]),
    seed=st.integers(0, 2**32),
)
def test_any_program_gives_what_plain_python_gives(
    program: Program, parallelism: int, batch_rows: int, channel_credits: int, timeout: str, seed: int
) -> None:
    env = StreamEnvironment(
        parallelism=parallelism,
        runtime="local",
        max_batch_rows=batch_rows,
        channel_credits=channel_credits,
        buffer_timeout=timeout,
        seed=seed,
    )
    assert program.run(env) == program.expected()


@pytest.mark.long("test_any_program_gives_what_plain_python_gives; Ray runs tests/actors")
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@settings(max_examples=4, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(program=programs(), batch_rows=st.sampled_from([1, 3, 1000]))
def test_any_program_gives_the_same_on_ray(program: Program, batch_rows: int) -> None:
    env = StreamEnvironment(parallelism=2, max_batch_rows=batch_rows)
    assert program.run(env) == program.expected()

"""Orders per customer and minute: the program of this project.

`penstock run flow.py:flow` runs it. What is computed stands in functions from stream to stream, which the tests call
with rows of their own; where rows come from and go to stands in `flow`.
"""

from __future__ import annotations

import penstock as ps

EVENT_TIME = ps.WatermarkStrategy.for_bounded_out_of_orderness("5s").with_timestamp_assigner("at").with_idleness("30s")


def per_minute(orders: ps.DataStream) -> ps.DataStream:
    """Number and sum of each customer's orders, by minutes of event time."""
    windows = orders.key_by("customer").window(ps.tumbling("1min"))
    return windows.aggregate(orders=ps.count(), total=ps.sum("amount")).uid("per-minute")


def flow(env: ps.StreamEnvironment) -> None:
    """The whole program; put your source and your sink here. Its first files are in `out` after some twenty seconds."""
    # Fifty rows a second, in which ten seconds of event time go by: a minute is over every six seconds.
    made_up = ps.DataGenSource(
        {"customer": ps.RandomInt(0, 20), "amount": ps.RandomInt(1, 100), "at": ps.EventTime(rows_per_second=5)},
        rows=None,
        rate=50.0,
    )
    orders = env.from_source(made_up, name="orders", watermarks=EVENT_TIME).uid("orders")
    per_minute(orders).sink_to(ps.FileSink("out", "parquet", mode="append")).uid("files")

"""Where reading of a Kafka table begins and ends, by its options.

`sources.py` asks; the options are spelled, and mean, what they do for Flink's connector.
"""

from __future__ import annotations

from typing import Literal

from penstock.connectors.kafka.offsets import KafkaOffsets
from penstock.table_connectors.kafka.choices import ENDS, STARTS
from penstock.table_connectors.options import TableOptions


def start_of(options: TableOptions) -> KafkaOffsets:
    """Where reading begins."""
    mode = options.choice("scan.startup.mode", STARTS, "group-offsets")
    if mode == "earliest-offset":
        return KafkaOffsets.earliest()
    named = _named(options, "scan.startup", mode)
    if named is not None:
        return named
    reset: Literal["earliest", "latest", "none"] = options.choice(
        "properties.auto.offset.reset", ("earliest", "latest", "none"), "none"
    )
    return KafkaOffsets.committed(_group(options, "scan.startup.mode"), None if reset == "none" else reset)


def end_of(options: TableOptions) -> KafkaOffsets | None:
    """Where reading ends; None: nowhere."""
    mode = options.choice("scan.bounded.mode", ENDS, "unbounded")
    if mode == "group-offsets":
        raise options.invalid("scan.bounded.mode", "reading cannot end at a group's offsets; take another mode")
    return _named(options, "scan.bounded", mode)


def _named(options: TableOptions, prefix: str, mode: str) -> KafkaOffsets | None:
    """The offsets of a mode in which reading may begin and end alike; None for others."""
    match mode:
        case "latest-offset":
            return KafkaOffsets.latest()
        case "timestamp":
            option = f"{prefix}.timestamp-millis"
            options.required(option, "the mode 'timestamp'")
            return KafkaOffsets.at_timestamp(options.number(option, 0))
        case "specific-offsets":
            return _specific(options, f"{prefix}.specific-offsets")
    return None


def _specific(options: TableOptions, option: str) -> KafkaOffsets:
    """`partition:0,offset:42;partition:1,offset:300` of one topic."""
    topic, found = options.get("topic"), {}
    if not topic or ";" in topic:
        raise options.invalid(option, f"{option!r} is of one topic; give one in 'topic', or begin and end otherwise")
    for part in options.required(option).strip(";").split(";"):
        pair = dict(piece.partition(":")[::2] for piece in part.split(","))
        if set(pair) != {"partition", "offset"} or not all(value.isdigit() for value in pair.values()):
            raise options.invalid(option, f"{option!r} is written as partition:0,offset:42;partition:1,offset:300")
        found[topic, int(pair["partition"])] = int(pair["offset"])
    return KafkaOffsets.of(found)


def _group(options: TableOptions, option: str) -> str:
    why = f"reading from the offsets of a group ({option!r}: 'group-offsets', which it is where it is not set)"
    return options.required("properties.group.id", f"{why}, instead of 'earliest-offset' for example,")

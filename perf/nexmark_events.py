"""The events of Nexmark: people, auctions and bids as Arrow tables, drawn with the benchmark's parameters.

`perf/nexmark.py` writes them as files. Of 50 events one is a person, three are auctions and 46 are bids; half of the
bids are for one hot auction among 100, three of four by a hot bidder, and three of four auctions of a hot seller.
Source: the description of Nexmark's generator (https://github.com/nexmark/nexmark).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PERSONS, AUCTIONS, GROUP = 1, 3, 50
"""How many of each `GROUP` events are people and auctions; the others are bids."""
_BEGIN_MS: Final = 1_436_918_400_000
_FIRST_ID: Final = 1_000
_HOT_EVERY: Final = 100
_ACTIVE_PEOPLE, _AUCTIONS_IN_FLIGHT = 1_000, 100
_HOT_AUCTIONS, _HOT_SELLERS, _HOT_BIDDERS = 2, 4, 4
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)

_Numbers = npt.NDArray[np.int64]


def tables(events: int, per_ms: int = 10, seed: int = 7) -> Mapping[str, pa.Table]:
    """The tables `person`, `auction` and `bid` of the first `events` events, so many of them a millisecond.

    Example:
        >>> {name: table.num_rows for name, table in tables(500).items()}
        {'person': 10, 'auction': 30, 'bid': 460}
    """
    draw = np.random.default_rng(seed)
    number = np.arange(events, dtype=np.int64)
    place, time = number % GROUP, _BEGIN_MS + number // per_ms
    is_bid = place >= PERSONS + AUCTIONS
    is_auction = (place >= PERSONS) & ~is_bid
    return {
        "person": _people(number[place < PERSONS], time[place < PERSONS], draw),
        "auction": _auctions(number[is_auction], time[is_auction], per_ms, draw),
        "bid": _bids(number[is_bid], time[is_bid], draw),
    }


def _people(number: _Numbers, time: _Numbers, draw: np.random.Generator) -> pa.Table:
    rows = len(number)
    ids = _last_person(number) + _FIRST_ID
    names = _texts(draw, rows, 12)
    return pa.table(
        {
            "id": ids,
            "name": names,
            "emailAddress": _texts(draw, rows, 20),
            "city": pa.array(np.array(_CITIES)[draw.integers(0, len(_CITIES), rows)]),
            "state": pa.array(np.array(_STATES)[draw.integers(0, len(_STATES), rows)]),
            "at": _times(time),
            "extra": _texts(draw, rows, 120),
        }
    )


def _auctions(number: _Numbers, time: _Numbers, per_ms: int, draw: np.random.Generator) -> pa.Table:
    rows = len(number)
    horizon = _AUCTIONS_IN_FLIGHT * GROUP // AUCTIONS // per_ms
    lives = 1 + draw.integers(0, 2 * horizon, rows)
    seller = _of_people(_last_person(number), draw, _HOT_SELLERS, 0)
    return pa.table(
        {
            "id": _last_auction(number) + _FIRST_ID,
            "itemName": _texts(draw, rows, 20),
            "description": _texts(draw, rows, 100),
            "initialBid": _prices(draw, rows),
            "at": _times(time),
            "expires": _times(time + lives),
            "seller": seller,
            "category": _FIRST_CATEGORY + draw.integers(0, _CATEGORIES, rows),
            "extra": _texts(draw, rows, 200),
        }
    )


def _bids(number: _Numbers, time: _Numbers, draw: np.random.Generator) -> pa.Table:
    rows = len(number)
    last = _last_auction(number)
    some = np.maximum(last - draw.integers(0, _AUCTIONS_IN_FLIGHT, rows), 0)
    auction = np.where(draw.integers(0, _HOT_AUCTIONS, rows) > 0, last // _HOT_EVERY * _HOT_EVERY, some)
    channel = draw.integers(0, len(_CHANNELS), rows)
    url = [f"https://www.nexmark.com/{one % 97}/{one % 31}/item.htm?query=1&channel_id={one}" for one in range(1_000)]
    return pa.table(
        {
            "auction": auction + _FIRST_ID,
            "bidder": _of_people(_last_person(number), draw, _HOT_BIDDERS, 1),
            "price": _prices(draw, rows),
            "channel": pa.array(np.array(_CHANNELS)[channel]),
            "url": pa.array(np.array(url)[draw.integers(0, len(url), rows)]),
            "at": _times(time),
            "extra": _texts(draw, rows, 30),
        }
    )


def _last_person(number: _Numbers) -> _Numbers:
    """The number of the newest person when an event comes."""
    return number // GROUP * PERSONS + np.minimum(number % GROUP, PERSONS - 1)


def _last_auction(number: _Numbers) -> _Numbers:
    """The number of the newest auction when an event comes."""
    place = np.clip(number % GROUP - PERSONS, -1, AUCTIONS - 1)
    return np.maximum(number // GROUP * AUCTIONS + place, 0)


def _of_people(last: _Numbers, draw: np.random.Generator, hot_ratio: int, beside: int) -> _Numbers:
    """People: hot ones, and for the others any of those that are active."""
    rows = len(last)
    some = np.maximum(last - draw.integers(0, _ACTIVE_PEOPLE, rows), 0)
    hot = np.minimum(last // _HOT_EVERY * _HOT_EVERY + beside, last)
    return np.where(draw.integers(0, hot_ratio, rows) > 0, hot, some) + _FIRST_ID


def _prices(draw: np.random.Generator, rows: int) -> _Numbers:
    return np.round(np.power(10.0, draw.random(rows) * 6) * 100).astype(np.int64)


def _times(millis: _Numbers) -> pa.Array:
    return pa.array(millis, pa.timestamp("ms"))


def _texts(draw: np.random.Generator, rows: int, length: int) -> pa.Array:
    letters = _LETTERS[draw.integers(0, len(_LETTERS), rows * length)]
    offsets = np.arange(rows + 1, dtype=np.int32) * length
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))

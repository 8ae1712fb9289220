"""Objects that one program wrote mostly have the same text between their values: that text is their layout.

The JSON format and the reader of JSON files call it before Arrow's parser. A layout is learned from one object; the
objects that have it are cut into values by comparing bytes, the others are left to the caller's parser. No row comes
out that this parser would not give: what needs a closer look (escapes, exponents, repeated fields) fits no layout.
Source: Li et al., "Mison: A Fast JSON Parser for Data Analytics", VLDB 2017, which speculates on the order of fields.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.json.kinds import BOOLEAN, NULL, NUMBER, TEXT
from penstock.engine.state.keys.loading import BesideLoader

WORTHWHILE_RECORDS: Final = 262_144
"""Behind so many what is compiled is loaded, beside the task: that takes as long as Arrow takes for a million."""

_LAYOUTS: Final = 4
"""So many are kept, as fields may be absent. Each that a record does not have costs it a comparison."""

_TRIALS: Final = 8
"""After so many batches, one after the other, that another parser had to read, layouts are no longer tried."""

_MOST_BYTES: Final = 2**31
"""Offsets of 32 bits reach so far."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_Path: TypeAlias = "tuple[str | int, ...]"
_Places: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Fitted:
    """The records of a batch that had a layout.

    Attributes:
        rows: a row for each of them, in their order.
        places: their numbers within the batch, ascending.
        is_valid: whether they are sure to be UTF-8.
    """

    rows: pa.RecordBatch
    places: _Places
    is_valid: bool

    def others(self, records: int) -> _Places:
        """The numbers of the other ones of so many `records`."""
        if len(self.places) == records:
            return np.empty(0, np.int64)
        return np.setdiff1d(np.arange(records), self.places, assume_unique=True)

    def beside(self, others: pa.RecordBatch) -> pa.RecordBatch:
        """All rows in the order of the batch; `others` are the rows of the other records, in their order."""
        if not len(others):
            return self.rows
        places = np.concatenate([self.places, self.others(len(self.places) + len(others))])
        return pa.concat_batches([self.rows, others]).take(pa.array(np.argsort(places)))


@dataclass(frozen=True, slots=True)
class _Layout:
    """`texts` stand before, between and behind the values; `leaves` says whose each is, `kinds` what it may be."""

    texts: tuple[bytes, ...]
    leaves: tuple[int, ...]
    kinds: tuple[int, ...]
    objects: frozenset[_Path]


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where the values of the records of one layout are, by leaf and record; whole numbers themselves in `first`.

    `is_ascii`: all values are; the text between them is that of a record that is UTF-8.
    """

    layout: _Layout
    is_ascii: bool
    places: _Places
    first: _Places
    last: _Places
    present: npt.NDArray[np.bool_]


class Layouts:
    """What is known of the objects of one source, learned as they come.

    Args:
        schema: the columns, with the types that Arrow's JSON parser shall give.
        unknown_fields: whether objects may have fields without a column.

    Example:
        >>> layouts = Layouts(pa.schema([("id", pa.int64())]))
        >>> data = np.frombuffer(b'{"id": 1}{"id": 2}', np.uint8)
        >>> layouts.read(data, np.array([0, 9]), np.array([9, 18])).rows.to_pylist()
        [{'id': 1}, {'id': 2}]
    """

    def __init__(self, schema: pa.Schema, *, unknown_fields: bool = True) -> None:
        self._schema = schema
        self._unknown_fields = unknown_fields
        paths = {path: kind for field in schema for path, kind in _paths(field, ())}
        self._structs = {path for path, kind in paths.items() if pa.types.is_struct(kind)}
        self._leaves = {path: kind for path, kind in paths.items() if path not in self._structs}
        self._numbers = {path: number for number, path in enumerate(self._leaves)}
        self._whole = np.array([pa.types.is_integer(kind) for kind in self._leaves.values()], np.bool_)
        self._known: list[_Layout] = []
        self._seen = 0
        self._trials = _TRIALS if all(map(_can_be_cut, self._leaves.values())) else 0

    def read_values(self, values: pa.LargeBinaryArray) -> Fitted | None:
        """As `read`, of the `values` (none is null)."""
        _, offsets, data = values.buffers()
        if data is None:
            return None
        bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        return self.read(np.frombuffer(data, np.uint8), bounds[:-1], bounds[1:])

    def read(self, data: npt.NDArray[np.uint8], starts: _Places, ends: _Places) -> Fitted | None:
        """The rows of the records that have a layout.

        None where another parser is to read them all: there have been too few to be worth it, most have no layout, or
        a value may not fit its column.

        Args:
            data: holds the records.
            starts, ends: where each begins and ends.
        """
        self._seen += len(starts)
        if not len(starts) or not self._trials or self._seen < WORTHWHILE_RECORDS or not _kernel_is_there():
            return None
        cuts = self._cuts(data, starts, ends)
        fitted = None
        if sum(len(cut.places) for cut in cuts) * 2 >= len(starts):
            with contextlib.suppress(pa.ArrowException):
                fitted = self._fitted(data, [cut for cut in cuts if len(cut.places)])
        self._trials = self._trials - 1 if fitted is None else _TRIALS
        return fitted

    def _cuts(self, data: npt.NDArray[np.uint8], starts: _Places, ends: _Places) -> list[_Cut]:
        """The records by layout, those of the most common one first; the layouts are known from now on."""
        cuts: list[_Cut] = []
        left = np.arange(len(starts))
        untried = list(self._known)
        while len(left) and len(cuts) < 2 * _LAYOUTS:
            layout = untried.pop(0) if untried else self._learn(data[starts[left[0]] : ends[left[0]]].tobytes())
            if layout is None:
                break
            cuts.append(self._cut(layout, data, starts[left], ends[left], left))
            if len(cuts[-1].places) == len(left):
                break
            left = np.setdiff1d(left, cuts[-1].places, assume_unique=True)
        cuts.sort(key=lambda cut: len(cut.places), reverse=True)
        self._known = [cut.layout for cut in cuts[:_LAYOUTS]]
        return cuts

    def _learn(self, record: bytes) -> _Layout | None:
        """The layout of the record, or None where it is no object or none that can be cut into the columns."""
        try:
            json.loads(record.decode("utf-8"), object_pairs_hook=_without_repetition)
        except (ValueError, RecursionError):
            return None
        tokens = _tokens(record)
        if () not in tokens.objects or tokens.objects & self._leaves.keys() or tokens.lists & self._columns:
            return None
        if not self._unknown_fields and not tokens.paths <= self._columns:
            return None
        starts, ends = [first for _, first, _ in tokens.values], [last for _, _, last in tokens.values]
        return _Layout(
            texts=tuple(record[end:start] for end, start in zip([0, *ends], [*starts, len(record)], strict=True)),
            leaves=tuple(self._numbers.get(path, -1) for path, *_ in tokens.values),
            kinds=tuple(self._kinds(path) for path, *_ in tokens.values),
            objects=frozenset(tokens.objects),
        )

    @property
    def _columns(self) -> set[_Path]:
        return self._structs | self._leaves.keys()

    def _kinds(self, path: _Path) -> int:
        """The kinds of value that may stand at `path`, as bits."""
        if path in self._structs:
            return 1 << NULL
        if path not in self._leaves:
            return 1 << NULL | 1 << TEXT | 1 << NUMBER | 1 << BOOLEAN
        return 1 << NULL | 1 << _kind(self._leaves[path])

    def _cut(
        self, layout: _Layout, data: npt.NDArray[np.uint8], starts: _Places, ends: _Places, numbers: _Places
    ) -> _Cut:
        """What has the layout of the records that begin at `starts` and have these `numbers` in the batch."""
        from penstock.connectors.json.kernel import PADDING, match

        shape = (len(self._leaves), len(starts))
        rows = np.empty(len(starts), np.int64)
        first, last, present = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.bool_)
        fitting, is_ascii = match(
            data,
            starts,
            ends,
            np.frombuffer(b"".join((*layout.texts, bytes(PADDING))), np.uint8),
            np.cumsum([0, *map(len, layout.texts)]),
            np.array(layout.leaves, np.int64),
            np.array(layout.kinds, np.int64),
            self._whole,
            rows,
            first,
            last,
            present,
        )
        places = numbers[rows[:fitting]]
        return _Cut(layout, is_ascii, places, first[:, :fitting], last[:, :fitting], present[:, :fitting])

    def _fitted(self, data: npt.NDArray[np.uint8], cuts: list[_Cut]) -> Fitted:
        batches = [
            pa.RecordBatch.from_arrays(
                [self._array(data, cut, field, (field.name,)) for field in self._schema], schema=self._schema
            )
            for cut in cuts
        ]
        if len(cuts) == 1:
            return Fitted(batches[0], cuts[0].places, cuts[0].is_ascii)
        places = np.concatenate([cut.places for cut in cuts])
        order = np.argsort(places)
        rows = pa.concat_batches(batches).take(pa.array(order))
        return Fitted(rows, places[order], all(cut.is_ascii for cut in cuts))

    def _array(self, data: npt.NDArray[np.uint8], cut: _Cut, field: pa.Field, path: _Path) -> pa.Array:
        """The column at `path` of the records of one layout."""
        if pa.types.is_struct(field.type) and path in cut.layout.objects:
            children = [self._array(data, cut, child, (*path, child.name)) for child in field.type]
            return pa.StructArray.from_arrays(children, fields=list(field.type))
        number = self._numbers.get(path)
        if number is None or number not in cut.layout.leaves:
            return pa.nulls(len(cut.places), field.type)
        values = _Values(data, cut.first[number], cut.last[number], cut.present[number])
        if self._whole[number]:
            return values.as_integers().cast(field.type)
        return _converted(values.as_texts(field.type), field.type)


def _use_kernel() -> None:
    layouts, data = Layouts(pa.schema([("i", pa.int64()), ("s", pa.string())])), b'{"i": 1, "s": "a"}'
    (cut,) = layouts._cuts(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))
    layouts._fitted(np.frombuffer(data, np.uint8), [cut])


_loader: Final = BesideLoader(_use_kernel)


def _kernel_is_there() -> bool:
    _loader.begin()
    return _loader.is_done


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of one column: those that are `present` lie from `first` to `last` in `data`, the others are null.

    Of whole numbers `first` has the numbers.
    """

    data: npt.NDArray[np.uint8]
    first: _Places
    last: _Places
    present: npt.NDArray[np.bool_]

    def as_integers(self) -> pa.Int64Array:
        buffers = [self._validity, pa.py_buffer(self.first)]
        return pa.Array.from_buffers(pa.int64(), len(self.first), buffers)

    def as_texts(self, kind: pa.DataType) -> pa.Array:
        """As texts, of `kind` where their offsets fit it."""
        from penstock.connectors.json.kernel import WIDE, gather

        ends = np.cumsum(self.last - self.first)
        size = int(ends[-1])
        small = pa.types.is_string(kind) and size < _MOST_BYTES
        offsets = pa.allocate_buffer((len(self.first) + 1) * (4 if small else 8))
        bounds = np.frombuffer(offsets, np.int32 if small else np.int64)
        bounds[0], bounds[1:] = 0, ends
        out = pa.allocate_buffer(size + WIDE)
        gather(self.data, self.first, bounds, np.frombuffer(out, np.uint8))
        buffers = [self._validity, offsets, out.slice(0, size)]
        return pa.Array.from_buffers(pa.string() if small else pa.large_string(), len(self.first), buffers)

    @property
    def _validity(self) -> pa.Buffer | None:
        return None if self.present.all() else pa.array(self.present).buffers()[1]


def _converted(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The texts as values, as Arrow's JSON parser reads them: a timestamp may have a zone or not."""
    if not pa.types.is_timestamp(kind):
        return texts.cast(kind)
    try:
        return texts.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.int64()).cast(kind)


def _kind(column: pa.DataType) -> int:
    if pa.types.is_boolean(column):
        return BOOLEAN
    if pa.types.is_integer(column) or pa.types.is_floating(column):
        return NUMBER
    return TEXT


def _can_be_cut(column: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(column)
        or pa.types.is_integer(column)
        or pa.types.is_float32(column)
        or pa.types.is_float64(column)
        or pa.types.is_string(column)
        or pa.types.is_large_string(column)
        or pa.types.is_timestamp(column)
    )


def _paths(field: pa.Field, within: _Path) -> Iterator[tuple[_Path, pa.DataType]]:
    """The path of the column and, of a struct, those of the columns in it."""
    path = (*within, field.name)
    yield path, field.type
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _paths(child, path)


def _without_repetition(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a field occurs twice")


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What stands where in an object: its containers by path, and the path, begin and end of each other value."""

    objects: set[_Path]
    lists: set[_Path]
    values: list[tuple[_Path, int, int]]

    @property
    def paths(self) -> set[_Path]:
        return (self.objects | self.lists | {path for path, *_ in self.values}) - {()}


def _tokens(record: bytes) -> _Tokens:
    """The tokens of valid JSON."""
    tokens = _Tokens(set(), set(), [])
    members: list[str | int | None] = []  # of each open container, the one that is being read
    for token in _TOKEN.finditer(record):
        text = token.group()
        path = tuple(member for member in members if member is not None)
        if text == b"{":
            tokens.objects.add(path)
            members.append(None)
        elif text == b"[":
            tokens.lists.add(path)
            members.append(0)
        elif text in (b"}", b"]"):
            members.pop()
        elif text == b",":
            member = members[-1]
            members[-1] = member + 1 if isinstance(member, int) else None
        elif text == b":":
            pass
        elif members and members[-1] is None:
            members[-1] = json.loads(text.decode("utf-8"))
        else:
            tokens.values.append((path, *token.span()))
    return tokens

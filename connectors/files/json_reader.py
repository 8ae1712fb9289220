"""Reads a file of JSON lines (one object a line), block by block, with the types that the source fixed.

The file source calls it, once to infer the columns and once a file to read. Arrow parses whole blocks; where
one fails, the bad line is searched for and named. Blank lines are skipped and a missing field is null.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from penstock.connectors.files.formats import open_stream
from penstock.connectors.files.readers import (
    BLOCK_BYTES,
    LARGEST_RECORD_BYTES,
    BadRecords,
    Chunks,
    Columns,
    reading,
    widen_inferred,
)
from penstock.connectors.json.layouts import Layouts
from penstock.connectors.json.maps import MapTexts
from penstock.connectors.json.types import from_wire, wire_type
from penstock.connectors.records.batches import decode_whole, held_decimals
from penstock.connectors.records.json_fields import plain_reason, refused_field
from penstock.connectors.records.kept import with_kept
from penstock.connectors.times import parsed
from penstock.engine.elements import table_to_record_batch
from penstock.engine.errors import BadRowError, ConfigurationError, RecordError
from penstock.engine.schemas import plain_schema

_SHOWN_BYTES: Final = 120
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r"
_PARSE_ERRORS: Final = (pa.ArrowException, ValueError, TypeError)
_Places: TypeAlias = "npt.NDArray[np.int64]"


def check_json_types(schema: pa.Schema) -> None:
    """Whether JSON values can become the columns of `schema`.

    Raises:
        ConfigurationError: names the column that cannot be read from JSON.
    """
    for field in schema:
        wire = pa.schema([("x", wire_type(field.type))])
        try:
            table = _parse(b'{"x":null}\n', pj.ParseOptions(explicit_schema=wire))
            from_wire(table.column(0).combine_chunks(), field.type)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ConfigurationError(
                f"files: column {field.name!r}: JSON values cannot be read as {field.type} ({error}); "
                "declare another type and convert it later, or use Parquet"
            ) from error


def infer_json_schema(path: str) -> pa.Schema | None:
    """The fields of the file's first block with the types that it shows, or None if the file has no rows.

    Raises:
        RecordError: unreadable, a line is no JSON object, or a field has several types.
    """
    line = 1
    with reading(path):
        for block in _whole_lines(path):
            try:
                _check_text(path, block, line)
                objects = _objects(path, block, line)
            except RecordError:
                _refuse_bad_line(path, block, line)
                raise
            if len(objects[0]):
                return _infer_block(path, block, line)
            line += block.count(b"\n")
    return None


def json_chunks(path: str, columns: Columns, row: int = 0, bad_records: BadRecords = "fail") -> Chunks:
    """The rows of the file from number `row` (from 0) on, a block at a time; bad ones count where they are kept.

    Raises:
        RecordError: unreadable, or a line that does not fit; names file and line.
    """
    parser = _Parser(path, columns)
    parse = parser.parse_keeping if bad_records == "keep" else parser.parse
    line, skip = 1, row
    with reading(path):
        for block in _whole_lines(path):
            first_line = line
            line += block.count(b"\n")
            if skip and (lines := _count_lines(block)) <= skip:
                skip -= lines
                continue
            batch = parse(block, first_line).slice(skip)
            skip = 0
            del block  # while the rows are worked on, they alone are in memory
            yield batch


class _Parser:
    """Parses blocks of whole lines into rows of the source's schema."""

    def __init__(self, path: str, columns: Columns) -> None:
        self._path = path
        self._columns = columns
        self._wire = pa.schema([(field.name, wire_type(field.type)) for field in columns.schema])
        self._unexpected = "ignore" if columns.declared else "error"
        self._layouts = Layouts(self._wire, unknown_fields=columns.declared)
        self._maps = MapTexts(columns.schema)

    def parse(self, block: bytes, first_line: int) -> pa.RecordBatch:
        """The rows of `block`, which starts with line number `first_line`."""
        try:
            _check_text(self._path, block, first_line)
            return self._as_columns(self._by_layout(block, *_objects(self._path, block, first_line)))
        except (RecordError, *_PARSE_ERRORS) as error:
            raise self._bad_line(block, first_line, error) from error

    def parse_keeping(self, block: bytes, first_line: int) -> pa.RecordBatch:
        """A row for each line of `block` that is not blank; the bad ones are kept with what is wrong with them."""
        try:
            good = self.parse(block, first_line)
            columns = with_kept(good, {}, good.num_rows)
        except RecordError:
            numbered = [(at, line) for at, line in enumerate(block.split(b"\n"), first_line) if line.strip(_BLANK)]
            lines = pa.array([line for _, line in numbered], pa.large_binary())
            decoded = decode_whole(lines, self._columns.schema, self._parse_lines, _surely_bad, self._alone)
            bad = {}
            for one in decoded.bad:
                number, line = numbered[one.index]
                bad[one.index] = (f"{self._path}, line {number}: {one.reason}", line)
            columns = with_kept(decoded.rows, bad, len(numbered))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns.kept_schema)

    def _parse_lines(self, lines: pa.LargeBinaryArray) -> pa.RecordBatch:
        block = b"\n".join(lines.to_pylist())
        try:
            _check_text(self._path, block, 1)
            _objects(self._path, block, 1)
        except RecordError as error:
            raise ValueError(str(error)) from error
        return self._as_columns(self._by_arrow(block, len(lines)))

    def _alone(self, line: bytes, error: Exception) -> str:
        """What is wrong with a line that was parsed alone."""
        return self._reason(line, error) or f"{error}; {self._columns.remedy}"

    def _as_columns(self, wire: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [from_wire(array, field.type) for array, field in zip(wire.columns, self._columns.schema, strict=True)]
        return held_decimals(pa.RecordBatch.from_arrays(arrays, schema=self._columns.schema))

    def _by_layout(self, block: bytes, starts: _Places, ends: _Places) -> pa.RecordBatch:
        """The objects of known layouts by these, the others by Arrow's parser."""
        fitted = self._layouts.read(np.frombuffer(block, np.uint8), starts, ends)
        if fitted is None:
            return self._by_arrow(block, len(starts))
        others = fitted.others(len(starts))
        lines = b"\n".join([block[starts[line] : ends[line]] for line in others.tolist()])
        return fitted.beside(self._by_arrow(lines, len(others)))

    def _by_arrow(self, lines: bytes, objects: int) -> pa.RecordBatch:
        """The rows of so many `objects`.

        Raises:
            ValueError: Arrow takes objects from anywhere, and found more or fewer; a line holds several, or half one.
        """
        if not objects:
            return pa.RecordBatch.from_pylist([], self._wire)
        read = partial(self._read, self._with_entries(lines))
        # What was inferred of the first rows says nothing of how much the others may lose.
        declared = self._columns.declared
        rows = parsed(read, self._wire, from_wire) if declared else table_to_record_batch(read(self._wire))
        if len(rows) != objects:
            raise ValueError("lines and objects do not match")
        return rows

    def _read(self, lines: bytes, wire: pa.Schema) -> pa.Table:
        return _parse(lines, pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior=self._unexpected))

    def _with_entries(self, lines: bytes) -> bytes:
        """The lines with lists of entries in the place of maps."""
        if not self._maps.are_there:
            return lines
        written = (self._maps.as_entries(line.decode("utf-8")) for line in lines.split(b"\n") if line.strip(_BLANK))
        return "\n".join(written).encode("utf-8")

    def _bad_line(self, block: bytes, first_line: int, error: Exception) -> BadRowError:
        """The error for the first line of `block` that cannot be parsed, found by bisection."""
        lines = block.split(b"\n")
        low, high = 0, len(lines)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(lines[low:middle]):
                high = middle
            else:
                low = middle
        reason = _surely_bad(lines[low]) or self._alone(lines[low], error)
        return _line_error(self._path, first_line + low, reason, lines[low])

    def _fails(self, lines: Sequence[bytes]) -> bool:
        block = b"\n".join(lines)
        try:
            _check_text(self._path, block, 1)
            self._as_columns(self._by_arrow(block, len(_objects(self._path, block, 1)[0])))
        except (RecordError, *_PARSE_ERRORS):
            return True
        return False

    def _reason(self, line: bytes, cause: Exception) -> str | None:
        """Why the line cannot be parsed, or None if that cannot be told."""
        try:
            value = json.loads(line)
        except RecursionError:
            return None
        except ValueError as error:
            return f"no valid JSON ({error})"
        if refused := refused_field(line, self._columns.schema, cause):
            return f"{refused}; {self._columns.remedy}"
        if not self._columns.declared and (unknown := _unknown_field(value, self._columns.schema)):
            return (
                f"field {unknown!r} is not in the schema inferred from the beginning of the first file; "
                "declare `schema`, with the field to read it or without to ignore it"
            )
        return None


def _whole_lines(path: str) -> Generator[bytes, None, None]:
    """The file in blocks that end at the end of a line; a byte order mark at its start is dropped."""
    with open_stream(path) as stream:
        parts: list[bytes] = []
        first = True
        while chunk := stream.read(BLOCK_BYTES):
            if first:
                chunk, first = chunk.removeprefix(_BYTE_ORDER_MARK), False
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield b"".join([*parts, chunk[:cut]])
                parts = [chunk[cut:]]
            else:
                parts.append(chunk)
                if sum(map(len, parts)) > LARGEST_RECORD_BYTES:
                    raise RecordError(
                        f"{path}: a line is longer than {LARGEST_RECORD_BYTES} bytes; is it a file of JSON lines?"
                    )
        if rest := b"".join(parts):
            yield rest


def _parse(block: bytes, options: pj.ParseOptions | None) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=options,
    )


def _check_text(path: str, block: bytes, first_line: int) -> None:
    """Arrow takes JSON as it comes; text that is no UTF-8 would break whoever reads the column."""
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + block.count(b"\n", 0, error.start)
        start = block.rfind(b"\n", 0, error.start) + 1
        reason = _encoding_reason(error, error.start - start)
        raise _line_error(path, line, reason, block[start : start + _SHOWN_BYTES]) from None


def _encoding_reason(error: UnicodeDecodeError, place: int) -> str:
    return f"no valid UTF-8 ({error.reason} at byte {place + 1} of the line); re-encode the file"


def _surely_bad(line: bytes) -> str | None:
    """Why Arrow's parser must not get the line, or None."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return _encoding_reason(error, error.start)
    stripped = line.strip(_BLANK)
    return None if stripped.startswith(b"{") and stripped.endswith(b"}") else _shape_reason(line)


def _objects(path: str, block: bytes, first_line: int) -> tuple[_Places, _Places]:
    """Where the lines begin and end that are not blank; each of them must start and end as an object does.

    Arrow's parser crashes the process on a line such as `null`, so that nothing else may reach it.
    """
    data = np.frombuffer(block, np.uint8)
    starts, ends = _lines(data)
    blank = []
    for index in np.flatnonzero((data[starts] != ord("{")) | (data[ends - 1] != ord("}"))).tolist():
        line = block[starts[index] : ends[index]]
        stripped = line.strip(_BLANK)
        if not stripped:
            blank.append(index)
        elif reason := _surely_bad(line):
            raise _line_error(path, first_line + index, reason, line)
    return (np.delete(starts, blank), np.delete(ends, blank)) if blank else (starts, ends)


def _lines(block: npt.NDArray[np.uint8]) -> tuple[_Places, _Places]:
    """Where each line of the block begins and ends, its newline left out."""
    ends = np.flatnonzero(block == ord("\n"))
    if len(block) and block[-1] != ord("\n"):
        ends = np.append(ends, len(block))
    return np.concatenate([np.zeros(1, ends.dtype), ends[:-1] + 1])[: len(ends)], ends


def _count_lines(block: bytes) -> int:
    """How many lines of the block are not blank."""
    return sum(1 for line in block.split(b"\n") if line.strip(_BLANK))


def _shape_reason(line: bytes) -> str:
    return _syntax_reason(line) or 'no JSON object; each line must be one object, such as {"id": 1}'


def _syntax_reason(line: bytes) -> str | None:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no valid JSON ({error})"
    return None


def _infer_block(path: str, block: bytes, first_line: int) -> pa.Schema:
    try:
        schema = _parse(block, None).schema
    except pa.ArrowException as error:
        _refuse_bad_line(path, block, first_line)
        raise RecordError(
            f"{path}: the types of the fields cannot be inferred from the beginning of the file "
            f"({plain_reason(error)}); declare `schema`"
        ) from error
    return plain_schema(widen_inferred(schema), f"files: {path}")


def _refuse_bad_line(path: str, block: bytes, first_line: int) -> None:
    """Raise the error for the first line of `block` that is no JSON object, if there is one."""
    for index, line in enumerate(block.split(b"\n")):
        if line.strip(_BLANK) and (reason := _surely_bad(line) or _syntax_reason(line)):
            raise _line_error(path, first_line + index, reason, line)


def _unknown_field(value: object, within: pa.Schema | pa.DataType, prefix: str = "") -> str | None:
    """The path of a field that the types do not have, or None."""
    if isinstance(value, Mapping) and (isinstance(within, pa.Schema) or pa.types.is_struct(within)):
        types = {field.name: field.type for field in within}
        for name, inner in value.items():
            if name not in types:
                return f"{prefix}{name}"
            if found := _unknown_field(inner, types[name], f"{prefix}{name}."):
                return found
    elif isinstance(value, list) and not isinstance(within, pa.Schema) and pa.types.is_list(within):
        return next((found for item in value if (found := _unknown_field(item, within.value_type, prefix))), None)
    return None


def _line_error(path: str, line_number: int, reason: str, line: bytes) -> BadRowError:
    shown = line[:_SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    return BadRowError(f"{path}, line {line_number}: {reason}. The line starts with: {shown}")

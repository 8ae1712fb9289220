"""The CSV format: a record is one row of fields, in the order of the columns, without a header.

Connectors call it. Arrow parses whole batches at once, without a Python object for each record; where it refuses a
batch, the bad records are told apart by the same parser, so that a good one always gives the same row.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from penstock.connectors.records.batches import (
    PARSE_ERRORS,
    as_texts,
    decode_whole,
    encode_failure,
    error_text,
    fit_rows,
    held_decimals,
    join_values,
    utf8_reason,
)
from penstock.connectors.records.csv_parts import field_text, field_values, has_parts, in_parts
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.connectors.times import parsed, refuse_far_times
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import SchemaLike, parse_schema

_FORM: Final = "CSV records"
_LOCATED: Final = re.compile(r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?(?:Row #\d+: )?(.*)", re.DOTALL)
_SHOWN_CHARACTERS: Final = 300


class CsvFormat(RecordFormat):
    """One row of delimited fields a record.

    An unquoted empty field is null, and a quoted one is empty text; with `null` that text is null, and an empty field
    is empty text. Newlines at the end of a record are dropped; one
    within quotes belongs to the field. A record with more or fewer fields than columns, an unclosed quote, a second
    row, or a field that is no value of the column's type is bad. A null value (a tombstone) is a row of nulls.

    A row whose columns are all null is written as delimiters only, never as a tombstone. A field is quoted where it is
    empty text or what null is written as, or holds the delimiter, the quote, or a line end.

    Args:
        schema: the columns in the order of the fields, as `{"id": "int64", ...}` or an Arrow schema.
        delimiter: one character between fields.
        quote: one character around fields; within them it is doubled. None: there are no quotes, and text that holds a
            delimiter or a line end cannot be written.
        escape: a character before one that is meant as it is, such as a backslash; None: there is none.
        null: the unquoted text that is null.
        between: the text between the parts of lists and structs, and bytes are base64; None: there are no such columns.

    Raises:
        ConfigurationError: no column, one of a type that has no text, or a mark that is not one ASCII character or has
            two meanings.

    Example:
        >>> import pyarrow as pa
        >>> csv = CsvFormat({"id": "int64", "name": "string"})
        >>> csv.decode(pa.array([b"1,ann"], pa.large_binary())).rows.to_pylist()
        [{'id': 1, 'name': 'ann'}]
    """

    def __init__(
        self,
        schema: SchemaLike,
        delimiter: str = ",",
        quote: str | None = '"',
        *,
        escape: str | None = None,
        null: str = "",
        between: str | None = None,
    ) -> None:
        self._schema = parse_schema(schema, _FORM)
        check_marks(_FORM, delimiter=delimiter, quote=quote, escape=escape)
        self._delimiter, self._quote, self._escape, self._null, self._between = delimiter, quote, escape, null, between
        self._nulls = delimiter.join([null] * len(self._schema))
        for field in self._schema:
            for part in _parts(field) if between else [field]:
                _check_type(part)
        self._flat = pa.schema([_flat(field) for field in self._schema])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        return decode_whole(values, self._schema, self._parse, utf8_reason, self._reason)

    def _parse(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        text = as_texts(values)
        if text.null_count:
            text = text.fill_null(self._nulls)
        text = pc.ascii_rtrim(text, characters="\r\n")
        if len(text) > 1 and pc.any(pc.match_substring_regex(text, r"[\r\n]")).as_py():
            raise ValueError("a line end within a record: each must be parsed alone to see what belongs to it")
        if len(self._schema) > 1 and pc.any(pc.equal(text, self._scalar(""))).as_py():
            raise ValueError("the record is empty")  # which Arrow takes for a row of nulls
        # A line of nulls stands behind the records, which a quote left open in the last one would swallow. Without a
        # line end in a record, each gives one row at most, and the number of rows tells whether each gave one. Before
        # them stands a line that is skipped, because Arrow drops a byte order mark from the first.
        body = join_values(pa.concat_arrays([pa.array([""], text.type), text, self._last_line()]), "\n")
        rows = parsed(partial(self._read, body), self._flat)
        if rows.num_rows != len(values) + 1:
            raise ValueError("a quote is left open, or the record has more than one row")
        columns = [
            self._column(column, field)
            for column, field in zip(rows.slice(0, len(values)).columns, self._schema, strict=True)
        ]
        return held_decimals(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if self._between is None or not has_parts(field.type):
            return column
        try:
            return in_parts(column, field.type, self._between, field_values, self._null)
        except PARSE_ERRORS as error:
            raise ValueError(f"column {field.name!r}: {_shortened(error)}") from error

    def _last_line(self) -> pa.Array:
        return pa.array([f"{self._nulls}\n"], pa.large_string())

    def _read(self, body: pa.Buffer, types: pa.Schema) -> pa.Table:
        return pv.read_csv(
            pa.BufferReader(body),
            read_options=pv.ReadOptions(
                use_threads=False, column_names=self._schema.names, skip_rows=1, block_size=body.size + 1
            ),
            parse_options=pv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._quote or False,
                escape_char=self._escape or False,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            convert_options=pv.ConvertOptions(
                column_types=types,
                null_values=[self._null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _reason(self, value: bytes, error: Exception) -> str:
        located = _LOCATED.fullmatch(error_text(error))
        if located is None:
            return error_text(error)
        text = _shortened(error)
        return text if located[1] is None else f"column {self._schema.names[int(located[1])]!r}: {text}"

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        rows = fit_rows(rows, self._schema, _FORM)
        try:
            return self._lines(rows)
        except PARSE_ERRORS as error:
            raise encode_failure(rows, self._lines, _FORM, error) from error

    def _lines(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        refuse_far_times(rows)
        fields = [self._field(field_text(column, self._between or "")) for column in rows.columns]
        return pc.binary_join_element_wise(*fields, self._scalar(self._delimiter)).cast(pa.large_binary())

    def _field(self, text: pa.Array) -> pa.Array:
        """Texts as they stand between delimiters."""
        if self._escape:
            text = pc.replace_substring(text, self._escape, self._escape * 2)
        special = "".join(f"\\x{ord(character):02x}" for character in f"{self._delimiter}{self._quote or ''}\r\n")
        needed = pc.match_substring_regex(text, f"[{special}]")
        if self._quote is None:
            if pc.any(needed).as_py():
                raise ValueError("without quotes, text cannot hold a delimiter or a line end")
            return text.fill_null(self._null)
        needed = pc.or_(needed, pc.is_in(text, pa.array(["", self._null], text.type)))
        quote = self._scalar(self._quote)
        doubled = pc.replace_substring(text, self._quote, self._quote * 2)
        quoted = pc.binary_join_element_wise(quote, doubled, quote, self._scalar(""))
        return pc.if_else(needed, quoted, text).fill_null(self._null)

    def _scalar(self, text: str) -> pa.Scalar:
        return pa.scalar(text, pa.large_string())

    def describe(self) -> str:
        return "csv"


def _shortened(error: Exception) -> str:
    """What is wrong, without the place that Arrow gives it."""
    located = _LOCATED.fullmatch(error_text(error))
    text = error_text(error) if located is None else located[2]
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def check_marks(where: str, **marks: str | None) -> None:
    """Check the characters that stand between fields and in them, by their names; None: there is no such one.

    Raises:
        ConfigurationError: one is not one ASCII character, or has two meanings; it begins with `where`.
    """
    given = {name: character for name, character in marks.items() if character is not None}
    for name, character in given.items():
        is_one = isinstance(character, str) and len(character) == 1
        if not is_one or not character.isascii() or character in "\r\n\0":
            raise ConfigurationError(f"{where}: {name} must be one ASCII character on a line, not {character!r}")
    if len(set(given.values())) < len(given):
        first = next(iter(given.values()))
        raise ConfigurationError(f"{where}: {' and '.join(given)} cannot both be {first!r}")


def _flat(field: pa.Field) -> pa.Field:
    """The field as Arrow's parser gives it."""
    return field.with_type(pa.large_string()) if has_parts(field.type) else field


def _parts(field: pa.Field) -> list[pa.Field]:
    """What stands between the text between parts; bytes are text there."""
    kind = field.type
    inner = [kind.value_type] if pa.types.is_list(kind) else [one.type for one in kind] if _is_struct(kind) else [kind]
    return [field.with_type(pa.string() if pa.types.is_binary(one) else one) for one in inner]


def _is_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind))


def _check_type(field: pa.Field) -> None:
    reason = "it has no text"
    if not pa.types.is_nested(field.type) and "binary" not in str(field.type):
        try:
            pv.read_csv(pa.BufferReader(b"x,y\n,\n"), convert_options=pv.ConvertOptions(column_types={"x": field.type}))
            field_text(pa.nulls(1, field.type), "")
            return
        except PARSE_ERRORS as error:
            reason = str(error)
    raise ConfigurationError(
        f"{_FORM}: column {field.name!r} cannot be {field.type} ({reason}); declare 'string' and convert it in the "
        "program, or use another format"
    )

"""The formats that CREATE TABLE may name, as `format`, `key.format` and `value.format`, with the options of Flink's.

Tables of Kafka and of servers that send records use it. `debezium-json` is a format of changes:
`kafka/debezium.py` makes rows of its envelopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.engine.errors import ConfigurationError
from penstock.table_connectors.options import TableOptions

if TYPE_CHECKING:
    from penstock.connectors.json.texts import JsonForm
    from penstock.connectors.records.format import RecordFormat
    from penstock.table_connectors.formats.mending import CsvMarks

DEBEZIUM: Final = "debezium-json"
PLAIN: Final = ("json", "csv", "avro", "avro-confluent", "protobuf", "raw")
FORMATS: Final = (*PLAIN, DEBEZIUM)
"""All formats of values; keys take the plain ones."""
_OPTIONS: Final[Mapping[str, str]] = {
    "json.ignore-parse-errors": "'true' reads fields that cannot be read as null, and leaves out what is no object",
    "json.fail-on-missing-field": "'true': a record that lacks the field of a column is bad; one that is null is not",
    "json.timestamp-format.standard": "ISO-8601, or SQL: how times are written; both forms are read",
    "json.map-null-key.mode": "FAIL, DROP or LITERAL; no key of a map is null here",
    "json.map-null-key.literal": "a text; no key of a map is null here",
    "json.encode.decimal-as-plain-number": "'true' writes decimals as numbers; without it they are texts",
    "json.encode.ignore-null-fields": "'true' writes no fields that are null",
    "json.decode.json-parser.enabled": "how Flink parses; nothing changes by it",
    "csv.field-delimiter": "one character between fields; , without it",
    "csv.quote-character": 'one character around fields; " without it',
    "csv.disable-quote-character": "'true': there are no quotes",
    "csv.escape-character": "one character before those that are meant as they are",
    "csv.null-literal": "the text that is null; without it, an empty field is",
    "csv.array-element-delimiter": "the text between parts of ARRAY and ROW; ; without it",
    "csv.allow-comments": "'true' leaves out records that begin with #; needs csv.ignore-parse-errors",
    "csv.ignore-parse-errors": "'true' reads fields that cannot be read as null, and leaves out what is no row",
    "avro-confluent.url": "the schema registry's",
    "avro-confluent.subject": "under which the schema is registered",
    "avro-confluent.basic-auth.user-info": "user:password",
    "protobuf.message-class-name": "the full name of the message, such as shop.Order",
    "protobuf.descriptor-file": "what protoc --include_imports --descriptor_set_out writes",
    "debezium-json.ignore-parse-errors": "'true' reads fields that cannot be read as null; leaves other records out",
    "debezium-json.schema-include": "'true' where the envelope is in the field `payload`",
    "debezium-json.timestamp-format.standard": "as json.timestamp-format.standard",
    "debezium-json.map-null-key.mode": "as json.map-null-key.mode",
    "debezium-json.map-null-key.literal": "as json.map-null-key.literal",
    "debezium-json.encode.decimal-as-plain-number": "as json.encode.decimal-as-plain-number",
    "debezium-json.encode.ignore-null-fields": "as json.encode.ignore-null-fields",
}
_LENIENT: Final = ("json", "csv", DEBEZIUM)
"""The formats that may go on where a record cannot be read."""
CSV_DELIMITER: Final = "csv.field-delimiter"
"""The option that says what stands between the fields of CSV."""
FORMAT_OPTIONS: Final[Mapping[str, str]] = {
    "format": f"one of {', '.join(FORMATS)}",
    "value.format": "the same",
    "key.format": f"of the record's key: one of {', '.join(PLAIN)}",
    **{f"{prefix}{option}": text for prefix in ("", "value.", "key.") for option, text in _OPTIONS.items()},
}
"""What SHOW CONNECTORS says of them."""
FORMAT_CHOICES: Final = {"format": FORMATS, "value.format": FORMATS, "key.format": PLAIN}
"""The options that choose formats."""
LIVE_FORMAT_OPTIONS: Final[Mapping[str, str]] = {
    "format": f"one of {', '.join(PLAIN)}",
    **{key: text for key, text in _OPTIONS.items() if not key.startswith(DEBEZIUM)},
}
"""The same of servers that send records."""
FILE_FORMAT_OPTIONS: Final[Mapping[str, str]] = {
    key: text
    for key, text in _OPTIONS.items()
    if key.endswith(".ignore-parse-errors") or (key.startswith("csv.") and key != "csv.allow-comments")
    if not key.startswith(DEBEZIUM)
}
"""The same of files."""


def value_format(options: TableOptions, known: tuple[str, ...] = FORMATS) -> tuple[str, str]:
    """The format of a table's values, and what its options begin with.

    Args:
        options: of the table.
        known: the formats that it may have.

    Raises:
        SqlValidationError: none, two, or one that there is not; or an option of another format.
    """
    given = [option for option in ("format", "value.format") if options.get(option) is not None]
    if len(given) == 2:
        raise options.invalid("value.format", "'format' and 'value.format' mean the same; leave one out")
    option = given[0] if given else "format"
    name = options.choice(option, known)
    prefix = option.removesuffix("format")
    check_own(options, prefix, name)
    return name, prefix


def key_format(options: TableOptions) -> str | None:
    """The format of a table's keys; None: they are not read and not written."""
    if options.get("key.format") is None:
        return None
    name = options.choice("key.format", PLAIN)
    check_own(options, "key.", name)
    return name


def leaves_bad_out(options: TableOptions, name: str, prefix: str) -> bool:
    """Whether records that cannot be read are left out, and fields null; else they fail the job."""
    return name in _LENIENT and options.flag(f"{prefix}{name}.ignore-parse-errors")


def remedy(name: str, prefix: str) -> str:
    """What to do about a record that cannot be read."""
    option = f", or set '{prefix}{name}.ignore-parse-errors' to 'true'" if name in _LENIENT else ""
    return f"mend what writes it{option}"


def record_format(options: TableOptions, name: str, prefix: str, schema: pa.Schema, subject: str) -> RecordFormat:
    """A plain format for some columns.

    Args:
        options: of the table.
        name: of the format.
        prefix: before the format's options: nothing, `value.` or `key.`.
        schema: the columns.
        subject: of the schema registry, where the options name none.

    Raises:
        SqlValidationError: an option, or a column of a type, that the format does not take.
    """
    with options.placed():
        match name:
            case "json":
                return _json(options, prefix, schema)
            case "csv":
                return _csv(options, prefix, schema)
            case "raw":
                return _raw(options, schema)
            case "protobuf":
                from penstock.table_connectors.formats.protobuf import protobuf_columns

                return protobuf_columns(options, prefix, schema)
            case "avro":
                from penstock.connectors.records.avro_format import AvroFormat

                return AvroFormat(_avro_schema(schema))
        return _confluent(options, prefix, schema, subject)


def check_own(options: TableOptions, prefix: str, name: str) -> None:
    """Refuses the options of formats that a table does not have.

    Raises:
        SqlValidationError: there is one.
    """
    for other in FORMATS:
        for option in options.table.options:
            if other != name and option.startswith(f"{prefix}{other}."):
                raise options.invalid(option, f"{option!r} is an option of the format {other!r}; here it is {name!r}")


def _json(options: TableOptions, prefix: str, schema: pa.Schema) -> RecordFormat:
    from penstock.connectors.records.json_format import JsonFormat
    from penstock.table_connectors.formats.mending import JsonMend, MendedFormat
    from penstock.table_connectors.formats.required_fields import RequiredFields

    own = f"{prefix}json"
    options.flag(f"{own}.decode.json-parser.enabled")
    found = JsonFormat(schema, json_form(options, own))
    lenient = leaves_bad_out(options, "json", prefix)
    if not options.flag(f"{own}.fail-on-missing-field"):
        return MendedFormat(found, JsonMend(schema)) if lenient else found
    if lenient:
        raise options.invalid(f"{own}.fail-on-missing-field", f"'{own}.ignore-parse-errors' says the contrary")
    return RequiredFields(found)


def json_form(options: TableOptions, own: str) -> JsonForm | None:
    """How a table's values are written as JSON; None: in the usual form.

    Args:
        options: of the table.
        own: what the format's options begin with, such as `value.json`.

    Raises:
        SqlValidationError: an option has a value that it does not take.
    """
    from penstock.connectors.json.texts import JsonForm

    options.choice(f"{own}.map-null-key.mode", ("FAIL", "DROP", "LITERAL"), "FAIL")
    form = JsonForm(
        options.choice(f"{own}.timestamp-format.standard", ("ISO-8601", "SQL"), "ISO-8601"),
        "numbers" if options.flag(f"{own}.encode.decimal-as-plain-number") else "texts",
        "left out" if options.flag(f"{own}.encode.ignore-null-fields") else "written",
    )
    return None if form == JsonForm() else form


def csv_marks(options: TableOptions, prefix: str) -> CsvMarks:
    """What the options say of CSV.

    Args:
        options: of the table.
        prefix: before the format's options.

    Raises:
        SqlValidationError: they contradict each other.
    """
    from penstock.table_connectors.formats.mending import CsvMarks

    own = f"{prefix}csv"
    quote = options.get(f"{own}.quote-character")
    if options.flag(f"{own}.disable-quote-character"):
        if quote is not None:
            raise options.invalid(
                f"{own}.quote-character", f"'{own}.disable-quote-character' says that there is no such character"
            )
    else:
        quote = quote or '"'
    for name in ("field-delimiter", "quote-character", "escape-character"):
        mark = (options.get(f"{own}.{name}") or ",").replace("\\t", "\t")
        if len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
            raise options.invalid(f"{own}.{name}", f"'{own}.{name}' takes one ASCII character on a line, not {mark!r}")
    return CsvMarks(
        (options.get(f"{own}.field-delimiter") or ",").replace("\\t", "\t"),
        quote,
        options.get(f"{own}.escape-character"),
        options.get(f"{own}.null-literal") or "",
        element_delimiter(options, prefix),
    )


def _csv(options: TableOptions, prefix: str, schema: pa.Schema) -> RecordFormat:
    from penstock.table_connectors.formats.mending import CommentedFormat, CsvMend, MendedFormat

    own, marks = f"{prefix}csv", csv_marks(options, prefix)
    lenient = leaves_bad_out(options, "csv", prefix)
    comments = options.flag(f"{own}.allow-comments")
    if comments and not lenient:
        raise options.invalid(f"{own}.allow-comments", f"it needs '{own}.ignore-parse-errors' = 'true' beside it")
    found = marks.format(schema)
    mended = MendedFormat(found, CsvMend(schema, marks)) if lenient else found
    return CommentedFormat(mended) if comments else mended


def element_delimiter(options: TableOptions, prefix: str) -> str:
    """The text between the parts of ARRAY and ROW in CSV."""
    return options.get(f"{prefix}csv.array-element-delimiter") or ";"


def _raw(options: TableOptions, schema: pa.Schema) -> RecordFormat:
    from penstock.connectors.records.raw import RawFormat

    if len(schema) != 1:
        raise options.invalid(
            "format", f"the format 'raw' has one column, not {len(schema)}: {', '.join(schema.names)}"
        )
    return RawFormat(schema.names[0], schema.field(0).type)


def _avro_schema(schema: pa.Schema) -> dict[str, object]:
    """The Avro record of the columns, each of which may be null."""
    from penstock.connectors.files.avro_files import avro_record

    try:
        return avro_record({field.name: field.type for field in schema}, "record")
    except ValueError as error:
        raise ConfigurationError(
            f"avro: {str(error) or 'a column has a type that Avro does not have; cast it'}"
        ) from None


def _confluent(options: TableOptions, prefix: str, schema: pa.Schema, subject: str) -> RecordFormat:
    from penstock.connectors.records.registry import ConfluentSchemaRegistry, RegistryAvroFormat

    own = f"{prefix}avro-confluent"
    url = options.required(f"{own}.url", "the format 'avro-confluent'")
    user, colon, password = (options.get(f"{own}.basic-auth.user-info") or "").partition(":")
    registry = ConfluentSchemaRegistry(url, user, password) if colon else ConfluentSchemaRegistry(url)
    return RegistryAvroFormat(_avro_schema(schema), registry, options.get(f"{own}.subject") or subject)

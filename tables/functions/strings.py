"""Functions of texts and bytes.

Places count from 1, in Unicode code points. Where Arrow has a kernel with the same meaning it is used; the others run
over Python values.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import re
import string
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.casts import parse_double
from penstock.tables.functions.common_types import common_type
from penstock.tables.functions.java_formats import formatted
from penstock.tables.functions.java_patterns import compiled, java_pattern
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row, kernel, once_each
from penstock.tables.types import SqlType

_MOST_PATTERNS: Final = 256
_UTF_16: Final = "UTF-16"
_SIMILAR_SIGNS: Final = "%_|*+?{}()[]^-"


@lru_cache(_MOST_PATTERNS)
def like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression for a pattern of LIKE.

    Raises:
        ValueError: an escape before something else than `%`, `_` or itself.
    """
    return re.compile(_translated(pattern, escape, "%_", re.escape), re.DOTALL)


@lru_cache(_MOST_PATTERNS)
def _similar_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression for a pattern of SIMILAR TO, which is one but for `%`, `_` and the escape.

    Raises:
        ValueError: an escape before something that means nothing more, or no regular expression.
    """
    expression = _translated(pattern, escape, _SIMILAR_SIGNS, str)
    try:
        return re.compile(expression, re.DOTALL | re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} of SIMILAR TO is wrong: {error}") from None


def _translated(pattern: str, escape: str | None, signs: str, other: Callable[[str], str]) -> str:
    """A pattern as a regular expression.

    Args:
        pattern: with `%` for any text and `_` for any character.
        escape: takes the meaning from one of `signs`, or itself.
        signs: that have one.
        other: gives the expression for every other character.
    """
    parts, place = [], 0
    while place < len(pattern):
        sign = pattern[place]
        if escape and sign == escape:
            place += 1
            if place == len(pattern) or pattern[place] not in (*signs, escape):
                raise ValueError(f"the pattern {pattern!r} has an escape {escape!r} before nothing that needs it")
            parts.append(re.escape(pattern[place]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or other(sign))
        place += 1
    return "".join(parts)


def _like(value: str, pattern: str, escape: str | None = None) -> bool:
    return like_pattern(pattern, escape).fullmatch(value) is not None


def _like_column(call: CallValues) -> pa.Array:
    if len(call.columns) == 2 and s.is_constant(call.columns[1]):
        pattern = call.columns[1][0].as_py()
        if pattern is not None and "\\" not in pattern and not pa.types.is_null(call.columns[0].type):
            return pc.match_like(call.columns[0], pattern)
    return by_row(_like)(call)


def _similar(value: str, pattern: str, escape: str | None = None) -> bool:
    return _similar_pattern(pattern, escape).fullmatch(value) is not None


def _checked_pattern(read: Callable[[str, str | None], object]) -> s.Check:
    """A check of a pattern with its escape, where both are literals."""

    def check(literals: Sequence[object]) -> None:
        pattern, *escape = literals[1:]
        if not isinstance(pattern, str) or (escape and not isinstance(escape[0], str)):
            return
        try:
            read(pattern, str(escape[0]) if escape else None)
        except ValueError as error:
            raise s.MisfitError(1, f": {error}") from None

    return check


def _substring(value: str | bytes, start: int, length: int | None = None) -> str | bytes | None:
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else (0 if start == 0 else len(value) + start)
    if begin < 0 or begin >= len(value):
        return value[:0]
    return value[begin:] if length is None else value[begin : begin + length]


def _trim(side: str, signs: str, value: str) -> str:
    if side == "LEADING":
        return value.lstrip(signs)
    return value.rstrip(signs) if side == "TRAILING" else value.strip(signs)


def _blanks_off(strip: Callable[[str, str], str]) -> Callable[..., str]:
    """Without signs it takes blanks alone off, and no other white space."""
    return lambda value, signs=" ": strip(value, signs)


def _concat(call: CallValues) -> pa.Array:
    texts = [column.cast(pa.string()) for column in call.columns]
    return pc.binary_join_element_wise(*texts, "") if texts else pa.array([""] * call.rows)


def _concat_ws(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
    joined = [None if row[0] is None else row[0].join(v for v in row[1:] if v is not None) for row in rows]
    return pa.array(joined, pa.string())


def _pad(left: bool) -> Callable[[str, int, str], str | None]:
    def pad(value: str, length: int, filler: str) -> str | None:
        if length < 0 or (not filler and length > len(value)):
            return None
        missing = length - len(value)
        if missing <= 0:
            return value[:length]
        filled = (filler * (missing // len(filler) + 1))[:missing]
        return filled + value if left else value + filled

    return pad


def _regexp_replace(value: str, pattern: str, replacement: str) -> str | None:
    found = java_pattern(pattern)
    # What stands for it means itself: Flink knows no groups there.
    return None if found is None else found.sub(lambda _: replacement, value)


def _regexp_extract(value: str, pattern: str, group: int = 0) -> str | None:
    found = java_pattern(pattern)
    match = None if found is None else found.search(value)
    return None if match is None or not 0 <= group <= match.re.groups else match[group]


def _regexp_extract_all(value: str, pattern: str, group: int = 1) -> list[str] | None:
    found = java_pattern(pattern)
    if found is None or not 0 <= group <= found.groups:
        return None
    return [match[group] for match in found.finditer(value)]


def _regexp(value: str, pattern: str) -> bool:
    found = java_pattern(pattern)
    # The empty one fits nothing, as in Flink.
    return bool(pattern) and found is not None and found.search(value) is not None


def _regexp_count(value: str, pattern: str) -> int | None:
    found = java_pattern(pattern)
    return None if found is None else sum(1 for _ in found.finditer(value))


def _regexp_instr(value: str, pattern: str) -> int | None:
    found = java_pattern(pattern)
    match = None if found is None else found.search(value)
    return None if found is None else 0 if match is None else match.start() + 1


def _regexp_substr(value: str, pattern: str) -> str | None:
    return _regexp_extract(value, pattern)


def _replace(call: CallValues) -> pa.Array:
    texts, *others = call.columns
    if call.literals >= {1, 2} and call.rows:
        sought, instead = (column[0].as_py() for column in others)
        if sought and instead is not None:
            return pc.replace_substring(texts, sought, instead)
    return by_row(str.replace)(call)


def _locate(sought: str, value: str, start: int = 1) -> int:
    return value.find(sought, max(start - 1, 0)) + 1 if sought else 1


def _instr(value: str, sought: str, start: int = 1, which: int = 1) -> int:
    """Where a text occurs for the `which`-th time from `start` on; back from the end where that is negative."""
    if which < 1:
        raise ValueError(f"INSTR: which occurrence is sought counts from 1, and is {which}")
    if not sought:
        return 1
    if not 0 < abs(start) <= len(value):
        return 0
    place = start - 1 if start > 0 else start + len(value)
    for number in range(which):
        if start > 0:
            place = value.find(sought, place + (number > 0))
        else:
            # It has to end there, or before where the last one did.
            place = value.rfind(sought, 0, place + (len(sought) - 1 if number else 1))
        if place < 0:
            return 0
    return place + 1


def _split_index(value: str, separator: str | int | None, place: int) -> str | None:
    if isinstance(separator, int):
        separator = chr(separator) if 0 < separator < 256 else None
    if place < 0 or separator is None or not value:
        return None
    # At white space where it is empty, as in Java's StringUtils.
    parts = value.split(separator) if separator else re.split(r"\s", value)
    return parts[place] if place < len(parts) else None


@once_each
def _split_index_column(call: CallValues) -> pa.Array:
    texts, separators, places = call.columns
    if not pa.types.is_string(texts.type) or not pa.types.is_string(separators.type):
        return by_row(_split_index)(call)
    if not s.is_constant(separators) or not s.is_constant(places):
        return by_row(_split_index)(call)
    separator, place = separators[0].as_py(), places[0].as_py()
    if separator is None or place is None or place < 0:
        return pa.nulls(call.rows, pa.string())
    if not separator:
        return by_row(_split_index)(call)
    parts = pc.split_pattern(texts, pattern=separator, max_splits=place + 1)
    offsets = parts.offsets.cast(pa.int64()).to_numpy()
    is_there = pc.greater(pc.list_value_length(parts), place)
    # An empty text has no parts, unlike Arrow's.
    is_there = pc.and_(is_there, pc.greater(pc.binary_length(texts), 0)).fill_null(False)
    missing = ~is_there.to_numpy(zero_copy_only=False)
    return parts.values.take(pa.array(offsets[:-1] + place, mask=missing))


def _str_to_map(value: str, between: str = ",", within: str = "=") -> list[tuple[str, str | None]]:
    pairs: dict[str, str | None] = {}
    parts = compiled(between).split(value)
    while parts and not parts[-1]:
        # As Java splits: nothing at the end is no part.
        parts.pop()
    for part in parts:
        halves = compiled(within).split(part, maxsplit=1)
        pairs[halves[0]] = halves[1] if len(halves) == 2 else None
    return list(pairs.items())


def _are_delimiters(literals: Sequence[object]) -> None:
    for place, text in enumerate(literals[1:], start=1):
        if isinstance(text, str):
            try:
                compiled(text)
            except re.error as error:
                raise s.MisfitError(place, f": {text!r} is no regular expression: {error}") from None
            except ValueError as error:
                raise s.MisfitError(place, f": {error}") from None


def _from_base64(value: str) -> str | None:
    # Signs that fill up the end may be missing, all of them.
    filled = value if "=" in value else value + "=" * (-len(value) % 4)
    try:
        return base64.b64decode(filled, validate=True).decode("utf-8", "replace")
    except ValueError:
        return None


def _unhex(value: str) -> bytes | None:
    # Of an odd number of digits the first one is not read, as in Flink.
    start, digits = (b"\0", value[1:]) if len(value) % 2 else (b"", value)
    return start + bytes.fromhex(digits) if all(sign in string.hexdigits for sign in value) else None


def _elt(place: int, *values: str | bytes) -> str | bytes | None:
    return values[place - 1] if 1 <= place <= len(values) else None


def _alike(given: Sequence[SqlType]) -> Sequence[SqlType]:
    """Texts, or bytes."""
    first, other = given[0], given[1]
    if common_type([first, other]) is None:
        raise s.MisfitError(1, f" takes {first.with_nullable(True)} and the like here, not {other}; cast it")
    return given


def _choices_alike(given: Sequence[SqlType]) -> Sequence[SqlType]:
    """A number, and texts or bytes."""
    for place in range(2, len(given)):
        try:
            _alike([given[1], given[place]])
        except s.MisfitError as error:
            raise s.MisfitError(place, str(error)) from None
    return given


def _elt_type(given: Sequence[SqlType]) -> SqlType:
    return common_type(given[1:]) or t.STRING


def _elt_column(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
    return pa.array([None if row[0] is None else _elt(*row) for row in rows], t.arrow_type(call.result))


def _printf(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.with_numbers().columns), strict=True)
    kinds, zone = call.types[1:], call.session.zone
    texts = [None if row[0] is None else formatted(row[0], row[1:], kinds, zone) for row in rows]
    return pa.array(texts, pa.string())


def _is_double(value: str) -> bool:
    try:
        parse_double(value.strip())
    except ValueError:
        return False
    return True


def _digest(name: str) -> Callable[[str], str]:
    return lambda value: hashlib.new(name, value.encode(), usedforsecurity=False).hexdigest()


def _sha2(value: str, bits: int) -> str | None:
    return _digest(f"sha{bits}")(value) if bits in (224, 256, 384, 512) else None


def _cased(on_ascii: Callable[[pa.Array], pa.Array], on_text: Callable[[str], str]) -> s.Evaluate:
    """Arrow maps each character to one; beyond ASCII some become several."""
    by_value = by_row(on_text)

    def evaluate(call: CallValues) -> pa.Array:
        column = call.columns[0]
        if pa.types.is_null(column.type):
            return column
        return on_ascii(column) if pc.all(pc.string_is_ascii(column)).as_py() is not False else by_value(call)

    return evaluate


def _capitalised(value: str) -> str:
    # To Flink, letters are those of ASCII: others stay, and end a word.
    return re.sub(r"[A-Za-z0-9]+", lambda word: word[0].capitalize(), value)


def _charset(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"{name!r} is no charset; there are UTF-8, UTF-16, ISO-8859-1, US-ASCII, ...") from None
    return name


def _decode(value: bytes, charset: str) -> str:
    if charset.upper() == _UTF_16:
        order = "le" if value.startswith(codecs.BOM_UTF16_LE) else "be"
        return value.decode(f"utf-16-{order}", "replace").removeprefix("\ufeff")
    return value.decode(_charset(charset), "replace")


def _encode(value: str, charset: str) -> bytes:
    if charset.upper() == _UTF_16:
        # In Java's order of bytes, with a mark before them.
        return codecs.BOM_UTF16_BE + value.encode("utf-16-be", "replace") if value else b""
    return value.encode(_charset(charset), "replace")


def _overlay(value: str, new: str, start: int, length: int | None = None) -> str:
    if not 0 < start <= len(value):
        return value
    taken = len(new) if length is None else length
    # Where nothing is taken out, nothing comes behind what is put in, as in Flink.
    return value[: start - 1] + new + (value[start - 1 + taken :] if taken > 0 else "")


def _to_base64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _function(
    name: str,
    parameters: tuple[str, ...],
    kind: SqlType,
    function: Callable[..., object],
    *,
    nullable: bool = True,
    optional: int = 0,
    check: s.Check | None = None,
) -> ScalarFunction:
    return ScalarFunction(
        name, parameters, always(kind), by_row(function), nullable=nullable, optional=optional, check=check
    )


_given = partial(_function, nullable=False)
"""Of a function that has a value for all that is not null."""


def _part(name: str, function: Callable[[str, int], str]) -> ScalarFunction:
    """Of a function that gives so many characters of a text."""
    return ScalarFunction(name, (s.TEXT, s.INTEGER), s.part_of_first, by_row(function), nullable=True)


def _overlaid(given: Sequence[SqlType]) -> SqlType:
    joined = s.joined_texts(given[:2])
    return SqlType(t.Kind.VARCHAR, precision=joined.precision)


def _plain(name: str, parameters: tuple[str, ...], kind: SqlType, evaluate: s.Evaluate) -> ScalarFunction:
    return ScalarFunction(name, parameters, always(kind), evaluate)


_T, _I = s.TEXT, s.INTEGER
_IS_PATTERN: Final = s.checked_text(1, java_pattern)
_DIGITS_OF_DIGEST: Final = {"MD5": 32, "SHA1": 40, "SHA224": 56, "SHA256": 64, "SHA384": 96, "SHA512": 128}
"""Hexadecimal digits."""

FUNCTIONS: Final = (
    ScalarFunction("UPPER", (_T,), s.like_first, _cased(pc.utf8_upper, str.upper)),
    ScalarFunction("LOWER", (_T,), s.like_first, _cased(pc.utf8_lower, str.lower)),
    *(_plain(name, (_T,), t.INT, kernel(pc.utf8_length)) for name in ("CHAR_LENGTH", "CHARACTER_LENGTH", "LENGTH")),
    _plain("OCTET_LENGTH", (_T,), t.INT, kernel(pc.binary_length)),
    ScalarFunction("REVERSE", (_T,), always(t.STRING), kernel(pc.utf8_reverse), nullable=True),
    ScalarFunction("TRIM", (s.KEYWORD, _T, _T), lambda given: s.part_of_first(given[2:]), by_row(_trim)),
    ScalarFunction("LTRIM", (_T, _T), s.part_of_first, by_row(_blanks_off(str.lstrip)), optional=1),
    ScalarFunction("RTRIM", (_T, _T), s.part_of_first, by_row(_blanks_off(str.rstrip)), optional=1),
    ScalarFunction("BTRIM", (_T, _T), always(t.STRING), by_row(_blanks_off(str.strip)), optional=1),
    ScalarFunction("||", (_T, _T), s.joined_texts, _concat),
    ScalarFunction("CONCAT", (_T,), always(t.STRING), _concat, variadic=True),
    ScalarFunction("CONCAT_WS", (_T,), always(t.STRING), _concat_ws, variadic=True),
    *(
        ScalarFunction(
            name,
            (_T, _T, _T),
            always(t.BOOLEAN),
            evaluate,
            optional=1,
            check=_checked_pattern(pattern),
        )
        for name, evaluate, pattern in (
            ("LIKE", _like_column, like_pattern),
            ("SIMILAR", by_row(_similar), _similar_pattern),
        )
    ),
    *(
        ScalarFunction(name, (s.TEXT_OR_BYTES, _I, _I), s.part_of_first, by_row(_substring), optional=1, nullable=True)
        for name in ("SUBSTRING", "SUBSTR")
    ),
    _part("LEFT", lambda v, n: v[: max(n, 0)]),
    _part("RIGHT", lambda v, n: v[-n:] if n > 0 else ""),
    _given("REPEAT", (_T, _I), t.STRING, lambda v, n: v * max(n, 0)),
    ScalarFunction("REPLACE", (_T, _T, _T), always(t.STRING), _replace),
    _given(
        "TRANSLATE",
        (_T, _T, _T),
        t.STRING,
        lambda v, a, b: v.translate({ord(c): b[i] if i < len(b) else None for i, c in reversed(list(enumerate(a)))}),
    ),
    ScalarFunction("OVERLAY", (_T, _T, _I, _I), _overlaid, by_row(_overlay), optional=1),
    _given("POSITION", (_T, _T), t.INT, lambda sought, v: v.find(sought) + 1),
    ScalarFunction(
        "INSTR",
        (_T, _T, _I, _I),
        always(t.INT),
        by_row(_instr),
        optional=2,
        fallible=True,
    ),
    _given("LOCATE", (_T, _T, _I), t.INT, _locate, optional=1),
    _given("LPAD", (_T, _I, _T), t.STRING, _pad(True)),
    _given("RPAD", (_T, _I, _T), t.STRING, _pad(False)),
    ScalarFunction("INITCAP", (_T,), s.like_first, by_row(_capitalised)),
    # Of bytes beyond ASCII what Flink gives: they are signed in Java.
    _given("ASCII", (_T,), t.INT, lambda v: int.from_bytes(v.encode()[:1], "big", signed=True)),
    _function("CHR", (_I,), t.STRING, lambda n: chr(n % 256) if n >= 0 else ""),
    *(
        ScalarFunction(name, (s.TEXT_OR_BYTES, s.TEXT_OR_BYTES), always(t.BOOLEAN), by_row(tells), coerce=_alike)
        for name, tells in (
            ("STARTSWITH", lambda value, start: value.startswith(start)),
            ("ENDSWITH", lambda value, end: value.endswith(end)),
        )
    ),
    ScalarFunction("SPLIT_INDEX", (_T, s.TEXT_OR_INTEGER, _I), always(t.STRING), _split_index_column, nullable=True),
    _given("REGEXP", (_T, _T), t.BOOLEAN, _regexp, check=_IS_PATTERN),
    _given("REGEXP_REPLACE", (_T, _T, _T), t.STRING, _regexp_replace, check=_IS_PATTERN),
    _function("REGEXP_EXTRACT", (_T, _T, _I), t.STRING, _regexp_extract, optional=1, check=_IS_PATTERN),
    _function("REGEXP_COUNT", (_T, _T), t.INT, _regexp_count, check=_IS_PATTERN),
    _function("REGEXP_INSTR", (_T, _T), t.INT, _regexp_instr, check=_IS_PATTERN),
    _function("REGEXP_SUBSTR", (_T, _T), t.STRING, _regexp_substr, check=_IS_PATTERN),
    _function(
        "REGEXP_EXTRACT_ALL",
        (_T, _T, _I),
        t.array(t.STRING),
        _regexp_extract_all,
        optional=1,
        check=_IS_PATTERN,
    ),
    _given("SPLIT", (_T, _T), t.array(t.STRING), lambda v, sep: v.split(sep) if sep else list(v)),
    _function(
        "STR_TO_MAP",
        (_T, _T, _T),
        SqlType(t.Kind.MAP, parts=(t.STRING, t.STRING)),
        _str_to_map,
        optional=2,
        check=_are_delimiters,
    ),
    ScalarFunction("TO_BASE64", (s.TEXT_OR_BYTES,), always(t.STRING), by_row(_to_base64)),
    _given("FROM_BASE64", (_T,), t.STRING, _from_base64),
    _given("ENCODE", (_T, _T), t.BYTES, _encode, check=s.checked_text(1, _charset)),
    _given("DECODE", (s.BINARY, _T), t.STRING, _decode, check=s.checked_text(1, _charset)),
    _function("UNHEX", (_T,), t.BYTES, _unhex),
    ScalarFunction(
        "ELT", (_I, s.TEXT_OR_BYTES), _elt_type, _elt_column, variadic=True, nullable=True, coerce=_choices_alike
    ),
    ScalarFunction("PRINTF", (_T, s.ANY), always(t.STRING), _printf, optional=1, variadic=True, nullable=True),
    _given("IS_ALPHA", (_T,), t.BOOLEAN, str.isalpha),
    _given("IS_DIGIT", (_T,), t.BOOLEAN, str.isdecimal),
    _given("IS_DECIMAL", (_T,), t.BOOLEAN, _is_double),
    *(
        _given(name, (_T,), SqlType(t.Kind.CHAR, precision=digits), _digest(name.lower()))
        for name, digits in _DIGITS_OF_DIGEST.items()
    ),
    _given("SHA2", (_T, _I), SqlType(t.Kind.VARCHAR, precision=128), _sha2),
)

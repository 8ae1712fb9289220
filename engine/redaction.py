"""What rows and values may show of themselves in errors and logs, which more people read than the rows.

All messages that quote rows ask it. Columns that are called as secrets are never quoted; with the variable
`PENSTOCK_ERROR_VALUES=hidden` in the environment of a process, nothing is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

VARIABLE: Final = "PENSTOCK_ERROR_VALUES"
_HIDDEN: Final = "hidden"
_MASK: Final = "***"
_SECRET: Final = re.compile(
    r"(?i)passw|passphrase|secret|credential|(^|[_-])(token|pwd)$|(api|access|private|auth)[_-]?key"
)
_SECRET_OPTION: Final = re.compile(r"user-info|jaas|[.](token|key)$")
_SQL_OPTION: Final = re.compile(r"('([^']*)'\s*=\s*')((?:[^']|'')*)")
"""In a text of SQL a quote is written twice."""
_SECRET_IN_CODE: Final = re.compile(
    r"""(?i)(\b\w*(?:passw|passphrase|secret|credential|token|pwd|(?:api|access|private|auth)_?key)\w*["']?\s*[=:]\s*[bfru]*)"""
    r"""(["'])(?:\\.|(?!\2).)*\2"""
)
_URL_PASSWORD: Final = re.compile(r"(://[^/@\s:]*:)[^/\s]+@")


def is_hidden() -> bool:
    """Whether no value of a row may be quoted by this process."""
    return os.environ.get(VARIABLE, "").lower() == _HIDDEN


def quoted(value: object) -> str:
    """A value, row or batch for a message.

    Example:
        >>> quoted({"user": "ada", "password": "x"})
        "{'user': 'ada', 'password': '***'}"
    """
    if is_hidden():
        return f"a {type(value).__name__} (its values are hidden: {VARIABLE})"
    return repr(_masked(value))


def quotable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with masks in the columns, and members of structs, that are called as secrets."""
    for position, name in enumerate(batch.schema.names):
        column = batch.column(position)
        if (masked := _masked_column(name, column)) is not column:
            batch = batch.set_column(position, name, masked)
    return batch


def _masked_column(name: str, column: pa.Array) -> pa.Array:
    """The column itself where nothing in it is called as a secret."""
    if _SECRET.search(name):
        return pa.repeat(pa.scalar(_MASK), len(column))
    kind = column.type
    if pa.types.is_struct(kind):
        members = column.flatten()
        shown = [_masked_column(member.name, held) for member, held in zip(kind, members, strict=True)]
        if all(one is held for one, held in zip(shown, members, strict=True)):
            return column
        return pa.StructArray.from_arrays(shown, names=[member.name for member in kind], mask=column.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        members = column.flatten()
        shown = _masked_column("", members)
        if shown is members:
            return column
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
        return pa.LargeListArray.from_arrays(offsets, shown, mask=column.is_null())
    return column


def masked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a table or connector, with masks in the place of secrets.

    Example:
        >>> masked_options({"url": "redis://:x@cache", "password": "x"})
        {'url': 'redis://:***@cache', 'password': '***'}
    """
    return {
        key: _MASK if _SECRET_OPTION.search(key) or _SECRET.search(key) else _URL_PASSWORD.sub(rf"\1{_MASK}@", value)
        for key, value in options.items()
    }


def masked_code(line: str) -> str:
    """A line of a program with masks in the place of passwords in addresses, and of texts that are called as secrets.

    Example:
        >>> masked_code('connect("redis://:abc@cache", password="x")')
        'connect("redis://:***@cache", password="***")'
    """
    return _SECRET_IN_CODE.sub(rf"\1\2{_MASK}\2", _URL_PASSWORD.sub(rf"\1{_MASK}@", line))


def masked_line(line: str) -> str:
    """A line of SQL with `*` in the place of secrets in options; as long as before, so that places in it stay.

    Example:
        >>> masked_line("WITH ('url' = 'redis://:abc@cache', 'password' = 'x')")
        "WITH ('url' = 'redis://:***@cache', 'password' = '*')"
    """
    return _SQL_OPTION.sub(_masked_option, line)


def _masked_option(found: re.Match[str]) -> str:
    begin, key, value = found[1], found[2], found[3]
    if _SECRET.search(key) or _SECRET_OPTION.search(key):
        return f"{begin}{'*' * len(value)}"
    return begin + _URL_PASSWORD.sub(lambda one: f"{one[1]}{'*' * (len(one[0]) - len(one[1]) - 1)}@", value)


def _masked(value: object) -> object:
    match value:
        case pa.RecordBatch():
            return quotable(value)
        case Mapping() if type(value) is dict:
            return {name: _MASK if _is_secret(name) else _masked(held) for name, held in value.items()}
        case list() if type(value) is list:
            return [_masked(held) for held in value]
        case tuple() if type(value) is tuple:
            return tuple(_masked(held) for held in value)
        case _:
            return value


def _is_secret(name: Any) -> bool:
    return isinstance(name, str) and _SECRET.search(name) is not None

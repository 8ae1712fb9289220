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

VARIABLE: Final = "PENSTOCK_ERROR_VALUES"
_HIDDEN: Final = "hidden"
_MASK: Final = "***"
_SECRET: Final = re.compile(
    r"(?i)passw|passphrase|secret|credential|(^|[_-])(token|pwd)$|(api|access|private|auth)[_-]?key"
)
_SECRET_OPTION: Final = re.compile(r"user-info|jaas|[.](token|key)$")
_URL_PASSWORD: Final = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")


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
    """The batch with masks in the columns that are called as secrets."""
    for position, name in enumerate(batch.schema.names):
        if _SECRET.search(name):
            masks = pa.repeat(pa.scalar(_MASK), batch.num_rows)
            batch = batch.set_column(position, name, masks)
    return batch


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

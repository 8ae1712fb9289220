"""PARSE_URL, and texts as they stand in addresses.

Source: what Flink 2.3 answers, which asks `java.net.URL`.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.signatures import ScalarFunction, always, by_row

_DECODED_AT_MOST: Final = 100
"""So often URL_DECODE_RECURSIVE decodes again."""
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What may stand before and behind an address."""
_URL: Final = re.compile(
    r"(https?|ftp|file|jar|mailto):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.IGNORECASE | re.DOTALL
)
"""Protocol (those that Java knows), authority, path, query and fragment."""
_AUTHORITY: Final = re.compile(r"(?:([^@]*)@)?(\[[^\]]*\]|[^:@\[]*)(?::[0-9]*)?")
"""User and host."""


def _parse_url(value: str, part: str, key: str | None = None) -> str | None:
    """A part as it stands there; None: there is none, or it is no address. Of a key of the query the first value."""
    found = _URL.fullmatch(value.strip(_BLANKS))
    if found is None or (key is not None and part != "QUERY"):
        return None
    protocol, authority, path, query, fragment = found.groups()
    place = _AUTHORITY.fullmatch(authority or "")
    if place is None:
        return None
    if key is not None:
        pair = None if query is None else re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", query)
        return None if pair is None else pair[1]
    parts = {
        "PROTOCOL": protocol.lower(),
        "AUTHORITY": authority,
        "USERINFO": place[1],
        "HOST": place[2],
        "PATH": path,
        "QUERY": query,
        "FILE": path if query is None else f"{path}?{query}",
        "REF": fragment,
    }
    return parts.get(part)


def _url_encode(value: str) -> str:
    # As Java's URLEncoder, which knows other signs that stay.
    return urllib.parse.quote_plus(value, safe="*").replace("~", "%7E")


def _url_decode(value: str) -> str | None:
    return None if re.search(r"%(?![0-9A-Fa-f]{2})", value) else urllib.parse.unquote_plus(value)


def _url_decode_recursive(value: str) -> str | None:
    decoded = _url_decode(value)
    for _ in range(_DECODED_AT_MOST):
        again = None if decoded is None else _url_decode(decoded)
        if again is None or again == decoded:
            break
        decoded = again
    return decoded


def _function(name: str, function: s.Evaluate, parameters: int = 1, optional: int = 0) -> ScalarFunction:
    return ScalarFunction(name, (s.TEXT,) * parameters, always(t.STRING), function, optional=optional, nullable=True)


FUNCTIONS: Final = (
    _function("PARSE_URL", by_row(_parse_url), 3, 1),
    _function("URL_ENCODE", by_row(_url_encode)),
    _function("URL_DECODE", by_row(_url_decode)),
    _function("URL_DECODE_RECURSIVE", by_row(_url_decode_recursive)),
)

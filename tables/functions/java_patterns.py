r"""Regular expressions as Java has them, which the functions of SQL take, for Python's `re`.

`\w`, `\d`, `\s` and `(?i)` are of ASCII. What both write differently is translated (`\p{L}`, `(?<name>..)`, `\Q..\E`);
what Java has alone is refused, and told apart from what is no regular expression in Java either.

Source: the documentation of `java.util.regex.Pattern`, and what Flink 2.3 answers.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_MOST_PATTERNS: Final = 256
_ASCII: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t-\r",
}
_CATEGORY: Final = re.compile(
    "(?:Is|general_category=|gc=)?(L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfosn]?)"
)
_HORIZONTAL: Final = r" \t\xA0\u1680\u180E\u2000-\u200A\u202F\u205F\u3000"
_VERTICAL: Final = r"\n\x0B\f\r\x85\u2028\u2029"
_SETS: Final = {"h": _HORIZONTAL, "v": _VERTICAL}
_NO_BOUNDS: Final = frozenset((r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", _HORIZONTAL, _VERTICAL))
"""Parts of sets behind which `-` means itself."""
_ESCAPES: Final = {
    "e": r"\x1B",
    "z": r"\Z",
    "Z": rf"(?=(?:\r\n|[{_VERTICAL}])?\Z)",
    "R": rf"(?:\r\n|[{_VERTICAL}])",
    "b": r"(?u:\b)",
    "B": r"(?u:\B)",
}
_OF_JAVA_ALONE: Final = "GXNHV"
"""Escapes that Python has no counterpart for; of the last two within sets."""
_TOKEN: Final = re.compile(
    r"""
    \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | \\(?P<case>[pP])(?:\{(?P<property>[^}]*)\}|(?P<category>.))
    | \\x\{(?P<hexadecimal>[0-9A-Fa-f]+)\}
    | \\0(?P<octal>[0-3][0-7]{2}|[0-7]{1,2})
    | \\c(?P<control>.)
    | \\k<(?P<reference>\w+)>
    | \\(?P<escape>.)
    | \(\?<(?P<group>[A-Za-z][A-Za-z0-9]*)>
    | \(\?(?P<flags>[idmsuxU]*(?:-[idmsuxU]+)?)(?P<behind>[:)])
    | (?P<no_java>\(\?[P\#(]|\{(?!\d+(?:,\d*)?\}))
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_POSSESSIVE: Final = re.compile(r"[*+?}]\+|\(\?>")


@lru_cache(_MOST_PATTERNS)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python.

    Raises:
        re.error: it is none in Java.
        ValueError: Python has no counterpart for something in it.
    """
    if sys.version_info < (3, 11) and _POSSESSIVE.search(pattern):
        raise _unsupported(pattern, "a possessive quantifier, which Python has from 3.11 on")
    try:
        return re.compile(_Translation(pattern).text(), re.ASCII)
    except (OverflowError, RecursionError) as error:
        raise re.error(str(error)) from None
    except re.error as error:
        if error.msg.startswith("look-behind"):
            raise _unsupported(pattern, "a look-behind of no fixed length") from None
        raise


@lru_cache(_MOST_PATTERNS)
def java_pattern(pattern: str) -> re.Pattern[str] | None:
    """As `compiled`; None: it is no regular expression in Java.

    Raises:
        ValueError: Python has no counterpart for something in it.

    Example:
        >>> java_pattern("(") is None, java_pattern(r"\\p{Lu}\\w").findall("Äh Öl Éé")
        (True, ['Äh', 'Öl'])
    """
    try:
        return compiled(pattern)
    except re.error:
        return None


class _Translation:
    """One pattern, read from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._parts: list[str] = []
        self._set_from = -1
        """Where in the parts the set began that is open; -1: none is."""

    def text(self) -> str:
        for token in _TOKEN.finditer(self._pattern):
            kind = token.lastgroup
            if kind == "sign" or (self._in_set and kind in ("group", "behind", "no_java")):
                for sign in token[0]:
                    self._sign(sign)
            else:
                self._parts.append(self._translated(token))
        return "".join(self._parts)

    @property
    def _in_set(self) -> bool:
        return self._set_from >= 0

    def _sign(self, sign: str) -> None:
        before = self._parts[-1] if self._parts else ""
        if not self._in_set:
            self._set_from = len(self._parts) + 1 if sign == "[" else -1
        elif sign == "[" or (sign == before == "&"):
            raise _unsupported(self._pattern, "a set within a set")
        elif sign == "]" and self._parts[self._set_from :] not in ([], ["^"]):
            self._set_from = -1
        elif sign in "|~" or (sign == "-" and (before == "-" or before in _NO_BOUNDS)):
            # Two of them mean something else in a set of Python's, or will; and `-` is a range behind any class.
            sign = f"\\{sign}"
        self._parts.append(sign)

    def _translated(self, token: re.Match[str]) -> str:
        found = token.groupdict()
        match token.lastgroup:
            case "quoted":
                return re.escape(found["quoted"])
            case "property" | "category":
                return self._property(found["property"] or found["category"], negated=found["case"] == "P")
            case "hexadecimal":
                return _character(int(found["hexadecimal"], 16))
            case "octal":
                return _character(int(found["octal"], 8))
            case "control":
                return _character(ord(found["control"]) ^ 64)
            case "reference":
                return f"(?P={found['reference']})"
            case "group":
                return f"(?P<{found['group']}>"
            case "escape":
                return self._escape(token[0], found["escape"])
            case "behind":
                return self._flags(token[0], found["flags"])
        raise re.error(f"{token[0]!r} means nothing in Java")

    def _escape(self, whole: str, letter: str) -> str:
        if letter.lower() in _SETS and (letter.islower() or not self._in_set):
            chars = _SETS[letter.lower()]
            return chars if self._in_set else f"[{'^' if letter.isupper() else ''}{chars}]"
        if letter in _OF_JAVA_ALONE:
            raise _unsupported(self._pattern, whole)
        return _ESCAPES.get(letter, whole) if letter == "e" or not self._in_set else whole

    def _flags(self, whole: str, flags: str) -> str:
        if whole == "(?:":
            return whole
        is_first = all(part.startswith("(?") and part.endswith(")") for part in self._parts)
        if set(flags) <= set("imsx-") and (whole.endswith(":") or (is_first and "-" not in flags)):
            return whole
        raise _unsupported(self._pattern, f"{whole}, flags that it has not there")

    def _property(self, name: str, *, negated: bool) -> str:
        try:
            ranges = _ranges(name)
        except KeyError:
            raise _unsupported(self._pattern, f"the property {name!r}") from None
        if not self._in_set:
            return f"[{'^' if negated else ''}{_shown(ranges)}]"
        return _shown(_others(ranges) if negated else ranges)


def _unsupported(pattern: str, what: str) -> ValueError:
    return ValueError(f"the pattern {pattern!r} has what regular expressions of Python have not: {what}")


_Ranges = tuple[tuple[int, int], ...]


@lru_cache(_MOST_PATTERNS)
def _ranges(name: str) -> _Ranges:
    """The characters of a class of POSIX, or of a category of Unicode, from and to.

    Raises:
        KeyError: there is none of the name here.
    """
    if name in _ASCII:
        member = re.compile(f"[{_ASCII[name]}]")
        return _joined(code for code in range(128) if member.match(chr(code)))
    found = _CATEGORY.fullmatch(name)
    if found is None:
        raise KeyError(name)
    return _joined(code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(found[1]))


def _joined(codes: Iterable[int]) -> _Ranges:
    ranges: list[tuple[int, int]] = []
    for code in codes:
        begin = ranges.pop()[0] if ranges and ranges[-1][1] == code - 1 else code
        ranges.append((begin, code))
    return tuple(ranges)


def _others(ranges: _Ranges) -> _Ranges:
    begins = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), sys.maxunicode]
    return tuple((begin, end) for begin, end in zip(begins, ends, strict=True) if begin <= end)


def _shown(ranges: _Ranges) -> str:
    return "".join(f"{_character(begin)}-{_character(end)}" for begin, end in ranges)


def _character(code: int) -> str:
    return f"\\U{code:08X}"

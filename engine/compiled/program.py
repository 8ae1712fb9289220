"""Runs a translated function over the columns of batches, compiled by numba and kept on disk for the next process.

The operators of compiled functions call it. Where a batch holds what compiled code does not take (a null, a number
beyond 64 bits, an error of the function), there is no result, and the operator calls the plain function with its rows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.compiled.kinds import BOOL, FLOAT, INT, Kind, Opaque, Text, kind_of
from penstock.engine.compiled.translation import Translation

_TYPES: Final[Mapping[Kind, type[np.generic]]] = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}
_VERSION: Final = 1
"""Of `arithmetic`: what was compiled with another one is not used."""
_HEAD: Final = """\
import numba
from penstock.engine.compiled.arithmetic import (
    absolute, add, floor_divide, modulo, multiply, negate, subtract, to_float, to_int
)
"""


class Program:
    """A translated function, ready to run over batches of one schema.

    Args:
        translation: the function.
        schema: the columns of the input.

    Example:
        >>> from penstock.engine.compiled.translation import translate  # doctest: +SKIP
        >>> Program(translate(double, schema), schema).run(batch)  # doctest: +SKIP
    """

    def __init__(self, translation: Translation, schema: pa.Schema) -> None:
        self._translation = translation
        self._kinds = [kind_of(schema.field(name)) for name in translation.columns]
        self._words = pa.array(translation.words, pa.large_string())
        self._computed = [kind for kind in translation.results.values() if not isinstance(kind, (Text, Opaque))]
        self._loop = _compiled_loop(translation, self._kinds)

    def run(self, batch: pa.RecordBatch) -> Mapping[str, pa.Array] | None:
        """The results by name, or None where the plain function must run."""
        columns = []
        for name, kind in zip(self._translation.columns, self._kinds, strict=True):
            column = batch.column(name)
            if isinstance(kind, Opaque):
                continue
            if column.null_count and not isinstance(kind, Text):
                return None
            columns.append(self._values(column, kind))
        out: list[npt.NDArray[Any]] = [np.empty(len(batch), _TYPES.get(kind, np.int64)) for kind in self._computed]
        try:
            self._loop(len(batch), *columns, *out)
        except (ArithmeticError, ValueError):
            return None
        computed = iter(out)
        return {name: self._array(kind, batch, computed) for name, kind in self._translation.results.items()}

    def _values(self, column: pa.Array, kind: Kind) -> npt.NDArray[Any]:
        if isinstance(kind, Text):
            # What is none of the words, null among it, equals none of them.
            found = pc.index_in(column.cast(pa.large_string()), self._words).fill_null(-1)
            return np.asarray(found.cast(pa.int64()))
        values = column.to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values, dtype=_TYPES[kind])

    def _array(self, kind: Kind, batch: pa.RecordBatch, computed: Any) -> pa.Array:
        if isinstance(kind, (Text, Opaque)):
            return batch.column(kind.column)
        values = pa.array(next(computed))
        return values if kind in _TYPES else self._words.take(values)


def _compiled_loop(translation: Translation, kinds: Sequence[Kind]) -> Callable[..., None]:
    """A function of a number of rows, the columns and arrays for the computed results."""
    source = _source(translation, kinds)
    module = _module(source)
    loop: Callable[..., None] = module.loop
    return loop


def _source(translation: Translation, kinds: Sequence[Kind]) -> str:
    used = [f"c_{number}" for number, kind in enumerate(kinds) if not isinstance(kind, Opaque)]
    given = [f"c_{number}[i]" if not isinstance(kind, Opaque) else "0" for number, kind in enumerate(kinds)]
    computed = [
        place for place, kind in enumerate(translation.results.values()) if not isinstance(kind, (Text, Opaque))
    ]
    out = [f"out_{place}" for place in computed]
    single = list(translation.results) == [""]
    stores = [f"        out_{place}[i] = {'result' if single else f'result[{place}]'}" for place in computed]
    return "\n".join(
        [
            _HEAD,
            "@numba.njit(cache=True)",
            translation.source,
            "@numba.njit(cache=True, nogil=True)",
            f"def loop(n, {', '.join([*used, *out])}):",
            "    for i in range(n):",
            f"        result = row_function({', '.join(given)})",
            *(stores or ["        pass"]),
            "",
        ]
    )


def _module(source: str) -> ModuleType:
    """The source as a module in a file, without which numba keeps nothing on disk."""
    name = f"penstock_compiled_{hashlib.sha256(f'{_VERSION} {source}'.encode()).hexdigest()[:32]}"
    if name in sys.modules:
        return sys.modules[name]
    path = _cache_folder() / f"{name}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != source:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(source)
        os.replace(file.name, path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _cache_folder() -> Path:
    """Where this user's compiled functions are kept; a folder of this process alone where nothing can be kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="penstock-compiled-"))

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

from penstock.engine.compiled.kinds import BOOL, FLOAT, INT, Kind, Opaque, Text, is_passed_on, kind_of
from penstock.engine.compiled.translation import Translation

_TYPES: Final[Mapping[Kind, type[np.generic]]] = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}
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
        self._loop = load_loop(_source(translation, self._kinds))

    def run(self, batch: pa.RecordBatch) -> Mapping[str, pa.Array] | None:
        """The results by name, or None where the plain function must run."""
        columns = input_arrays(batch, self._translation.columns, self._kinds, self._words)
        if columns is None:
            return None
        out = output_arrays(self._translation.results, len(batch))
        try:
            self._loop(len(batch), *columns, *out.values())
        except (ArithmeticError, ValueError):
            return None
        return {
            name: batch.column(kind.column) if is_passed_on(kind) else computed_column(kind, out[name], self._words)
            for name, kind in self._translation.results.items()
        }


def input_arrays(
    batch: pa.RecordBatch, names: Sequence[str], kinds: Sequence[Kind], words: pa.Array
) -> list[npt.NDArray[Any]] | None:
    """The columns that compiled code looks at; None if one of numbers has a null."""
    arrays = []
    for name, kind in zip(names, kinds, strict=True):
        column = batch.column(name)
        if isinstance(kind, Text):
            # What is none of the words, null among it, equals none of them.
            found = pc.index_in(column.cast(pa.large_string()), words).fill_null(-1)
            arrays.append(np.asarray(found.cast(pa.int64())))
        elif not isinstance(kind, Opaque):
            if column.null_count:
                return None
            arrays.append(np.ascontiguousarray(column.to_numpy(zero_copy_only=False), dtype=_TYPES[kind]))
    return arrays


def output_arrays(results: Mapping[str, Kind], rows: int) -> dict[str, npt.NDArray[Any]]:
    """Room for so many rows of the results that are computed."""
    return {
        name: np.empty(rows, _TYPES.get(kind, np.int64)) for name, kind in results.items() if not is_passed_on(kind)
    }


def computed_column(kind: Kind, values: npt.NDArray[Any], words: pa.Array) -> pa.Array:
    """The column of a result that was computed."""
    return pa.array(values) if kind in _TYPES else words.take(pa.array(values))


def as_declared(columns: Mapping[str, pa.Array] | None, schema: pa.Schema) -> pa.RecordBatch | None:
    """Results as the declared columns; None if there are none, or one is too large for its column."""
    if columns is None:
        return None
    try:
        arrays = [columns[field.name].cast(field.type) for field in schema]
    except pa.ArrowInvalid:
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_parameters(kinds: Sequence[Kind]) -> tuple[list[str], list[str]]:
    """The arrays of columns that a generated loop takes, and what it gives the function for row `i` of all columns."""
    arrays = [f"c_{number}" for number, kind in enumerate(kinds) if not isinstance(kind, Opaque)]
    return arrays, ["0" if isinstance(kind, Opaque) else f"c_{number}[i]" for number, kind in enumerate(kinds)]


def load_loop(source: str) -> Callable[..., Any]:
    """The function `loop` of a generated module."""
    loop: Callable[..., Any] = _module(_HEAD + source).loop
    return loop


def _source(translation: Translation, kinds: Sequence[Kind]) -> str:
    used, given = column_parameters(kinds)
    computed = [place for place, kind in enumerate(translation.results.values()) if not is_passed_on(kind)]
    out = [f"out_{place}" for place in computed]
    single = list(translation.results) == [""]
    stores = [f"        out_{place}[i] = {'result' if single else f'result[{place}]'}" for place in computed]
    return "\n".join(
        [
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
    """The source as a module: in a file, without which numba keeps nothing on disk, where there is a place for it."""
    # What was compiled with another arithmetic is not used.
    arithmetic = Path(__file__).with_name("arithmetic.py").read_text(encoding="utf-8")
    name = f"penstock_compiled_{hashlib.sha256(f'{arithmetic}{source}'.encode()).hexdigest()[:32]}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        module = _from_file(_cache_folder() / f"{name}.py", source)
    except OSError:
        module = ModuleType(name)
        exec(source.replace("(cache=True", "(cache=False"), module.__dict__)  # noqa: S102 - it is translated above
    sys.modules[name] = module
    return module


def _from_file(path: Path, source: str) -> ModuleType:
    if not path.exists() or path.read_text(encoding="utf-8") != source:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(source)
        os.replace(file.name, path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cache_folder() -> Path:
    """Where this user's compiled functions are kept.

    Raises:
        OSError: nothing can be kept, or what is there is somebody else's.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to")
    return folder

"""Expressions have the values and types that Flink 2.3 has given (`tests/data`), or are refused as it refuses them."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import PenstockError
from tests.flink.expressions import kept, packs, query

_KEPT = kept()
_ANSWERS = {str(one[0]): tuple(one[1:]) for one in _KEPT}
_VALUES = packs([one for one, answer in _ANSWERS.items() if answer])
_REFUSED = packs([one for one, answer in _ANSWERS.items() if not answer])


def _row(expressions: list[str]) -> list[str | None]:
    table = StreamEnvironment(runtime="local", parallelism=1).sql(query(expressions))
    assert table is not None
    (row,) = table.collect()
    return list(row.values())


@pytest.mark.parametrize("expressions", _VALUES, ids=lambda pack: pack[0][:60])
def test_expressions_have_flinks_values_and_types(expressions: list[str]) -> None:
    values = _row(expressions)
    found = {one: (values[2 * place], values[2 * place + 1]) for place, one in enumerate(expressions)}
    assert found == {one: _ANSWERS[one] for one in expressions}


@pytest.mark.parametrize("expressions", _REFUSED, ids=lambda pack: pack[0][:60])
def test_what_flink_refuses_is_refused(expressions: list[str]) -> None:
    for one in expressions:
        with pytest.raises(PenstockError):
            _row([one])

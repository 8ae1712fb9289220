"""Schemathesis asks for whatever the OpenAPI document allows, and for what it does not: the server never fails."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.web.conftest import Serve

KNOWN = {"job": "orders-1", "vertex": "2", "subtask": "1", "number": "7", "uid": "totals", "name": "accumulators"}
ODD = st.sampled_from(["99999999999999999999", "-1", "\u00b2", "%00", "../x", "1e9"]) | st.text(max_size=20)
ASKED = {"X-Penstock-Request": "1"}


@st.composite
def requests(draw: st.DrawFn, operations: list[Any], modes: list[Any]) -> tuple[str, str, dict[str, Any]]:
    """A request of one of the operations: its method, path and all else. Most name things that are there."""
    operation, mode = draw(st.sampled_from(operations)), draw(st.sampled_from(modes))
    case = draw(operation.as_strategy(generation_mode=mode))
    path = case.operation.path
    for name, value in case.path_parameters.items():
        known = KNOWN.get(name, "1")
        given = draw(st.sampled_from([known, known, known, str(value), None]))
        path = path.replace(f"{{{name}}}", quote(draw(ODD) if given is None else given, safe="") or "-")
    made = case.as_transport_kwargs()
    body = {"json": "json", "data": "data" if isinstance(made.get("data"), dict) else "content"}
    rest = {"params": made["params"]} | {body[name]: made[name] for name in body if made.get(name) is not None}
    return case.operation.method.upper(), path, rest


@pytest.mark.parametrize("examples", [60, pytest.param(3000, marks=pytest.mark.long("the same with 60 examples"))])
def test_whatever_is_asked_the_server_does_not_fail(serve: Serve, examples: int) -> None:
    # Here, since all processes that run tests import this module, and one of them this, for seconds.
    import schemathesis

    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    client = serve(**ASKED)
    document = client.get("/v1/openapi.json").json()
    # Events never end.
    del document["paths"]["/v1/events"]
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 100

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(requests(operations, modes))
    def asks(made: tuple[str, str, dict[str, Any]]) -> None:
        method, path, rest = made
        answer = client.request(method, path, **rest)
        assert answer.status_code < 500, (made, answer.text)

    asks()

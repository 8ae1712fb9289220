"""Where the console is, is a matter of its own: what fails as it is asked for is no error of the job that runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest

from penstock.actors import console_address


@pytest.mark.parametrize("error", [ConnectionError, RuntimeError], ids=["its connection", "another"])
@pytest.mark.parametrize("where", ["get_runtime_context", "get_actor"])
def test_a_cluster_that_does_not_answer_is_no_error_of_a_job(
    monkeypatch: pytest.MonkeyPatch, where: str, error: type[Exception]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error("no answer")

    address = f"{where}-{error.__name__}"
    cluster = {
        "is_initialized": lambda: True,
        "get_runtime_context": lambda: SimpleNamespace(gcs_address=address),
        "get_actor": fail,
        where: fail,
    }
    monkeypatch.setattr(console_address, "ray", SimpleNamespace(**cluster))
    console_address.tell_console()

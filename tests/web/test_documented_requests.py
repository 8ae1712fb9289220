"""The requests by curl on the pages of the documentation reach something that answers them."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.docs.commands import commands
from tests.web.conftest import Serve

REQUESTS = [command.words[1:] for command in commands() if command.words[0] == "curl"]


@pytest.mark.usefixtures("checkpointed")
@pytest.mark.parametrize("words", REQUESTS, ids=lambda words: urlsplit(words[-1]).path)
def test_a_request_of_the_pages_is_known(serve: Serve, words: tuple[str, ...]) -> None:
    options = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    name, _, value = options.get("-H", "Accept: */*").partition(": ")
    client = serve(**{name: value})
    url = urlsplit(words[-1].replace("/ID/", "/orders-1/"))
    where = f"{url.path}?{url.query}"
    if "isolation=checkpoint" in where:
        # What the checkpoint of this job has.
        where = where.replace("accumulators", "visits")
    answer = client.post(where, content=options["-d"]) if "-d" in options else client.get(where)
    assert answer.status_code in (200, 202), answer.text

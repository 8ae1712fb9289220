"""What the pages have others type into a shell, or write into files, is there: commands, options, keys and files."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml

from penstock.configuration_keys import KEYS
from penstock.console.command_line import _app
from penstock.console.output import Output
from penstock.testing import chaos
from penstock.testing.connector_suite import TransactionalSinkSuite
from penstock.web.serve import DEFAULT_PORT
from tests.docs.commands import ROOT, blocks, commands
from tests.docs.test_sql_pages import NAMES as SQL_PAGES
from tests.docs.test_sql_syntax import BLOCKS as SYNTAX

COMMANDS: Final = tuple(commands())
_OTHERS: Final = {
    "cd",
    "curl",
    "docker",
    "echo",
    "export",
    "git",
    "head=$(kubectl",
    "helm",
    "kubectl",
    "pip",
    "python",
    "ray",
}
"""Whose arguments are not ours; what they name of this repository is looked at."""
_DEPLOY: Final = ROOT / "deploy"
_OURS: Final = re.compile(r"(?:deploy|docs|examples|scripts|perf|tests)/[\w./-]+")


def _parameters(command: Any, words: Sequence[str], parent: Any = None) -> Mapping[str, Any]:
    """What the command line makes of the words, without doing it."""
    context = command.make_context(command.name, list(words), parent=parent, obj=Output(io.StringIO(), False, False))
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if not rest:
        return dict(context.params)
    _, inner, rest = command.resolve_command(context, rest)
    return _parameters(inner, rest, context)


def test_the_command_line_takes_all_commands_of_the_pages() -> None:
    ours = [command.words[1:] for command in COMMANDS if command.words[0] == "penstock"]
    assert len(ours) > 30
    for words in ours:
        defined = _parameters(_app(), words).get("define") or []
        assert [one for one in defined if one.partition("=")[0] not in KEYS] == []


def test_targets_extras_and_files_that_commands_name_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for command in COMMANDS:
        match command.words:
            case ["make", *words]:
                assert {word for word in words if "=" not in word} <= set(targets), command
            case ["penstock", *_]:
                pass
            case [name, *_]:
                assert name in _OTHERS, f"{command}: say here what is to be true of it"
        for word in command.words:
            for path in _OURS.findall(word):
                assert (ROOT / path).exists(), command
            if wanted := re.search(r"(?:penstock|\.)\[([\w,]+)\]", word):
                assert set(wanted[1].split(",")) <= set(extras), command


def test_settings_of_the_page_on_configuration_are_there() -> None:
    assert set(_flat(_yaml("configuration"))) <= set(KEYS)


def test_values_of_the_page_on_deployment_are_those_of_the_chart() -> None:
    shown, values = _yaml("deployment"), yaml.safe_load((_DEPLOY / "helm" / "penstock" / "values.yaml").read_text())
    assert set(shown) <= set(values)
    assert set(shown["settings"]) <= set(KEYS)


def test_prometheus_is_told_of_the_console_as_in_the_file_that_is_shipped() -> None:
    (shown,) = _yaml("console")["scrape_configs"]
    (shipped,) = yaml.safe_load((_DEPLOY / "monitoring" / "prometheus.yml").read_text())["scrape_configs"]
    assert set(shown) <= set(shipped)
    assert shown["honor_labels"] is shipped["honor_labels"]
    assert shown["static_configs"] == [{"targets": [f"127.0.0.1:{DEFAULT_PORT}"]}]


def _yaml(page: str) -> Any:
    """What the block of a page says."""
    (text,) = [text for language, text in blocks(ROOT / "docs" / f"{page}.md") if language == "yaml"]
    return yaml.safe_load(text)


def test_no_block_is_of_a_kind_that_nobody_looks_at() -> None:
    """Python is run by test_snippets.py, SQL with its results by test_sql_pages.py, commands are parsed here, and the
    syntax of SQL in test_sql_syntax.py."""
    found = {
        (language, str(page.relative_to(ROOT / "docs")))
        for page in (ROOT / "docs").rglob("*.md")
        for language, _ in blocks(page)
    }
    rest = {one for one in found if one[0] not in ("python", "sh", "console", "text")}
    assert rest == {
        *(("sql", f"sql/{name}") for name in SQL_PAGES),
        *(("syntax", f"sql/{name}") for name, blocks in SYNTAX.items() if blocks),
        *(("yaml", f"{name}.md") for name in ("configuration", "console", "deployment")),
        *(("py", f"{name}.md") for name in ("connectors", "testing")),
        ("markdown", "adr/README.md"),
    }


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{rest}".rstrip("."): one for rest, one in inner.items()}
    return flat


def _code(page: str) -> str:
    """The block that is no snippet: it needs more than the page has."""
    (text,) = [text for language, text in blocks(ROOT / "docs" / page) if language == "py"]
    return text


def test_the_schedule_by_hand_can_be_given_to_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def harness(job: str, schedule: chaos.ChaosSchedule) -> SimpleNamespace:
        given.append((job, len(schedule.faults)))
        return SimpleNamespace(run=lambda: SimpleNamespace(violations=[]))

    monkeypatch.setattr(chaos, "ChaosHarness", harness)
    exec(_code("testing.md"), {"env": SimpleNamespace(submit=lambda name: name)})
    assert given == [("payments", 3)]


def test_the_fixture_of_the_tutorial_on_connectors_is_one() -> None:
    known: dict[str, Any] = {"pytest": pytest, "TransactionalSinkSuite": TransactionalSinkSuite}
    exec(_code("connectors.md"), known)
    assert issubclass(known["TestLedgerSink"], TransactionalSinkSuite)


def test_a_clone_is_installed_as_it_is() -> None:
    """A copy would take the place of the editable install that `make` makes, and stay as it is behind a `git pull`."""
    of_clone = [one for one in COMMANDS if one.words[:2] == ("pip", "install") and re.match(r"\.(\[|$)", one.words[-1])]
    assert of_clone
    assert [one for one in of_clone if "--editable" not in one.words] == []

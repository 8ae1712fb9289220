"""The places that configuration values come from: which goes over which, and what is wrong with each."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.console.sources import gather
from tests.console.conftest import Penstock

INTERVAL = "execution.checkpointing.interval"


def values(penstock: Penstock, *arguments: str) -> dict[str, tuple[str, str]]:
    """What `penstock config` shows: value and place of each key."""
    done = penstock("config", "--json", *arguments)
    assert done.code == 0, done.err
    return {row["key"]: (row["value"], row["origin"]) for row in done.document}


def refused(penstock: Penstock, *arguments: str) -> str:
    done = penstock("config", *arguments)
    assert (done.code, done.out) == (2, "")
    return done.err


def test_each_place_goes_over_those_before_it(
    penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.yaml").write_text(
        "parallelism.default: 1\nexecution:\n  checkpointing:\n    interval: 10 s\n    timeout: 1h\n"
        "pipeline.name: words\n"
    )
    monkeypatch.setenv("PENSTOCK_PARALLELISM_DEFAULT", "2")
    monkeypatch.setenv("PENSTOCK_EXECUTION_CHECKPOINTING_TIMEOUT", "2h")
    assert values(penstock, "-Dparallelism.default=3") == {
        INTERVAL: ("10s", "penstock.yaml"),
        "execution.checkpointing.timeout": ("2h", "PENSTOCK_EXECUTION_CHECKPOINTING_TIMEOUT"),
        "parallelism.default": ("3", "-D"),
        "pipeline.name": ("words", "penstock.yaml"),
    }


def test_a_file_may_be_named(penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "penstock.yaml").write_text("parallelism.default: 1")
    (folder / "one.yaml").write_text("parallelism.default: 2")
    (folder / "other.yaml").write_text("parallelism.default: 3")
    monkeypatch.setenv("PENSTOCK_CONF", "one.yaml")
    assert values(penstock) == {"parallelism.default": ("2", "one.yaml")}
    assert values(penstock, "--config", "other.yaml") == {"parallelism.default": ("3", "other.yaml")}


def test_without_any_place_there_is_nothing(penstock: Penstock, folder: Path) -> None:
    assert values(penstock) == {}
    (folder / "penstock.yaml").write_text("# nothing yet\n")
    assert "nothing is set" in penstock("config").out


def test_all_shows_the_defaults_too(penstock: Penstock) -> None:
    shown = values(penstock, "--all", "-Dpenstock.operator-storage.totals=fast")
    assert shown["execution.checkpointing.timeout"] == ("10m", "default")
    assert shown["penstock.operator-storage.totals"] == ("fast", "-D")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "penstock.yaml is no YAML"),
        ("- a", "penstock.yaml must hold keys and values"),
        ("parallelism.defualt: 2", "parallelism.defualt (penstock.yaml): there is no such key (did you mean"),
        ("parallelism.default: [2]", "parallelism.default (penstock.yaml): must be a valid integer, not [2]"),
        ("\udcff", "penstock.yaml cannot be read: it is no UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(penstock: Penstock, folder: Path, text: str, message: str) -> None:
    (folder / "penstock.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert message in refused(penstock)


def test_a_file_that_is_named_must_be_there(penstock: Penstock) -> None:
    assert "nowhere.yaml cannot be read: No such file" in refused(penstock, "--config", "nowhere.yaml")


def test_a_variable_that_is_nearly_a_key_is_refused_and_any_other_is_let_be(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("PENSTOCK_PARALLELISM", "2")
    monkeypatch.setenv("PENSTOCK_STANDBYS", "")
    assert values(penstock) == {}
    monkeypatch.setenv("PENSTOCK_EXECUTION_CHECKPOINTING_INTERVALL", "10s")
    assert "did you mean 'PENSTOCK_EXECUTION_CHECKPOINTING_INTERVAL'?" in refused(penstock)


def test_what_is_wrong_in_any_place_is_reported_together(
    penstock: Penstock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.yaml").write_text("heartbeat.timeout: 5\nno.such.key: 1\n")
    monkeypatch.setenv("PENSTOCK_STANDBYS", "few")
    said = refused(penstock, "-Dparallelism.default", f"-D{INTERVAL}=1x")
    for part in (
        "5 settings cannot be used",
        "-D parallelism.default: write -Dkey=value",
        "no.such.key (penstock.yaml): there is no such key",
        "heartbeat.timeout (penstock.yaml): '5' is no duration",
        "penstock.standbys (PENSTOCK_STANDBYS): must be a valid integer, not 'few'",
        f"{INTERVAL} (-D): '1x' is no duration",
    ):
        assert part in said, part


def test_a_file_with_aliases_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "nested.yaml").write_text("\n".join(lines))
    settings, problems = gather(str(tmp_path / "nested.yaml"), {}, []).checked()
    assert settings is None or problems
    assert "aliases (*a0) are not taken" in problems[0]

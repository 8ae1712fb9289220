"""The script `penstock`: Ctrl-C while it loads, and what it loads for whom."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import NoReturn

import pytest

from penstock.console import command_line, main
from tests.console.conftest import Penstock


@pytest.mark.parametrize(("arguments", "out"), [((), ""), (("--json",), '"message": "interrupted"')])
def test_ctrl_c_while_the_program_loads_is_one_line(
    arguments: tuple[str, ...], out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(given: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "penstock.console.command_line", SimpleNamespace(run_command=interrupted))
    monkeypatch.setattr(sys, "argv", ["penstock", "run", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    captured = capsys.readouterr()
    assert captured.err == "error: interrupted\n"
    assert out in captured.out


def test_a_module_that_fails_as_it_is_interrupted_is_no_error(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading() -> NoReturn:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise ImportError("numpy failed to load") from interrupt

    monkeypatch.setattr(command_line, "_app", loading)
    done = penstock("run")
    assert (done.code, done.err) == (130, "error: interrupted\n")


def test_the_version_is_told_without_what_commands_need() -> None:
    code = (
        "import sys; sys.argv = ['penstock', '--version']\n"
        "from penstock.console.main import main\n"
        "try: main()\n"
        "except SystemExit: print({'pyarrow', 'ray', 'numpy', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("penstock ")
    assert done.stdout.endswith("\nset()\n")


def test_help_shows_what_every_command_does_and_a_mistyped_one_is_proposed(penstock: Penstock) -> None:
    done = penstock("--help")
    shown = {
        line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.startswith("  ") and line.split()
    }
    assert shown["run"][:3] == ["Run", "a", "flow:"]
    assert all(shown[name] for name in command_line._COMMANDS)
    assert "Did you mean 'savepoint'" in penstock("savepiont").err
    assert "inspect" in penstock("savepoint", "--help").out

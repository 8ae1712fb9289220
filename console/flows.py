"""Finds the flow that `penstock run` names: an attribute of a module, or of a Python file.

A flow is a function that takes the `StreamEnvironment` and builds a program in it, or an environment that was
filled in.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import typer

from penstock.engine.errors import GraphError, PenstockError, nearest
from penstock.environment import StreamEnvironment

BuildFlow: TypeAlias = Callable[[StreamEnvironment], object]
_USUAL: Final = "flow"
_ARGUMENT: Final = "env"
"""What is in the name of a flow's argument, where that has no annotation."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What was found.

    Args:
        name: of the job, where the configuration names none: `file.attribute`, or `file` where that is `flow`.
        target: the function, or the environment.
        file: the module that was made of a file, of which no other process knows.
    """

    name: str
    target: BuildFlow | StreamEnvironment
    file: ModuleType | None = None


def load_flow(text: str) -> Flow:
    """The flow that `module:flow` or `file.py:flow` names; its module is imported.

    Raises:
        typer.BadParameter: no such module, file or attribute, or it is no flow.
        GraphError: the module raised while it was imported. Names file and line.
    """
    place, colon, attribute = text.rpartition(":")
    if not colon or not place or not attribute:
        raise typer.BadParameter(f"{text!r} names no flow; write module:flow or file.py:flow{_flows_in(text)}")
    is_file = place.endswith(".py")
    module = _of_file(place) if is_file else _of_module(place)
    target = _checked(_attribute(module, attribute, place), text)
    stem = Path(place).stem if is_file else place.rpartition(".")[2]
    return Flow(stem if attribute == _USUAL else f"{stem}.{attribute}", target, module if is_file else None)


def build(target: BuildFlow, env: StreamEnvironment, text: str) -> None:
    """Have a function fill in the environment.

    Raises:
        GraphError: it raised, or runs its program by itself. Names file and line.
    """
    program = env._program
    program.refusal = (
        f"leave execute(), submit() and the reading of collect() out of the flow {text}: a flow writes the program, "
        "which is then run"
    )
    try:
        target(env)
        program.refusal = None
    except PenstockError:
        raise
    except Exception as error:
        raise GraphError(f"the flow {text} raised {_named(error)}") from error


def send_by_value(file: ModuleType) -> None:
    """Workers cannot import a file: what they need of it goes with the job."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(file)  # type: ignore[no-untyped-call]


def _of_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        beside = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise typer.BadParameter(f"there is no file {place}{nearest(path.name, beside)}")
    # A file that is called as a module that others use must not take its place.
    name = f"flow_{path.stem}" if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GraphError(f"{place} cannot be imported: {_named(error)}") from error
    return module


def _flows_in(text: str) -> str:
    """What could be meant, where a file is named and none of its flows."""
    if not text.endswith(".py") or not Path(text).is_file():
        return ""
    return f"; it has {', '.join(_flows_of(_of_file(text))) or 'no flows'}"


def _of_module(place: str) -> ModuleType:
    if "/" in place:
        raise typer.BadParameter(f"{place!r} is no module; of a file, write {place}.py:flow")
    # As `python -m` does, and as Ray does for its workers.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise GraphError(f"module {place} cannot be imported: {_named(error)}") from error
        hint = f"; of the file, write {place}.py:flow" if Path(f"{place}.py").is_file() else ""
        raise typer.BadParameter(f"there is no module {error.name!r} here or among those installed{hint}") from error
    except Exception as error:
        raise GraphError(f"module {place} cannot be imported: {_named(error)}") from error


def _attribute(module: ModuleType, attribute: str, place: str) -> Any:
    if hasattr(module, attribute):
        return getattr(module, attribute)
    flows = _flows_of(module)
    raise typer.BadParameter(
        f"{place} has no {attribute!r}{nearest(attribute, flows)}; it has {', '.join(flows) or 'no flows'}"
    )


def _flows_of(module: ModuleType) -> Sequence[str]:
    """What in a module may be a flow: environments, and functions that take one, which the first argument tells."""
    own = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, StreamEnvironment)
        or (inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"))
    }
    return [name for name, value in own.items() if isinstance(value, StreamEnvironment) or _takes_environment(value)]


def _takes_environment(function: Callable[..., Any]) -> bool:
    """Whether a function takes one argument, which is annotated as an environment, or called so."""
    try:
        bound = inspect.signature(function).bind(None)
    except TypeError:
        return False
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return False
    name = next(iter(bound.arguments))
    kind = bound.signature.parameters[name].annotation
    if kind is inspect.Parameter.empty:
        return _ARGUMENT in name or function.__name__ == _USUAL
    return kind is StreamEnvironment or str(kind).rpartition(".")[2] == StreamEnvironment.__name__


def _checked(target: Any, text: str) -> BuildFlow | StreamEnvironment:
    if isinstance(target, StreamEnvironment):
        return target
    if not callable(target):
        raise typer.BadParameter(
            f"{text} is {target!r:.80} ({type(target).__name__}), not a flow: a function that takes the "
            "StreamEnvironment, or a StreamEnvironment"
        )
    try:
        inspect.signature(target).bind(None)
    except (TypeError, ValueError):
        raise typer.BadParameter(
            f"{text} does not take one argument, the StreamEnvironment: def flow(env): ..."
        ) from None
    if inspect.iscoroutinefunction(target) or inspect.isgeneratorfunction(target):
        raise typer.BadParameter(f"{text} is an async function or a generator; a flow is a plain function")
    flow: BuildFlow = target
    return flow


def _named(error: BaseException) -> str:
    """The error and the line of the user's that raised it."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _ours(filename: str) -> bool:
    return filename.startswith("<frozen") or filename.endswith(("importlib/__init__.py", "console/flows.py"))

"""Penstock: a stream processor with Flink's semantics for Python.

The front door: users import public names from here; the packages below hold the engine, the Ray shells, the
connectors and the savepoints. The names stand in `__init__.pyi`, and each is loaded when it is first used: a process
that runs a subtask loads what that needs, in half of the time that all of it would take.
"""

import sys
from types import TracebackType

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except AttributeError:
        if name.startswith("_"):
            # Nobody mistypes those: tools ask whether there are any.
            raise
        # Loaded for messages alone: programs that run have no use for it.
        from penstock.engine.errors import nearest

        raise AttributeError(f"penstock has no {name!r}{nearest(name, __all__)}") from None


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from penstock.error_report import show_uncaught

    show_uncaught(sys.__excepthook__, kind, error, trace)


if sys.excepthook is sys.__excepthook__ and "IPython" not in sys.modules:
    # What it takes is loaded when there is an error to show.
    sys.excepthook = _show_uncaught
else:
    from penstock.error_report import show_errors_briefly

    show_errors_briefly()


__version__ = "0.1.0"

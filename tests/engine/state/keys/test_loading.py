import sys
import threading

import pytest

from penstock.engine.state.keys.loading import BesideLoader


def test_turns_are_short_while_anything_is_loaded_and_as_they_were_behind_it() -> None:
    usual = sys.getswitchinterval()
    seen: list[float] = []
    goes_on = threading.Event()

    def load_long() -> None:
        goes_on.wait()
        seen.append(sys.getswitchinterval())

    long = BesideLoader(load_long)
    long.begin()
    BesideLoader(lambda: seen.append(sys.getswitchinterval())).wait()
    goes_on.set()
    long.wait()

    assert max(seen) < usual / 2
    assert sys.getswitchinterval() == usual


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_load_that_fails_leaves_turns_as_they_were() -> None:
    usual = sys.getswitchinterval()

    def fail() -> None:
        raise SystemExit

    failing = BesideLoader(fail)
    failing.wait()

    assert (failing.is_done, failing.is_loading, sys.getswitchinterval()) == (False, False, usual)

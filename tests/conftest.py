"""What every test run needs."""

import gc
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

# Hypothesis' pytest plugin imports it while the summary is printed, where CPython 3.11 may fail to compile it when a
# finalizer runs meanwhile ("AST constructor recursion depth mismatch"); here nothing else is under way.
import hypothesis
import pytest

from tests.servers.reaper import pytest_cmdline_main  # noqa: F401 (a hook)

# Processes that tests start find compiled modules, as those of an installed Gossamer do, also where this is set: to
# compile them again takes each of hundreds of processes a third of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# So does pytest: to compile the tests takes each of its processes as long as to collect them.
sys.dont_write_bytecode = False
# Of a run below nohup, the processes that tests start would ignore hang-ups.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# An example that takes long says that the machine has much to do: no test is about time.
hypothesis.settings.register_profile(
    "gossamer", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gossamer")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the garbage collector the tests and their modules: half a gigabyte of objects that stay until the end, and
    that it would look through again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end they are released like the rest."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Make the text of a report one that can be sent to pytest-xdist's main process.

    The failure of a test of text that is no UTF-8 has such text in its report, which would end the whole run with an
    internal error.
    """
    return _without_surrogates((yield))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_surrogates(part) for part in value)
    return value

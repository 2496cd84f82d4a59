"""The compiled extension, from the folder native/, where it is installed. All that it does is also done in Python.

Fixed: the variable GOSSAMER_NATIVE, which is documented.
"""

import os
from collections.abc import Callable
from typing import Any

from gossamer import __version__

_INTERFACE = 5
"""Form of the extension's functions that this program calls. Must be that of native/src/lib.rs."""

native: Any = None
"""The extension. None: it is not installed, is switched off, or cannot be used."""

_problem = ""
"""Reason why an extension that is installed cannot be used. Empty: there is none."""

if os.environ.get("GOSSAMER_NATIVE") != "0":  # to compare, or to find out whether a fault comes from it
    try:
        import gossamer_native
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == "gossamer_native"):
            _problem = f"it cannot be loaded ({str(error) or type(error).__name__})"
    else:
        _found = getattr(gossamer_native, "INTERFACE", 1)
        if _found == _INTERFACE:
            native = gossamer_native
        else:
            _problem = f"it is of another version (interface {_found}, not {_INTERFACE})"


def version_lines() -> str:
    """Return the version of the program, and in a second line whether the extension is in use; if not, why."""
    if native is not None:
        state = "in use"
    elif os.environ.get("GOSSAMER_NATIVE") == "0":
        state = "switched off by GOSSAMER_NATIVE=0"
    elif _problem:
        state = _left_out()
    else:
        state = f"not installed. With it, a crawl needs about half of the CPU time: {_advice()}"
    return f"gossamer {__version__}\ncompiled extension: {state}"


def _left_out() -> str:
    """Return why an extension that is installed cannot be used, and what to do."""
    return f"left out, because {_problem}. Install it again: {_advice()}"


def _advice() -> str:
    from gossamer.extras import extension_advice  # here, because most commands need no advice

    return extension_advice(__version__)


def warn_of_unusable_extension(say: Callable[[str], None]) -> None:
    """Warn of an extension that is installed, but left out. Without a word, a crawl would only be slower."""
    if _problem:
        say(f"The compiled extension is {_left_out()}")

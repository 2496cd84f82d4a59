"""The compiled extension, from the folder native/, where it is installed. All that it does is also done in Python.

Fixed: the variable GOSSAMER_NATIVE, which is documented.
"""

import os
from typing import Any

_INTERFACE = 3
"""Form of the extension's functions that this program calls. Must be that of native/src/lib.rs."""

try:
    if os.environ.get("GOSSAMER_NATIVE") == "0":  # to compare, or to find out whether a fault comes from it
        raise ImportError
    import gossamer_native

    if getattr(gossamer_native, "INTERFACE", 1) != _INTERFACE:  # one of another version of this program
        raise ImportError
except ImportError:
    native: Any = None
else:
    native = gossamer_native

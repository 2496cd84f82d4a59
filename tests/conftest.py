"""What every test run needs."""

import os

# Hypothesis' pytest plugin imports it while the summary is printed, where CPython 3.11 may fail to compile it when a
# finalizer runs meanwhile ("AST constructor recursion depth mismatch"); here nothing else is under way.
import hypothesis  # noqa: F401

# Processes that tests start find compiled modules, as those of an installed Gossamer do, also where this is set: to
# compile them again takes each of hundreds of processes a third of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

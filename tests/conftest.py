"""What every test run needs."""

# Hypothesis' pytest plugin imports it while the summary is printed, where CPython 3.11 may fail to compile it when a
# finalizer runs meanwhile ("AST constructor recursion depth mismatch"); here nothing else is under way.
import hypothesis  # noqa: F401

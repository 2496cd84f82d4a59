"""Ranges of values that several groups of settings use."""

from typing import Annotated

from gossamer.model.crawl import CONCURRENCY_RANGE
from gossamer.settings.groups import integers, numbers

_MAX_EXACT_INTEGER = 2**53 - 1  # the largest that Lua and JSON hold exactly: fixed
_DAY_SECONDS = 86400.0
CENTURY_SECONDS = 100 * 365 * _DAY_SECONDS
"""Longest retention, and longest time of --expires. To change it, change the words "a hundred years" in the message of
`parse_expires` (wiring/plan.py) as well."""

# Ranges. `above`: the lower limit itself is not allowed. Where a crawl request has a field for the same value, the
# upper limits must be those of its schema, `crawl.json` (tests/unit/test_settings.py compares them).
Count = Annotated[int, integers(1, _MAX_EXACT_INTEGER)]
Depth = Annotated[int, integers(0, 1_000_000)]
Concurrency = Annotated[int, integers(CONCURRENCY_RANGE[0], CONCURRENCY_RANGE[1])]
Seconds = Annotated[float, numbers(0, _DAY_SECONDS, above=True)]
SecondsOrZero = Annotated[float, numbers(0, _DAY_SECONDS)]
Bytes = Annotated[int, integers(1, 2**40, unit="bytes")]
MessageBytes = Annotated[int, integers(1024, 2**30, unit="bytes")]
Retention = Annotated[float, numbers(0, CENTURY_SECONDS, above=True)]

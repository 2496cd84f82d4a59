"""Additions to the practice web of `gossamer.fakeweb` for tests of crawlers.

- hostile hosts (`WebSpec(hostile=True)`) and an estate agent's site (`WebSpec(estate=N)`), loaded by gossamer.fakeweb;
- the outcome that a correct crawl must have (`expected`, `graph`, `fetched`);
- questions to the access log (`fetches`, `repeated`, `max_in_any_window`, `max_concurrency`).

What is exported here is the interface for people's tests: names may be added, none removed.
"""

from gossamer_fakeweb.expected import Ends, Expected, expected, fetched, graph
from gossamer_fakeweb.log import fetches, max_concurrency, max_in_any_window, repeated

__all__ = [
    "Ends",
    "Expected",
    "expected",
    "fetched",
    "fetches",
    "graph",
    "max_concurrency",
    "max_in_any_window",
    "repeated",
]

"""Fetchers that other packages install, as entry points of the group `gossamer.fetchers`.

A fetcher sends the requests of pages in place of Gossamer's own client. robots.txt, seeds and what a browser loads are
still fetched by the own client. An entry point names a function that takes FetcherParts and returns a ForeignFetcher;
`python -m gossamer.fetch.contract NAME` checks whether that keeps the contract (`fetch/backend.py`).
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

import msgspec

from gossamer.errors import BadInput
from gossamer.fetch.backend import FetchBackend
from gossamer.fetch.client import HttpClient, HttpClients
from gossamer.fetch.exchange import ResponseLimits, Timeouts
from gossamer.net.resolve import Resolver

GROUP = "gossamer.fetchers"
OWN = "gossamer"
"""Name of Gossamer's own client, for which no package is needed."""


class FetcherParts(msgspec.Struct, frozen=True):
    """Parts that a fetcher is made with."""

    resolver: Resolver
    """Returns the addresses to which a request may be sent (`Resolver.addresses`). A fetcher must connect to one of
    these, and may look up no name itself."""
    limits: ResponseLimits
    timeouts: Timeouts
    ca_file: str
    """PEM file of authorities that are trusted, too. Empty: none."""


class ForeignFetcher(FetchBackend, Protocol):
    """Fetch backend that can be closed."""

    async def close(self) -> None:
        """Close all connections; requests in progress fail. May be repeated."""


def find_fetcher(name: str) -> EntryPoint | None:
    """Return the entry point of a fetcher; None: that of Gossamer's own client. Raises BadInput if no package has
    it."""
    if name == OWN:
        return None
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise BadInput(f"no package has a fetcher {name!r}. Installed fetchers: {known}.", option="backend")
    return found[name]


def make_fetcher(name: str, parts: FetcherParts) -> ForeignFetcher:
    """Return the fetcher of this name. Belongs to one event loop. Raises BadInput if no package has it, or if it cannot
    be made."""
    entry = find_fetcher(name)
    if entry is None:
        return _own(parts)
    try:
        make = cast("Callable[[FetcherParts], ForeignFetcher]", entry.load())
        return make(parts)
    except Exception as error:
        raise BadInput(
            f"the fetcher {name!r} cannot be made: {type(error).__name__}: {error}", option="backend"
        ) from error


def _own(parts: FetcherParts) -> HttpClients:
    """Return Gossamer's own client."""

    def make(total_seconds: float | None) -> HttpClient:
        timeouts = parts.timeouts
        if total_seconds is not None:
            timeouts = msgspec.structs.replace(timeouts, total=total_seconds)
        return HttpClient(parts.resolver, limits=parts.limits, timeouts=timeouts, extra_ca=parts.ca_file or None)

    return HttpClients(make)

"""Seeds at private addresses: refused before anything starts, unless the person says so."""

import asyncio
from collections.abc import Sequence

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch.resolve import Resolver
from gossamer.policy.urls import host

_CHECKED = 1000
"""Hosts that are resolved before the start. Those beyond are judged when they are fetched, like every link."""


async def private_hosts(resolver: Resolver, seeds: Sequence[str], *, allowed: bool) -> tuple[str, ...]:
    """The seeds' hosts that have only addresses off the public internet.

    Raises BadInput for the first of them unless `allowed`. A name that does not resolve is no reason to refuse: the
    crawl records it.
    """
    hosts = list(dict.fromkeys(map(host, seeds)))[:_CHECKED]
    faults = await asyncio.gather(*(_fault(resolver, name) for name in hosts))
    found = [(name, fault) for name, fault in zip(hosts, faults, strict=True) if fault]
    if found and not allowed:
        name, fault = found[0]
        raise BadInput(
            f"{fault}: not on the public internet; --allow-private permits the hosts given, "
            f"--resolve {name}:ADDRESS one of them"
        )
    return tuple(name for name, _ in found)


async def _fault(resolver: Resolver, name: str) -> str:
    try:
        await resolver.addresses(name, 0)
    except BlockedAddress as error:
        return error.detail
    except DnsFailed:
        pass
    return ""

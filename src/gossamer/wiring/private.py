"""Seeds at private addresses: refused before anything starts, unless the person says so."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch.guard import host_address, verdict
from gossamer.fetch.resolve import Resolver
from gossamer.policy.urls import host

_LOOKED_UP = 1000
"""Names that are looked up before the start in any case. Those beyond are judged when they are fetched, like every
link; only who permits private seeds has to know all of them."""

_AT_ONCE = 32
"""Look-ups; as many as the resolver has threads, so that none of them times out while it waits for one."""


async def private_hosts(
    resolver: Resolver,
    seeds: Iterable[str],
    *,
    allowed: bool,
    names: bool = True,
    say: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """The seeds' hosts that have only addresses off the public internet, those that spell an address first.

    Raises BadInput for the first of them unless `allowed`. A name that does not resolve is no reason to refuse: the
    crawl records it. `names` false: names are not looked up (a proxy does that), and all count as private if that is
    `allowed`. `say` is told a sentence where the look-ups take a while.
    """
    hosts = dict.fromkeys(map(host, seeds))
    literals = [name for name in hosts if host_address(name) is not None]
    found: list[str] = []
    for name in literals:
        reason = verdict(host_address(name) or "")
        if reason is not None and await _fault(resolver, name):
            if not allowed:
                raise BadInput(
                    f"{name} is not on the public internet ({reason}); --allow-private permits the hosts given"
                )
            found.append(name)
    others = [name for name in hosts if host_address(name) is None]
    if not names:
        return (*found, *others) if allowed else ()
    if not allowed:
        others = others[:_LOOKED_UP]
    elif len(others) > _LOOKED_UP and say is not None:
        say(f"Looking up {len(others):,} hosts: --allow-private has to know which are at private addresses.")
    return (*found, *await _private_names(resolver, others, allowed=allowed))


async def _private_names(resolver: Resolver, names: Sequence[str], *, allowed: bool) -> list[str]:
    found: list[str] = []
    for start in range(0, len(names), _AT_ONCE):
        batch = names[start : start + _AT_ONCE]
        faults = await asyncio.gather(*(_fault(resolver, name) for name in batch))
        for name, fault in zip(batch, faults, strict=True):
            if fault and not allowed:
                raise BadInput(
                    f"{fault}: not on the public internet; --allow-private permits the hosts given, "
                    f"--resolve {name}:ADDRESS one of them"
                )
            if fault:
                found.append(name)
    return found


async def _fault(resolver: Resolver, name: str) -> str:
    try:
        await resolver.addresses(name, 0)
    except BlockedAddress as error:
        return error.detail
    except DnsFailed:
        pass
    return ""

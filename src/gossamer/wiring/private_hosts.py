"""Finds the hosts of a crawl's seeds (the URLs that it starts from) that are not on the public internet.

Such hosts are refused before the start, unless the person who starts the crawl permits them. Safe to change: messages
and limits, as their texts say. Fixed: that every seed's host is checked or fetched only as any link is.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch.guard import host_address, refusal_reason
from gossamer.fetch.resolve import Resolver
from gossamer.policy.urls import host

_NAMES_CHECKED = 1000
"""Maximum number of host names that are looked up before the start. May be changed freely: more make a start slower.
The rest is checked when it is fetched, as every link is. With --allow-private all names are looked up, because the
crawl has to know which hosts are private."""

_LOOKUPS_AT_ONCE = 32
"""Number of parallel look-ups. May be lower, but not higher than the resolver's number of threads (`threads` in
`fetch/resolve.py`): a look-up that waits for a thread could time out."""


async def find_private_hosts(
    resolver: Resolver,
    seeds: Iterable[str],
    *,
    allowed: bool,
    look_up_names: bool = True,
    say: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """Return the seeds' hosts that have only addresses outside the public internet, IP addresses before names.

    Raises BadInput for the first of them unless `allowed`. A name that does not resolve is not refused: the crawl
    records its failure. `look_up_names` False: a proxy resolves the names, so this function looks none up; if private
    hosts are `allowed`, it returns all names as private. `say` shows the user a sentence if there are many look-ups.
    """
    hosts = list(dict.fromkeys(map(host, seeds)))
    addresses = [name for name in hosts if host_address(name) is not None]
    names = [name for name in hosts if host_address(name) is None]
    private = await _private_addresses(resolver, addresses, allowed=allowed)
    if not look_up_names:
        return (*private, *names) if allowed else ()
    if not allowed:
        names = names[:_NAMES_CHECKED]
    elif len(names) > _NAMES_CHECKED and say is not None:
        say(f"Looking up {len(names):,} hosts: --allow-private needs to know which have private addresses.")
    return (*private, *await _private_names(resolver, names, allowed=allowed))


async def _private_addresses(resolver: Resolver, addresses: Sequence[str], *, allowed: bool) -> list[str]:
    """Return the private ones of these IP addresses. Raises BadInput for the first of them unless `allowed`."""
    found: list[str] = []
    for address in addresses:
        # The resolver decides, because an option may permit the address. `refusal_reason` has the words for a person.
        reason = refusal_reason(host_address(address) or "")
        if reason is not None and await _refusal(resolver, address):
            if not allowed:
                raise BadInput(
                    f"{address} is not on the public internet ({reason}). To crawl it, add --allow-private, which "
                    "permits the hosts of the given URLs."
                )
            found.append(address)
    return found


async def _private_names(resolver: Resolver, names: Sequence[str], *, allowed: bool) -> list[str]:
    """Return the names that only have private addresses. Raises BadInput for the first of them unless `allowed`."""
    found: list[str] = []
    for start in range(0, len(names), _LOOKUPS_AT_ONCE):
        batch = names[start : start + _LOOKUPS_AT_ONCE]
        refusals = await asyncio.gather(*(_refusal(resolver, name) for name in batch))
        for name, refusal in zip(batch, refusals, strict=True):
            if refusal and not allowed:
                raise BadInput(
                    f"{refusal}: not on the public internet. To crawl it, add --allow-private, which permits the hosts "
                    f"of the given URLs, or --resolve {name}:ADDRESS, which permits this one."
                )
            if refusal:
                found.append(name)
    return found


async def _refusal(resolver: Resolver, name: str) -> str:
    """Return why the host may not be fetched; empty where it may, or does not resolve."""
    try:
        await resolver.addresses(name, 0)
    except BlockedAddress as error:
        return error.detail
    except DnsFailed:
        pass
    return ""

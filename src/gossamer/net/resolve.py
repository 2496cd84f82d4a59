"""Resolves host names to approved addresses: operator's overrides, the system's DNS, a cache, and the address guard.

Callers connect to exactly an address returned here and never resolve again: between check and connection there is no
second look-up that could return another address (DNS rebinding). The address guard (`guard.py`) decides which addresses
are on the public internet.

Fixed: every address passes `_judge` before it is cached or returned; only an operator's override and the hosts and
networks that the operator allows are exempt.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.net import guard
from gossamer.net.names import domain_name

Lookup = Callable[[str], Awaitable[list[str]]]
"""Look-up of a host name. Returns its addresses, best first, IPv4 and IPv6 mixed. Raises OSError if there are none."""

TEMPORARY_SECONDS = 5.0
"""Time for which a temporary failure is cached. Long enough to spare a name server that does not answer, and shorter
than the pause before a page is tried again, or that try fails without a look-up."""

_DENIALS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
"""Errors of getaddrinfo that are answers of the name servers: no such name, or none with an address. The second one is
not on all systems. Fixed: another try soon gets the same answer, which is not so for other errors."""


class _Resolution(msgspec.Struct, frozen=True):
    """Cached result of a look-up."""

    approved: tuple[str, ...]
    """Addresses that every request may reach."""
    every: tuple[str, ...]
    """All addresses, for requests that may reach private ones."""
    refused: str
    """Message that names the other addresses, each with the reason."""
    failure: str
    """Message of a look-up that failed; empty: there are addresses."""
    expires: float
    """Time of the resolver's clock."""
    denied: bool = False
    """True: the failure is an answer; see `DnsFailed.denied`."""


class DnsLimits(msgspec.Struct, frozen=True):
    """Limits of look-ups and of their cache. Each must be above 0."""

    ttl_seconds: float = 300.0
    """Time for which addresses are cached: the system does not return a record's own TTL. Longer saves look-ups, and
    later follows a host that moves."""
    negative_ttl_seconds: float = 30.0
    """Time for which a failure is cached, and the bound of TEMPORARY_SECONDS."""
    max_entries: int = 10_000
    """Hosts in the cache. More take memory, fewer are looked up again."""
    timeout_seconds: float = 10.0
    """Longest look-up, including the wait for a thread. A thread of a look-up that takes longer stays occupied until
    the system gives up."""
    threads: int = 32
    """Look-ups that run at once. More find names sooner and burden the name server."""


class Resolver:
    """Returns approved addresses of hosts, from a cache where possible. Belongs to one event loop."""

    def __init__(
        self,
        *,
        overrides: Mapping[str, str] | None = None,
        allow_private_hosts: Collection[str] = (),
        allow_networks: Collection[str] = (),
        limits: DnsLimits = DnsLimits(),
        lookup: Lookup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises BadInput for an invalid override or network.

        `overrides`: address of a host, used instead of DNS; for this host it may be private. A host may be `*.suffix`
        (every name below it, not the suffix itself) or `*` (every name). Names may be spelled as in any URL
        (`Bücher.test`). The exact host wins over the longest suffix, and that over `*`. A host that spells an address
        is overridden only by its exact entry.
        `allow_private_hosts`: hosts, spelled exactly, that may resolve to any address.
        `allow_networks`: networks in CIDR notation that every host may resolve to.
        `lookup`: looks names up; None: the system does (getaddrinfo). `clock`: monotonic seconds.
        """
        self._overrides = {_overridden(host): _override(host, ip) for host, ip in (overrides or {}).items()}
        self._has_wildcards = any(host.startswith("*") for host in self._overrides)
        self._ttl_seconds = limits.ttl_seconds
        self._negative_ttl_seconds = limits.negative_ttl_seconds
        self._max_entries = limits.max_entries
        self._private_hosts = frozenset(_plain_host(host) for host in allow_private_hosts)
        self._networks = guard.parse_networks(allow_networks)
        self._timeout_seconds = limits.timeout_seconds
        self._threads = limits.threads
        self._executor: ThreadPoolExecutor | None = None
        self._lookup = lookup or self._system_lookup
        self._clock = clock
        self._cache: dict[str, _Resolution] = {}
        self._lookups: dict[str, asyncio.Task[_Resolution]] = {}

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """Return the approved addresses of a host in the order to try, IPv4 and IPv6 in turn (RFC 8305); never empty.

        `host`: as in a canonical URL: a name, an IPv4 address, an IPv6 address with or without brackets. `port`: not
        used yet; a look-up by service would need it. `allow_private`: True permits any address for this call. Refused
        addresses are left out. Raises DnsFailed if there is no address, BlockedAddress (with host, address and reason)
        if none is allowed. Concurrent calls for a host share one look-up.
        """
        resolution = self._cache.get(host)
        if resolution is None or resolution.expires <= self._clock():
            resolution = await self._shared_resolution(host)
        if resolution.failure:
            error = DnsFailed(resolution.failure)
            error.denied = resolution.denied
            raise error
        allowed = resolution.every if allow_private else resolution.approved
        if not allowed:
            raise BlockedAddress(resolution.refused)
        return allowed

    def cached_addresses(self, host: str, *, allow_private: bool) -> tuple[str, ...] | None:
        """Return the result of `addresses` if the cache has it. None: `addresses` has to look, or would raise. A host
        whose entry has not changed gets the same tuple again."""
        resolution = self._cache.get(host)
        if resolution is None or resolution.expires <= self._clock():
            return None
        return (resolution.every if allow_private else resolution.approved) or None

    def close(self) -> None:
        """Release the threads; a look-up in progress ends by itself. May be repeated."""
        for task in self._lookups.values():
            task.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    async def _shared_resolution(self, host: str) -> _Resolution:
        """Look a host up; concurrent calls for it share one look-up."""
        task = self._lookups.get(host)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._resolve_into_cache(host))
            self._lookups[host] = task
            task.add_done_callback(lambda done: self._lookups.pop(host, None))
        # Shielded: a cancelled caller must not fail the others that wait for the same name.
        return await asyncio.shield(task)

    async def _resolve_into_cache(self, host: str) -> _Resolution:
        """Look a host up, and cache the result, also a failure."""
        resolution = await self._resolve(host)
        # Removed and inserted at the end, so that the first entry is about the first to expire. It makes room.
        self._cache.pop(host, None)
        while len(self._cache) >= self._max_entries:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = resolution
        return resolution

    async def _resolve(self, host: str) -> _Resolution:
        """Find the addresses of a host, without the cache."""
        # The order matters: an override wins over everything, and an address is never looked up as a name.
        name = _plain_host(host)
        override = self._override(name)
        if override is not None:
            return self._judge(name, [override], allow_all=True)
        literal = guard.host_address(name)
        if literal is not None:
            return self._judge(name, [literal])
        if not _can_be_a_name(name):
            return self._fail(f"{host!r} is not a host name", self._negative_ttl_seconds, denied=True)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                found = await self._lookup(name)
        except TimeoutError:
            return self._fail(f"{name}: no answer within {self._timeout_seconds:g} s", TEMPORARY_SECONDS)
        except OSError as exc:
            temporary = isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN
            seconds = TEMPORARY_SECONDS if temporary else self._negative_ttl_seconds
            denied = isinstance(exc, socket.gaierror) and exc.errno in _DENIALS
            return self._fail(f"{name}: {exc.strerror or exc}", seconds, denied=denied)
        if not found:
            return self._fail(f"{name}: no address", self._negative_ttl_seconds, denied=True)
        return self._judge(name, found)

    def _judge(self, name: str, found: Iterable[str], *, allow_all: bool = False) -> _Resolution:
        """Ask the guard about each address. `allow_all`: the operator named the address, so it may be private."""
        every = tuple(_interleave(found))
        reasons: dict[str, str] = {}  # by refused address
        if not allow_all and name not in self._private_hosts:
            for ip in every:
                reason = self._refused(ip)
                if reason is not None:
                    reasons[ip] = reason
        return _Resolution(
            approved=tuple(ip for ip in every if ip not in reasons),
            every=every,
            refused=f"{name} is " + ", ".join(f"{ip} ({reason})" for ip, reason in reasons.items()),
            failure="",
            expires=self._clock() + self._ttl_seconds,
        )

    def _refused(self, ip: str) -> str | None:
        """Return why the address is refused; None: it is public, or in a network that the operator allows."""
        reason = guard.refusal_reason(ip)
        return None if reason is None or guard.within(ip, self._networks) else reason

    def _fail(self, failure: str, seconds: float, *, denied: bool = False) -> _Resolution:
        """Return the result of a look-up that failed. `seconds`: time for which it is cached, unless the limit for
        failures is shorter. `denied`: see `DnsFailed.denied`."""
        expires = self._clock() + min(seconds, self._negative_ttl_seconds)
        return _Resolution(approved=(), every=(), refused="", failure=failure, expires=expires, denied=denied)

    def _override(self, name: str) -> str | None:
        """Return the operator's address for a host; None: there is none."""
        exact = self._overrides.get(name)
        if exact is not None or not self._has_wildcards or guard.host_address(name) is not None:
            return exact
        suffix = name
        while (dot := suffix.find(".")) != -1:
            suffix = suffix[dot + 1 :]
            if (ip := self._overrides.get(f"*.{suffix}")) is not None:
                return ip
        return self._overrides.get("*")

    async def _system_lookup(self, name: str) -> list[str]:
        """Look a name up by the system, in a thread, because getaddrinfo blocks."""
        if self._executor is None:
            # Own threads, because a slow name server must not block other users of the event loop's default executor.
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="gossamer-dns")
        return await asyncio.get_running_loop().run_in_executor(self._executor, _getaddrinfo, name)


def parse_override(text: str) -> tuple[str, str]:
    """Parse `HOST:ADDRESS` into a pair for `overrides`; HOST may be `*.suffix` or `*`. Raises BadInput for anything
    else."""
    host, colon, ip = text.partition(":")
    if not (colon and host and ip):
        raise BadInput(
            f"cannot read {text!r} as an address of a host. Write HOST:ADDRESS, for example www.example.com:127.0.0.1"
        )
    return _overridden(host), _override(host, ip)


def _overridden(host: str) -> str:
    """Return the host of an override as canonical URLs spell it, an address in its shortest form; `*.suffix` and `*`
    keep their asterisk. Raises BadInput for what no URL's host can be or end in."""
    if host == "*":
        return host
    prefix = "*." if host.startswith("*.") else ""
    try:
        name = domain_name(host.removeprefix(prefix))
    except BadInput:
        name = "*"
    if "*" in name:
        raise BadInput(f"{host!r} is not a host name. Write HOST, *.SUFFIX for all names below it, or * for every name")
    return prefix + _plain_host(name)


def _override(host: str, ip: str) -> str:
    """Return the address in its shortest form. Raises BadInput if `ip` is none."""
    address = guard.host_address(ip)
    if ip.isdecimal() and int(ip) < 65536:  # a URL parser reads 8080 as the address 0.0.31.144, which is never meant
        raise BadInput(f"{ip!r} is a port, not an IP address of {host!r}; write HOST:ADDRESS")
    if address is None:
        raise BadInput(f"{ip!r} is not an IP address of {host!r}")
    return address


def _plain_host(host: str) -> str:
    """Return the normal spelling of a host: lower case, without brackets and the root's dot; an address in its shortest
    form."""
    return guard.host_address(host) or host.lower().removesuffix(".")


def _can_be_a_name(name: str) -> bool:
    """Return whether a text may be looked up: ASCII without spaces or controls, of RFC 1035's lengths (253 for a name,
    63 for a label). Underscores and the like occur, so they are allowed."""
    return (
        0 < len(name) <= 253
        and name.isascii()
        and all(0 < len(label) <= 63 for label in name.split("."))
        and not any(character <= " " or character in "%/:@[]\\\x7f" for character in name)
    )


def _getaddrinfo(name: str) -> list[str]:
    """Return the addresses of a name. Raises OSError."""
    # Bytes, because a str would go through the IDNA codec, which canonical URLs have passed already.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]


def _interleave(found: Iterable[str]) -> list[str]:
    """Remove repeats and order IPv4 and IPv6 addresses in turn, the system's preferred kind first (RFC 8305, section
    4)."""
    unique = list(dict.fromkeys(found))
    if not unique:
        return []
    first_is_ipv6 = ":" in unique[0]
    first = [ip for ip in unique if (":" in ip) == first_is_ipv6]
    second = [ip for ip in unique if (":" in ip) != first_is_ipv6]
    ordered = []
    for index in range(max(len(first), len(second))):
        ordered += first[index : index + 1] + second[index : index + 1]
    return ordered

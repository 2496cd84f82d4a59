"""Host names to addresses that may be connected to: overrides, the system's DNS, a cache, and the guard on all of it.

A caller connects to exactly an address returned here and never resolves again; between judging and connecting there is
no second look-up that could answer differently (DNS rebinding).
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch import guard

Lookup = Callable[[str], Awaitable[list[str]]]
"""From a host name to its addresses, best first, IPv4 and IPv6 mixed. Raises OSError when there are none."""

TEMPORARY_SECONDS = 5.0
"""How long a failure that says "try again" is believed: long enough to spare a dead server, shorter than any retry."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a look-up gave, judged once. `approved` for everybody, `every` for who may reach private addresses."""

    approved: tuple[str, ...]
    every: tuple[str, ...]
    refused: str
    failure: str
    expires: float


class Resolver:
    """Approved addresses of a host, from memory where possible. Belongs to one event loop."""

    def __init__(
        self,
        *,
        overrides: Mapping[str, str] | None = None,
        ttl_seconds: float = 300.0,
        negative_ttl_seconds: float = 30.0,
        max_entries: int = 10_000,
        allow_private_hosts: Collection[str] = (),
        allow_networks: Collection[str] = (),
        timeout_seconds: float = 10.0,
        threads: int = 32,
        lookup: Lookup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises BadInput for an override or a network that cannot be read.

        `overrides`: host to address, in place of DNS and for that host only; it permits a private address for it. A
        host may be `*.suffix` (every name below it, not the suffix itself) or `*` (every name). The exact host wins
        over the longest suffix, that over `*`. A host that spells an address is overridden only by its exact entry.
        `allow_private_hosts`: hosts, spelled exactly, that may resolve to any address.
        `allow_networks`: networks in CIDR notation that every host may resolve to.
        `ttl_seconds`: how long an answer is believed. The system's resolver does not tell a record's own TTL, so this
        is a cap that suits most; it has its own cache below. `negative_ttl_seconds`: the same for a failure.
        `timeout_seconds`: the longest a look-up may take, the wait for one of the `threads` included.
        `lookup`: who is asked, by default the system (getaddrinfo). `clock`: seconds, never going back.
        """
        self._overrides = {_plain_host(host): _override(host, ip) for host, ip in (overrides or {}).items()}
        self._wild = any(host.startswith("*") for host in self._overrides)
        self._ttl_seconds = ttl_seconds
        self._negative_ttl_seconds = negative_ttl_seconds
        self._max_entries = max_entries
        self._private_hosts = frozenset(_plain_host(host) for host in allow_private_hosts)
        self._networks = guard.parse_networks(allow_networks)
        self._timeout_seconds = timeout_seconds
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._lookup = lookup or self._ask_system
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._asking: dict[str, asyncio.Task[_Answer]] = {}

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """The approved addresses of a host in the order to try, the families taking turns (RFC 8305); never empty.

        `host` as it stands in a canonical URL: a name, an IPv4 address, an IPv6 address with or without brackets.
        `port` does not change the answer; it is here because a look-up by service might need it.
        `allow_private` permits any address for this call. Of several addresses the refused ones are left out.
        Raises DnsFailed when there is no address, BlockedAddress (with host, address and reason) when none is allowed.
        May be repeated; any number of concurrent calls for a host cost one look-up.
        """
        answer = self._answers.get(host)
        if answer is None or answer.expires <= self._clock():
            answer = await self._ask(host)
        if answer.failure:
            raise DnsFailed(answer.failure)
        allowed = answer.every if allow_private else answer.approved
        if not allowed:
            raise BlockedAddress(answer.refused)
        return allowed

    def close(self) -> None:
        """Let go of the threads; a look-up that is under way ends by itself. May be repeated."""
        for task in self._asking.values():
            task.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    async def _ask(self, host: str) -> _Answer:
        task = self._asking.get(host)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._find(host))
            self._asking[host] = task
            task.add_done_callback(lambda done: self._asking.pop(host, None))
        # Shielded: one caller giving up must not fail the others that wait for the same name.
        return await asyncio.shield(task)

    async def _find(self, host: str) -> _Answer:
        answer = await self._find_anew(host)
        # Re-inserted at the end, so the first entry is the one to expire first (or nearly) and the one to make room.
        self._answers.pop(host, None)
        while len(self._answers) >= self._max_entries:
            del self._answers[next(iter(self._answers))]
        self._answers[host] = answer
        return answer

    async def _find_anew(self, host: str) -> _Answer:
        name = _plain_host(host)
        override = self._override(name)
        if override is not None:
            return self._judge(name, [override], permitted=True)
        literal = guard.host_address(name)
        if literal is not None:
            return self._judge(name, [literal])
        if not _can_be_a_name(name):
            return self._fail(f"{host!r} is no host name", self._negative_ttl_seconds)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                found = await self._lookup(name)
        except TimeoutError:
            return self._fail(f"{name}: no answer within {self._timeout_seconds:g} s", TEMPORARY_SECONDS)
        except OSError as exc:
            temporary = isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN
            seconds = TEMPORARY_SECONDS if temporary else self._negative_ttl_seconds
            return self._fail(f"{name}: {exc.strerror or exc}", seconds)
        if not found:
            return self._fail(f"{name}: no address", self._negative_ttl_seconds)
        return self._judge(name, found)

    def _judge(self, name: str, found: Iterable[str], *, permitted: bool = False) -> _Answer:
        every = tuple(_interleave(found))
        permitted = permitted or name in self._private_hosts
        reasons = {} if permitted else {ip: reason for ip in every if (reason := self._refused(ip)) is not None}
        return _Answer(
            approved=tuple(ip for ip in every if ip not in reasons),
            every=every,
            refused=f"{name} is " + ", ".join(f"{ip} ({reason})" for ip, reason in reasons.items()),
            failure="",
            expires=self._clock() + self._ttl_seconds,
        )

    def _refused(self, ip: str) -> str | None:
        reason = guard.refusal_reason(ip)
        return None if reason is None or guard.within(ip, self._networks) else reason

    def _fail(self, failure: str, seconds: float) -> _Answer:
        seconds = min(seconds, self._negative_ttl_seconds)
        return _Answer(approved=(), every=(), refused="", failure=failure, expires=self._clock() + seconds)

    def _override(self, name: str) -> str | None:
        exact = self._overrides.get(name)
        if exact is not None or not self._wild or guard.host_address(name) is not None:
            return exact
        suffix = name
        while (dot := suffix.find(".")) != -1:
            suffix = suffix[dot + 1 :]
            if (ip := self._overrides.get(f"*.{suffix}")) is not None:
                return ip
        return self._overrides.get("*")

    async def _ask_system(self, name: str) -> list[str]:
        if self._executor is None:
            # Threads of our own: a slow name server must not hold up other users of the loop's default executor.
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="gossamer-dns")
        return await asyncio.get_running_loop().run_in_executor(self._executor, _getaddrinfo, name)


def parse_override(text: str) -> tuple[str, str]:
    """`HOST:ADDRESS` as a pair for `overrides`; HOST may be `*.suffix` or `*`. Raises BadInput for anything else."""
    host, colon, ip = text.partition(":")
    if not (colon and host and ip):
        raise BadInput(f"{text!r} is no override; write HOST:ADDRESS, for example www.example.com:127.0.0.1")
    return _plain_host(host), _override(host, ip)


def _override(host: str, ip: str) -> str:
    address = guard.host_address(ip)
    if ip.isdecimal() and int(ip) < 65536:  # as an address it means 0.0.x.y; nobody does
        raise BadInput(f"{ip!r} is a port, no IP address that {host!r} could be at; write HOST:ADDRESS")
    if address is None:
        raise BadInput(f"{ip!r} is no IP address that {host!r} could be at")
    return address


def _plain_host(host: str) -> str:
    """One spelling a host: lower case, without brackets and the root's dot; an address in its shortest form."""
    return guard.host_address(host) or host.lower().removesuffix(".")


def _can_be_a_name(name: str) -> bool:
    """RFC 1035's lengths, in ASCII without spaces or controls. Underscores and the like do occur, so they may."""
    return (
        0 < len(name) <= 253
        and name.isascii()
        and all(0 < len(label) <= 63 for label in name.split("."))
        and not any(character <= " " or character in "%/:@[]\\\x7f" for character in name)
    )


def _getaddrinfo(name: str) -> list[str]:
    # Bytes, because a str would go through the IDNA codec, which a canonical URL's host has behind it.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]


def _interleave(found: Iterable[str]) -> list[str]:
    """Without repeats, the families in turn, beginning with the one preferred by the system (RFC 8305, section 4)."""
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

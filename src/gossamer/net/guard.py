"""Address guard: pages, webhooks and proxies of requests may be on addresses of the public internet only.

This module only judges addresses; `resolve.py` looks up the addresses of names and asks this module.

The tables follow the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890 and its updates) and the IANA
IPv6 address space. They are written out here because the answers of `ipaddress.is_global` changed between Python
versions. They are also stricter: addresses that are globally reachable but serve no web page (protocol anycast) or lead
through a tunnel that has been given up (6to4, Teredo) are refused, too. An entry may be removed only if its registry
changes.

No table can contain the operator's own NAT64 prefix (RFC 6052), which looks like any public IPv6 network. Where one is
in use, its gateway must refuse private targets.

Every spelling of an address must be judged as the address that the kernel would connect to; a spelling that is missed
opens the operator's networks to any page.
"""

import functools
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import ada_url

from gossamer.errors import BadInput

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_REFUSED_IPV4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified, this network"),  # RFC 791; connecting to 0.0.0.0 reaches this very machine
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared by a carrier's NAT"),  # RFC 6598
        ("127.0.0.0/8", "loopback"),  # RFC 1122
        ("169.254.0.0/16", "link-local"),  # RFC 3927; cloud metadata services live here
        ("172.16.0.0/12", "private"),  # RFC 1918
        ("192.0.0.0/24", "protocol assignments"),  # RFC 6890, with the anycast addresses of PCP and TURN
        ("192.0.2.0/24", "documentation"),  # RFC 5737
        ("192.88.99.0/24", "6to4 relay"),  # RFC 7526
        ("192.168.0.0/16", "private"),  # RFC 1918
        ("198.18.0.0/15", "benchmarking"),  # RFC 2544
        ("198.51.100.0/24", "documentation"),  # RFC 5737
        ("203.0.113.0/24", "documentation"),  # RFC 5737
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("255.255.255.255/32", "broadcast"),  # RFC 8190
        ("240.0.0.0/4", "reserved"),  # RFC 1112
    )
)

_REFUSED_IPV6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),  # RFC 4291
        ("::1/128", "loopback"),  # RFC 4291
        ("::/96", "IPv4-compatible, deprecated"),  # RFC 4291
        ("::ffff:0:0:0/96", "IPv4-translated"),  # RFC 2765, RFC 7915
        ("64:ff9b:1::/48", "NAT64 for local use"),  # RFC 8215
        ("100::/64", "discard only"),  # RFC 6666
        ("2001::/32", "Teredo"),  # RFC 4380; its servers are switched off
        ("2001::/23", "protocol assignments"),  # RFC 2928: benchmarking, ORCHID, DRIP, anycast
        ("2001:db8::/32", "documentation"),  # RFC 3849
        ("2002::/16", "6to4, deprecated"),  # RFC 7526
        ("3ffe::/16", "6bone, returned"),  # RFC 3701
        ("3fff::/20", "documentation"),  # RFC 9637
        ("fc00::/7", "unique local"),  # RFC 4193
        ("fe80::/10", "link-local"),  # RFC 4291
        ("fec0::/10", "site-local, deprecated"),  # RFC 3879
        ("ff00::/8", "multicast"),  # RFC 4291
    )
)

# Networks and the mark by which `_carried` recognizes IPv6 addresses that carry an IPv4 one. Their RFCs set them; they
# must not change.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 addresses that may be public (RFC 4291, IANA IPv6 address space)."""
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_ISATAP = 0x5EFE
"""The 32 bits before the IPv4 address; 0200:5EFE if the identifier is globally unique."""


@functools.lru_cache(maxsize=4096)  # a larger cache needs memory
def refusal_reason(ip: str) -> str | None:
    """Return why an address must not be connected to, in a few words; None: it is on the public internet.

    `ip` is an address in any spelling that `ipaddress` reads. An IPv6 address that carries an IPv4 one (mapped, NAT64,
    6to4, Teredo, ISATAP) is also judged by the address it carries. A scoped address (`fe80::1%eth0`) and text that is
    no address are refused.
    """
    try:
        address = ip_address(ip)
    except ValueError:
        return "not an IP address"
    if isinstance(address, IPv4Address):
        return _refusal_ipv4(address)
    return _refusal_ipv6(address)


def host_address(host: str) -> str | None:
    """Return the address that a URL's host spells, in its shortest form and without brackets; None: the host is a name.

    Reads what the WHATWG URL host parser reads, so that `127.1`, `0x7f.1`, `2130706433`, `0177.0.0.1`, percent-encoded
    and full-width digits are all 127.0.0.1. An IPv6 address may be in brackets or not. None is also returned for
    text that cannot be a host.
    """
    if not host or any(character in _NOT_IN_HOST for character in host):
        return None
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    try:
        url = ada_url.URL(f"http://{host}/")
    except ValueError:
        return None
    if url.host_type == ada_url.HostType.DEFAULT:
        return None
    return str(unmapped(ip_address(url.hostname.strip("[]"))))


def unmapped(address: Address) -> Address:
    """Return the IPv4 address in an IPv4-mapped IPv6 address (the kernel connects by IPv4 to it); any other
    unchanged."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_networks(networks: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks in CIDR notation, or single addresses. Raises BadInput for anything else, including host bits that
    are set."""
    parsed = []
    for network in networks:
        try:
            parsed.append(ip_network(network.strip()))
        except ValueError as exc:
            raise BadInput(f"{network!r} is not a network; write for example 10.0.0.0/8 or fd00::/8 ({exc})") from None
    return tuple(parsed)


def within(ip: str, networks: Iterable[Network]) -> bool:
    """Return whether an address is in one of the networks. A mapped IPv6 address counts as its IPv4 address."""
    try:
        address = unmapped(ip_address(ip))
    except ValueError:
        return False
    return any(address in network for network in networks)


_NOT_IN_HOST = frozenset("/\\?#@\t\n\r")
"""Characters that end the host in a URL or are dropped from it, so that another host than the given one would be
judged. Characters may be added; none may be removed."""


def _refusal_ipv4(address: IPv4Address) -> str | None:
    """Return why an IPv4 address is refused; None: it is public."""
    for network, reason in _REFUSED_IPV4:
        if address in network:
            return reason
    return None


def _refusal_ipv6(address: IPv6Address) -> str | None:
    """Return why an IPv6 address is refused; None: it is public. The IPv4 addresses that it carries are judged
    first."""
    if address.scope_id is not None:
        return "scoped to one interface"
    for carried in _carried(address):
        reason = _refusal_ipv4(carried)
        if reason is not None:
            return f"{reason} ({carried})"
    # NAT64 is the only way from a network without IPv4 to most of the web. RFC 6052 forbids private targets behind it.
    if address in _MAPPED or address in _NAT64:
        return None
    for network, reason in _REFUSED_IPV6:
        if address in network:
            return reason
    return None if address in _GLOBAL_UNICAST else "not global unicast"


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that this address leads to, by the mechanisms that translate or tunnel."""
    bits = int(address)
    last = IPv4Address(bits & 0xFFFFFFFF)
    if address in _MAPPED or address in _NAT64:  # RFC 4291, RFC 6052
        return (last,)
    if address in _SIX_TO_FOUR:  # RFC 3056
        return (IPv4Address((bits >> 80) & 0xFFFFFFFF),)
    if address in _TEREDO:  # RFC 4380: the server, and the client with its bits flipped
        return (IPv4Address((bits >> 64) & 0xFFFFFFFF), IPv4Address(~bits & 0xFFFFFFFF))
    # RFC 5214. The mask leaves out the bit for a globally unique identifier, which may be 0 or 1.
    if ((bits >> 32) & 0xFDFFFFFF) == _ISATAP:
        return (last,)
    return ()

"""Decides which addresses a webhook may call: only public ones, unless the operator permits others.

A webhook is a request that the manager makes where a client says. Without this guard a client could reach services of
the manager's network that trust it (a database without a password, the metadata of a cloud). A name is looked up here,
and the request goes to the address that was checked: a name that leads elsewhere a moment later changes nothing.

Fixed: that an address is checked after the look-up, not the name before it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from gossamer.errors import BadInput

NETWORKS_VARIABLE: Final = "GOSSAMER_WEBHOOK_NETWORKS"
"""Environment variable with networks that webhooks may call beside public ones, separated by commas. Fixed."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_UNICAST: Final[Sequence[Network]] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("2000::/3"))
"""Networks of addresses that machines have. Other addresses of IPv6 may lead to a private one of IPv4 (NAT64, say)."""
_SPECIAL: Final[Sequence[Network]] = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Networks for special purposes that Python takes for public. In the first, clouds have metadata of machines."""
_LOOK_UPS: Final = ThreadPoolExecutor(16, thread_name_prefix="webhook-name")
"""Threads for names, apart from others: a look-up may hang for longer than its request. May be changed."""


class WebhookAddresses:
    """Permits public addresses, and those of some networks."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "WebhookAddresses":
        """Return the guard by the operator's variable. Raises BadInput."""
        given = [each.strip() for each in environment.get(NETWORKS_VARIABLE, "").split(",") if each.strip()]
        try:
            return cls([ipaddress.ip_network(each) for each in given])
        except ValueError as error:
            raise BadInput(f"{NETWORKS_VARIABLE}: {error}. Write networks such as 10.0.0.0/8,127.0.0.1/32") from None

    def permits(self, address: Address) -> bool:
        """Return whether a webhook may call the address."""
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks if network.version == address.version):
            return True
        if isinstance(address, ipaddress.IPv6Address) and (address.sixtofour or address.teredo):
            return False  # they may lead to a private IPv4 address
        if not any(address in network for network in _UNICAST if network.version == address.version):
            return False
        is_special = any(address in network for network in _SPECIAL if network.version == address.version)
        return address.is_global and not address.is_multicast and not is_special

    async def resolve(self, url: str) -> Address:
        """Return a permitted address of the host of a URL. Raises BadInput, and OSError if the name is not found."""
        parts = urlsplit(check_url(url))
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(_LOOK_UPS, look_up)
        addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
        for address in addresses:
            if self.permits(address):
                return address
        raise BadInput(
            f"{host} has the address {addresses[0]}, which is not public. An operator permits it in {NETWORKS_VARIABLE}"
        )


def check_url(url: str) -> str:
    """Return the URL of a webhook. Raises BadInput unless it is one of http or https, without name and password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not is_plain:
        raise BadInput(f"url: {url[:200]!r} is no address such as https://example.com/hook")
    if "@" in parts.netloc:
        raise BadInput("url: it contains a user name; the receiver knows this server by the signature")
    return url

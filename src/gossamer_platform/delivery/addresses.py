"""Decides which addresses a webhook may call: only public ones, unless the operator permits others.

A webhook is a request that the manager makes where a client says. Without this rule a client could reach services of
the manager's network that trust it (a database without a password, the metadata of a cloud). A name is looked up here,
and the request goes to the address that was checked: a name that leads elsewhere a moment later changes nothing.
`net/guard.py` decides which addresses are public.
"""

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from gossamer.errors import BadInput, BlockedAddress
from gossamer.net.resolve import Resolver

NETWORKS_VARIABLE: Final = "GOSSAMER_WEBHOOK_NETWORKS"
"""Environment variable with networks that webhooks may call beside public ones, separated by commas. Fixed."""


class WebhookAddresses:
    """Finds the addresses of webhooks. Belongs to one event loop."""

    def __init__(self, networks: Collection[str] = ()) -> None:
        """`networks`: networks in CIDR notation that are permitted, too. Raises BadInput."""
        self._resolver = Resolver(allow_networks=networks)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "WebhookAddresses":
        """Return the addresses that the operator's variable permits. Raises BadInput."""
        given = [each.strip() for each in environment.get(NETWORKS_VARIABLE, "").split(",") if each.strip()]
        try:
            return cls(given)
        except BadInput as error:
            raise BadInput(f"{NETWORKS_VARIABLE}: {error}") from None

    async def resolve(self, url: str) -> str:
        """Return a permitted address of the host of a URL. Raises BadInput, and DnsFailed if the name is not found."""
        parts = urlsplit(check_url(url))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            return (await self._resolver.addresses(parts.hostname or "", port))[0]
        except BlockedAddress as error:
            raise BadInput(f"{error.detail}: not public. An operator permits it in {NETWORKS_VARIABLE}") from None

    def close(self) -> None:
        """Release the threads of look-ups. May be repeated."""
        self._resolver.close()


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

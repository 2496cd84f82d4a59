"""Decides who may send requests: by password, or without one by the names of hosts in the request.

A deployment runs code. Scrapyd sends headers that let every web page call it, so without a password a page in a
browser on this machine could deploy. Therefore, without a password, the request must be addressed to a loopback name
(a page cannot forge `Host`, even if its own name leads to this machine), and must not come from a page of another
origin. Fixed: these two rules, and the answers to a wrong password, which are Scrapyd's.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

CHALLENGE: Final = 'basic realm="Scrapyd"'
"""Value of WWW-Authenticate. Scrapyd's: fixed."""


def has_password(header: str, username: str, password: str) -> bool:
    """Return whether the Authorization header has this name and password."""
    scheme, _, given = header.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        decoded = base64.b64decode(given.strip())
    except (binascii.Error, ValueError):
        return False
    # Compared in constant time, so that the time of the answer tells nothing about the password.
    return hmac.compare_digest(decoded, f"{username}:{password}".encode())


def refusal(headers: Mapping[str, str], *, over_unix_socket: bool) -> str:
    """Return why a request without a password is refused. Empty: it is allowed."""
    host = headers.get("host", "")
    if not over_unix_socket and not is_loopback(_name(host)):
        return (
            f"the request is addressed to {host or 'no host'}; without a password only localhost may be. Set username "
            "and password in scrapyd.conf"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"the request comes from a page of {origin}; without a password no other site may send requests"
    return ""


def is_loopback(name: str) -> bool:
    """Return whether a host name or address means this machine only."""
    if name.lower().rstrip(".") == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return the Host header without its port."""
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]

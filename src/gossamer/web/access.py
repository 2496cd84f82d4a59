"""Keeps web pages and other machines from using an HTTP interface of this machine, and compares secrets.

A page in a browser of this machine reaches what listens on it. Two rules keep it out:

- A page of another site sends its address in Origin, and its browser tells in Sec-Fetch-Site where it comes from.
- A page that has rebound its own name to 127.0.0.1 (DNS rebinding) is of the same origin, but has its name in Host.

The second rule holds only where no secret is needed: with one, an interface may have any name. There a third rule keeps
out other machines, which may write any Host: the sender's address must be a loopback address, and no proxy may say that
it passes on the request of another machine. All functions read headers strictly: a header that occurs twice, or that no
browser would send, is refused.
"""

import hmac
import re

from starlette.datastructures import Headers

from gossamer.net.loopback import is_loopback

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?")
"""Host of RFC 9110: without a user, blanks or other characters that names and addresses of this machine do not have."""
_ORIGIN = re.compile(r"https?://([^/?#@\\\s]+)", re.IGNORECASE)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing. A person may follow a link of any page."""
_OWN_SITES = frozenset({"same-origin", "none"})


def local_fault(headers: Headers, *, client: str | None) -> str:
    """Return why a request without a secret is refused. Empty: a program of this machine has sent it.

    `client`: address of the sender; None: it uses a Unix socket, which only programs of this machine can reach, and no
    browser, so Host is not checked.
    """
    if client is not None:
        if not is_loopback(client):
            return f"the request comes from {client}, and only requests from a loopback address need no secret"
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_loopback(_name(hosts[0])):
            shown = " and ".join(hosts)[:200] or "no host"
            return f"the request is addressed to {shown}, and only requests to localhost need no secret"
    if passed_on := _forwarding_header(headers):
        return f"a proxy has passed the request on ({passed_on}), and only requests of this machine need no secret"
    origins = headers.getlist("origin")
    if origins and not _is_own(headers):
        return f"the request comes from a page of {origins[0][:200]}, and pages of other sites need a secret"
    return ""


def foreign_page_fault(method: str, headers: Headers) -> str:
    """Return why a change that a page of another site sends is refused, also with a secret. Empty: it is no such one.

    A browser that knows a password sends it with a form of any page, also with one of another port of this machine.
    Programs send neither Sec-Fetch-Site nor Origin. Where a browser sends Sec-Fetch-Site, Origin does not count: behind
    a proxy, it may differ from Host.
    """
    if method in SAFE_METHODS:
        return ""
    sites = headers.getlist("sec-fetch-site")
    is_own = _OWN_SITES.issuperset(sites) if sites else not headers.getlist("origin") or _is_own(headers)
    return "" if is_own else "the request comes from a page of another site; send it from here, or from a program"


def own_origin(headers: Headers) -> str:
    """Return the server's address as the browser knows it that sent a form of one of its pages: `https://host:port`,
    also behind a proxy. Empty: it is not known. It is never made of Host alone, which any client may write."""
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    if len(origins) != 1 or not _ORIGIN.fullmatch(origins[0]):
        return ""
    return origins[0] if sites == ["same-origin"] or (not sites and _is_own(headers)) else ""


def authorization(headers: Headers) -> tuple[str, str]:
    """Return the scheme of the header Authorization, in lower case, and what follows it. Empty: there is none, or more
    than one."""
    values = headers.getlist("authorization")
    scheme, _, given = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return scheme.lower(), given.strip()


def is_secret(given: bytes, expected: str) -> bool:
    """Return whether a client knows the secret. The time of the answer does not depend on where the two differ. An
    empty secret is known by no client."""
    return bool(expected) and hmac.compare_digest(given, expected.encode())


def _forwarding_header(headers: Headers) -> str:
    """Return a header by which a proxy says that it passes on the request of another machine. Empty: there is none.

    A proxy of this machine may write its own address into Host, so nothing else tells its clients from programs here.
    """
    for name in ("x-forwarded-for", "x-real-ip"):
        for value in headers.getlist(name):
            if not all(is_loopback(address.strip()) for address in value.split(",")):
                return f"{name}: {value[:200]}"
    return next((f"{name}: {headers[name][:200]}" for name in ("forwarded", "via") if name in headers), "")


def _name(host: str) -> str:
    """Return the name or address in a Host header. Empty: the header is not valid."""
    found = _HOST.fullmatch(host)
    return (found["ipv6"] or found["name"]) if found else ""


def _is_own(headers: Headers) -> bool:
    """Return whether the page that sent the request has this server's address."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    found = _ORIGIN.fullmatch(origins[0]) if len(origins) == len(hosts) == 1 else None
    return found is not None and found[1].lower() == hosts[0].lower()

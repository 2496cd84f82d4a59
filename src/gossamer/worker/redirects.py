"""What a redirect means for the next request. Pure."""

from collections.abc import Sequence

from gossamer.policy.urls import host

REDIRECTS = frozenset((301, 302, 303, 307, 308))
MAX_HOPS = 10
"""As many as are followed for one request."""

Headers = Sequence[tuple[str, str]]


def location(headers: Headers) -> str | None:
    """The value of the Location header; None where there is none."""
    return next((value for name, value in headers if name.lower() == "location"), None)


def method_after(status: int, method: str) -> str:
    """The method of the next request (Fetch standard, HTTP-redirect fetch). Where it changes, the body goes."""
    if status == 303 and method not in ("GET", "HEAD"):
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method


def cookies_after(url: str, headers: Headers, to: str, cookies: dict[str, str]) -> dict[str, str]:
    """The cookies to send on to `to`: those that travelled so far and those the redirect at `url` set.

    They live for one chain of redirects. A cookie without Domain stays with its host (RFC 6265, 5.3), so on another
    host only those go on that were set for a domain of both.
    """
    here, there = host(url), host(to)
    kept = dict(cookies) if here == there else {}
    for name, value in headers:
        if name.lower() != "set-cookie":
            continue
        pair, *attributes = value.split(";")
        key, equals, content = pair.strip().partition("=")
        if not equals or not key:
            continue
        said = {word.strip().partition("=")[0].lower(): word.strip().partition("=")[2] for word in attributes}
        if said.get("max-age", "1").strip() in ("0", "-1") or not _reaches(said.get("domain", ""), here, there):
            kept.pop(key, None)
        elif "secure" not in said or to.startswith("https:"):
            kept[key] = content
    return kept


def _reaches(domain: str, here: str, there: str) -> bool:
    domain = domain.strip().removeprefix(".").lower()
    if not domain:
        return here == there
    return all(name == domain or name.endswith(f".{domain}") for name in (here, there))

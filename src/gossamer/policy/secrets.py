"""Decides which domains get a crawl's secret headers, and hides the values of these headers. Does no input or output.

Terms are the options that one submission of requests carries, its headers among them. More headers may become secret at
any time. Nothing here may send a header to more domains: that would hand a user's password to a stranger.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gossamer.model.crawl import Terms
from gossamer.model.messages.secret_fields import REDACTED, SECRET_HEADERS
from gossamer.net.names import domain_name
from gossamer.policy.urls import host, registered_domain


class SecretHeaders:
    """The secret headers of one submission: their names, and the domains that get them."""

    def __init__(self, terms: Terms) -> None:
        self.names = SECRET_HEADERS.union(terms.secret_headers) if terms.secret_headers else SECRET_HEADERS
        """Names of the secret headers in lower case, those that are always secret included."""
        self._domains = frozenset(terms.secrets_for)

    def may_go_to(self, url: str) -> bool:
        """Return whether a request for this canonical URL may carry the crawl's secret headers.

        True when the terms list the URL's host, its registered domain, or a domain between the two. A domain above the
        registered one (`co.uk`) must never count, because it belongs to many owners.
        """
        if not self._domains:
            return False
        name = host(url).removesuffix(".")
        registered = registered_domain(name)
        while name not in self._domains:
            if name == registered or "." not in name:
                return False
            name = name.partition(".")[2]
        return True


def other_site(site: str, urls: Sequence[str]) -> str:
    """Return a sentence on a login that none of these canonical URLs, with which a crawl begins, would get. Empty: one
    would. `site`: registered domain to which the login belongs."""
    if not urls or any(registered_domain(host(url)) == site for url in urls):
        return ""
    return f"it logs in to {site}, and {urls[0]} is at {registered_domain(host(urls[0]))}"


def has_secrets(terms: Terms) -> bool:
    """Return whether a submission has a cookie or a secret header."""
    if terms.cookie:
        return True
    names = SecretHeaders(terms).names
    return any(name.lower() in names for name in terms.headers or ())


def with_secrets_for(terms: Terms, seed_domains: Iterable[str], headers_for: Iterable[str]) -> Terms:
    """Return the terms with the domains that get their secret headers: `seed_domains` and `headers_for`.

    `seed_domains`: registered domains of the first URLs. Terms without a secret are returned as they are, so that
    submissions for many domains have equal terms, which are stored once. Raises BadInput for an entry of `headers_for`
    that is no domain.
    """
    named = set(map(domain_name, headers_for))
    if not has_secrets(terms):
        return terms
    return msgspec.structs.replace(terms, secrets_for=tuple(sorted(named.union(seed_domains))))


def redacted_head(head: bytes, names: frozenset[str]) -> bytes:
    """Return the head of an HTTP request with the values of these headers (lower case) replaced."""
    return b"\r\n".join(_redacted_lines(head, names)) if names else head


def _redacted_lines(head: bytes, names: frozenset[str]) -> Iterator[bytes]:
    for line in head.split(b"\r\n"):
        name, colon, _ = line.partition(b":")
        is_secret = colon and name.decode("latin-1").lower() in names
        yield b"%s: %s" % (name, REDACTED.encode()) if is_secret else line

"""Outcome that a correct crawler of a fake web must have. Tests compare it with records and the access log.

This is the yardstick: a change here changes what counts as correct, so it needs a rule of HTTP, of robots.txt (RFC
9309) or a promise of docs/howto/fakeweb.md as its reason. Never change it because a crawler differs. It must follow
`gossamer.fakeweb.site` (a new `Fate` needs a row in STATUS) and never ask the server.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from gossamer.fakeweb.site import HEALING, Fate, Site, SitePage
from gossamer.fakeweb.spec import Robots


class Ends(StrEnum):
    """Kinds of ends of a request."""

    PAGE = "page"
    """A page was fetched, with status 200."""
    FAILED = "failed"
    """The request failed for good."""
    DROPPED = "dropped"
    """The URL, or one that it redirects to, must not be fetched."""
    WAITS = "waits"
    """The request does not end while a test runs: the host's robots.txt answers 500 and must be asked again first."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome that one URL, linked or a seed, must have."""

    ends: Ends
    reason: str = ""
    """FAILED: a `Fate`. DROPPED: `robots` or `offsite` (a redirect left the scope). Otherwise empty."""
    status: int | None = None
    """The last HTTP status seen; None where none is (refuse, dropped, waits)."""
    depth: int
    """Fewest links from a seed; redirects do not count."""
    redirects: tuple[str, ...] = ()
    """Addresses that are requested after the first, in order. The last one serves the page, if there is one."""
    asked: bool = True
    """True if the URL itself may be requested; a redirect from it may still end elsewhere."""
    heals: bool = False
    """The first request fails, the second succeeds (`errors_once`)."""


# The last status that a crawler sees where a request fails for good; None: no status line is sent.
STATUS = {
    Fate.REFUSE: None,
    Fate.RESET: 200,
    Fate.STALL: 200,
    Fate.NOT_FOUND: 404,
    Fate.RATE_LIMITED: 429,
    Fate.SERVER_ERROR: 500,
    Fate.UNAVAILABLE: 503,
}


def graph(site: Site, *, seeds: Iterable[int] | None = None) -> set[str]:
    """Return every URL to which links lead from the first pages of the hosts `seeds` (None: all), if there were no
    failures, robots.txt or scope. It has the seeds, but not the hops of redirects."""
    found = {SitePage(host, 0) for host in (range(site.spec.hosts) if seeds is None else seeds)}
    level = list(found)
    while level:
        fresh: list[SitePage] = []
        for page in level:
            for link in site.outlinks(page):
                if link not in found:
                    found.add(link)
                    fresh.append(link)
        level = fresh
    return {site.url(*page) for page in found}


def expected(
    site: Site,
    *,
    seeds: Iterable[int] | None = None,
    scope: Collection[int] | None = None,
    depth: int | None = None,
    obey_robots: bool = True,
    given_up: Collection[str] = (),
) -> dict[str, Expected]:
    """Return the outcome that a correct crawler must have, for every URL that it takes up.

    `seeds`: numbers of the hosts whose first page it starts from (None: all). `scope`: numbers of the hosts it may
    visit (None: all). `depth`: number of links that it follows from a seed at most (None: any number). Links that lead
    out of the scope are not in the result. `given_up`: URLs of pages that the crawler rightly has as failed, because
    its own processes were killed. A page that fails for good hides what only it links to, as it does for a
    crawler.
    """
    allowed = None if scope is None else frozenset(scope)
    level = [SitePage(host, 0) for host in (range(site.spec.hosts) if seeds is None else seeds)]
    seen = set(level)
    results: dict[str, Expected] = {}
    distance = 0
    while level:
        fresh: list[SitePage] = []
        for page in level:
            result = _result(site, page, distance, allowed, obey_robots)
            url = site.url(*page)
            if result.ends is Ends.PAGE and url in given_up:
                result = msgspec.structs.replace(result, ends=Ends.FAILED, reason="given_up")
            results[url] = result
            if result.ends is not Ends.PAGE or (depth is not None and distance >= depth):
                continue
            for link in site.outlinks(page):
                if link not in seen and (allowed is None or link.host in allowed):
                    seen.add(link)
                    fresh.append(link)
        level = fresh
        distance += 1
    return results


def fetched(results: dict[str, Expected]) -> set[str]:
    """Return every address of a page that a correct crawler requests at least once: the URLs and the hops of their
    redirects. (robots.txt and sitemaps are not pages.)"""
    urls: set[str] = set()
    for url, result in results.items():
        if result.asked:
            urls.add(url)
            urls.update(result.redirects)
    return urls


def _result(site: Site, page: SitePage, depth: int, scope: frozenset[int] | None, obey_robots: bool) -> Expected:
    """Return the outcome for one page. Each hop of its redirects must be allowed, too."""
    verdict = _verdict(site, page.host, site.path(page.number), scope, obey_robots)
    if verdict is not None:
        return Expected(ends=verdict[0], reason=verdict[1], depth=depth, asked=False)
    fate = site.fate(page)
    asked: list[str] = []
    for host, path in site.hops(page):
        verdict = _verdict(site, host, path, scope, obey_robots)
        if verdict is not None:
            return Expected(ends=verdict[0], reason=verdict[1], depth=depth, redirects=tuple(asked))
        asked.append(site.base(host) + path)
    if fate in STATUS and not site.heals(fate):
        return Expected(ends=Ends.FAILED, reason=fate, status=STATUS[fate], depth=depth)
    return Expected(ends=Ends.PAGE, status=200, depth=depth, redirects=tuple(asked), heals=fate in HEALING)


def _verdict(
    site: Site, host: int, path: str, scope: frozenset[int] | None, obey_robots: bool
) -> tuple[Ends, str] | None:
    """Return why a correct crawler does not request this address; None: it does."""
    if scope is not None and host not in scope:
        return Ends.DROPPED, "offsite"
    if not obey_robots:
        return None
    if site.robots(host) is Robots.BROKEN and not site.spec.errors_once:
        return Ends.WAITS, ""
    return None if site.allowed(host, path) else (Ends.DROPPED, "robots")

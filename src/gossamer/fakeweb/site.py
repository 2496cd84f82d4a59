"""The shape of a fake web: its hosts, pages and links, and the fate of each request.

All but `Web`, which adds the address of a server, is computed from the spec and its seed alone. Fixed: every number and
formula here. Equal options must give the same web in every release, and what a crawl must find there
(`gossamer_fakeweb.expected`) is computed from this module. New kinds of fates may be added at the end of `spec.RATES`;
webs without them then stay as they are.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from gossamer.fakeweb.spec import RATES, Robots, WebSpec

MASK = (1 << 64) - 1
"""The 64 bits of all random numbers here."""
_FATE, _LINKS, _TARGET, _LOOK = 1, 2, 3, 4
"""Purposes of `draw`, so that numbers for one purpose do not depend on those for another. Below 8; fixed."""
NAVIGATION = 5
"""Number of the first pages of a host to which all its pages link, as a real site's menu does, if `out_degree` has
room. `answers.py` shows them as a menu. Fixed."""
_MAX_DIGITS = 11
"""Longest number in a path or host name that is read. No web has so many hosts or pages."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2 ** 64 divided by the golden ratio: multiplying by it spreads bits. Fixed."""
LCG_FACTOR, LCG_STEP = 6364136223846793005, 1442695040888963407
"""A linear congruential generator of 64 bits (D. Knuth's MMIX): far cheaper than a hash for each of many links.
Fixed."""


class Fate(StrEnum):
    """Outcome of a request for a page. All but PAGE are named after the `WebSpec` field that sets their rate."""

    PAGE = "page"
    REFUSE = "refuse"
    RESET = "reset"
    STALL = "stall"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAVAILABLE = "unavailable"
    REDIRECT_SAME = "redirect_same"
    REDIRECT_CROSS = "redirect_cross"


HEALING = frozenset(
    {Fate.REFUSE, Fate.RESET, Fate.STALL, Fate.RATE_LIMITED, Fate.SERVER_ERROR, Fate.UNAVAILABLE},
)
"""Fates that `errors_once` heals. A 404 stays: a correct crawler does not request it again."""


class SitePage(NamedTuple):
    """One page: the host's number and the page's number on it. Page 0 is the host's `/`."""

    host: int
    number: int


class Place(NamedTuple):
    """Meaning of a path: a page, reached after `hop` redirects (0: at its own address)."""

    page: SitePage
    hop: int


class Site:
    """The web of one `WebSpec`. `scheme` and `port` are those of its URLs."""

    def __init__(self, spec: WebSpec, *, scheme: str = "http", port: int = 80) -> None:
        self.spec = spec
        self.scheme = scheme
        self.port = port
        self._suffix = "" if port == {"http": 80, "https": 443}[scheme] else f":{port}"
        # Upper bound of the drawn number for each fate: the rates, added up in the order of RATES.
        thresholds: list[tuple[float, Fate]] = []
        share = 0.0
        for name in RATES:
            share += getattr(spec, name)
            thresholds.append((share, Fate(name)))
        self._thresholds = thresholds if share else []
        self.menu_links = min(NAVIGATION, max(0, spec.out_degree - 2), spec.pages)
        """Number of links in the menu of each page. Two of `out_degree` are left for the children."""

    # --- names --------------------------------------------------------------------------------------------------------

    def host(self, number: int) -> str:
        """Return the name of a host: `site7.test`; with several hosts of each domain `h1.site3.test`."""
        domain, sub = divmod(number, self.spec.subdomains)
        return f"site{domain}.test" if self.spec.subdomains == 1 else f"h{sub}.site{domain}.test"

    def hosts(self) -> Iterator[str]:
        """Return all host names, in the order of their numbers."""
        return map(self.host, range(self.spec.hosts))

    def host_number(self, name: str) -> int | None:
        """Return the number of a (lower-case) host name; None: this web has no such host."""
        sub, _, rest = name.rpartition("site")
        digits = rest.removesuffix(".test")
        sub_digits = sub[1:-1] or "0"  # `sub` is `h1.` in `h1.site3.test`, and empty in `site7.test`
        if not (digits.isdecimal() and sub_digits.isdecimal() and max(len(digits), len(sub_digits)) <= _MAX_DIGITS):
            return None
        number = int(digits) * self.spec.subdomains + int(sub_digits)
        # Spelling it again is the check: `site07.test`, `h9.site0.test` and the like are names of no host.
        return number if number < self.spec.hosts and self.host(number) == name else None

    def base(self, host: int | str) -> str:
        """Return `http://site0.test:8080`, without a slash at the end, for a host's number or any host name."""
        name = self.host(host) if isinstance(host, int) else host
        return f"{self.scheme}://{name}{self._suffix}"

    def path(self, number: int) -> str:
        """Return the path of a page at its own address."""
        return f"/p/{number}" if number else "/"

    def url(self, host: int, number: int = 0) -> str:
        """Return the URL of a page at its own address; by default that of the host's first page."""
        return self.base(host) + self.path(number)

    def seeds(self) -> list[str]:
        """Return the first page of every host, from which all pages can be reached."""
        return [self.url(host) for host in range(self.spec.hosts)]

    # --- fates --------------------------------------------------------------------------------------------------------

    def fate(self, page: SitePage) -> Fate:
        """Return the outcome of the first request for this page."""
        if not self._thresholds or not page.number:
            return Fate.PAGE
        drawn = draw(self.spec.seed, _FATE, page) / 2**64
        for threshold, fate in self._thresholds:
            if drawn < threshold:
                return fate
        return Fate.PAGE

    def heals(self, fate: Fate) -> bool:
        """Return whether a second request for a page of this fate gets the page."""
        return self.spec.errors_once and fate in HEALING

    def robots(self, host: int) -> Robots:
        """Return the kind of the host's robots.txt."""
        return self.spec.robots[host % len(self.spec.robots)]

    def allowed(self, host: int, path: str) -> bool:
        """Return whether the host's robots.txt, where it can be read, allows this path."""
        return self.robots(host) is not Robots.DISALLOW or not path.startswith(self.spec.robots_disallow)

    # --- redirects ----------------------------------------------------------------------------------------------------

    def hops(self, page: SitePage) -> list[tuple[int, str]]:
        """Return the addresses to which a page redirects, one after the other: (host number, path). Empty: it does not.

        The last hop serves the page. Hops have addresses of their own that no link leads to, so a crawl that follows
        every redirect once fetches every address once.
        """
        fate = self.fate(page)
        chain = range(1, self.spec.redirect_chain + 1)
        if fate is Fate.REDIRECT_SAME:
            return [(page.host, f"/r/{page.number}/{hop}") for hop in chain]
        if fate is Fate.REDIRECT_CROSS:
            away = self._other_host(page.host, draw(self.spec.seed, _TARGET, page))
            return [(away, f"/x/{page.host}/{page.number}/{hop}") for hop in chain]
        return []

    def place(self, host: int, path: str) -> Place | None:
        """Return the meaning of this path (with its query) on this host; None: 404. Pages have no query."""
        if path == "/":
            return Place(SitePage(host, 0), 0)
        kind, *numbers = path[1:].split("/")
        if not all(number.isdecimal() and number.isascii() and len(number) <= _MAX_DIGITS for number in numbers):
            return None
        match kind, [int(number) for number in numbers]:
            case "p", [number]:
                place, spelled = Place(SitePage(host, number), 0), self.path(number)
            case "r", [number, hop]:
                place, spelled = Place(SitePage(host, number), hop), f"/r/{number}/{hop}"
            case "x", [origin, number, hop]:
                place, spelled = Place(SitePage(origin, number), hop), f"/x/{origin}/{number}/{hop}"
            case _:
                return None
        if spelled != path or place.page.number >= self.spec.pages or place.page.host >= self.spec.hosts:
            return None
        if place.hop and (host, path) not in self.hops(place.page):
            return None
        return place

    # --- links --------------------------------------------------------------------------------------------------------

    def outlinks(self, page: SitePage) -> list[SitePage]:
        """Return the `out_degree` pages that this one links to, in the order of its HTML; a page may be there twice.

        First the navigation, then the page's children in a tree over the host's pages, by which every page can be
        reached (page 3 has the children 7 and 8; with an `out_degree` of 1 only 4), then random ones, of which a share
        leads to other hosts.
        """
        spec, host, number = self.spec, page.host, page.number
        pages, degree = spec.pages, spec.out_degree
        links = [SitePage(host, target) for target in range(self.menu_links)]
        fanout = min(2, degree)
        links += [
            SitePage(host, child) for child in range(fanout * number + 1, fanout * number + fanout + 1) if child < pages
        ]
        free = degree - len(links)
        # Share of the random links, so that it is `cross_host_share` of all links.
        crossing = min(1.0, spec.cross_host_share * degree / free) if free and spec.cross_host_share else 0.0
        cross_below = int(crossing * 2**32)
        state = draw(spec.seed, _LINKS, page)
        for _ in range(free):
            state = (state * LCG_FACTOR + LCG_STEP) & MASK
            high = state >> 32
            target = high * pages >> 32
            if cross_below and (state * _GOLDEN & MASK) >> 32 < cross_below:
                links.append(SitePage(self._other_host(host, scramble(state)), target))
            else:
                links.append(SitePage(host, target))
        return links

    def look(self, page: SitePage) -> int:
        """Return 64 random bits for the spelling of the page's links and the choice of its text."""
        return draw(self.spec.seed, _LOOK, page)

    def _other_host(self, host: int, bits: int) -> int:
        """Return a host other than this one, chosen by random bits. The web must have two hosts: WebSpec refuses links
        and redirects to other hosts without a second one."""
        other = bits % (self.spec.hosts - 1)
        return other + (other >= host)


def draw(seed: int, purpose: int, page: SitePage) -> int:
    """Return 64 uniform bits that depend on all arguments."""
    return scramble(scramble(scramble(seed * 8 + purpose) + page.host) + page.number)


def scramble(value: int) -> int:
    """Return 64 bits for a number; neighbouring numbers give unrelated ones. The finaliser of SplitMix64 (Steele, Lea,
    Flood 2014), whose constants these are."""
    value = (value + _GOLDEN) & MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


ADDRESS = "127.0.0.1"
"""Address that a fake web listens on. Must stay a loopback address: hostile pages, which attack crawlers, are for this
machine only."""


class Web:
    """URLs and addresses of one running fake web."""

    def __init__(self, spec: WebSpec, *, scheme: str, port: int) -> None:
        self.spec = spec
        self.scheme = scheme
        self.port = port
        self.site = Site(spec, scheme=scheme, port=port)

    def url(self, host: int | str = 0, page: int | str = 0) -> str:
        """Return the URL of a generated page (number of the host and of the page), or of any path (text) on any host
        (name)."""
        return self.site.base(host) + (page if isinstance(page, str) else self.site.path(page))

    def seeds(self) -> list[str]:
        """Return the first page of every host."""
        return self.site.seeds()

    def resolve_overrides(self) -> list[str]:
        """Return `host:address` for each generated host, as `gossamer crawl --resolve` takes it. The URLs have the
        port."""
        named = [f"{host}:{ADDRESS}" for host in self.site.hosts()]
        # The hostile hosts link to hosts whose names cannot be listed.
        return [*named, f"*.test:{ADDRESS}"] if self.spec.hostile else named

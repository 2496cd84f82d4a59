"""The rules of one robots.txt, asked URL by URL. Groups are chosen here; which rule decides, `matching` knows."""

from dataclasses import dataclass
from itertools import chain

import ada_url

from gossamer.fetch.robots.lines import parse
from gossamer.fetch.robots.matching import Matcher
from gossamer.fetch.robots.patterns import normal_targets
from gossamer.policy.robots import product_token


@dataclass(frozen=True, slots=True)
class RobotsVerdict:
    """May this URL be fetched, and why."""

    allowed: bool
    rule: str
    """The line that decided (`Disallow: /private`), or in words why none had to; empty where it was not asked for."""
    crawl_delay: float | None
    """Seconds between fetches that the site asks of this user agent, up to the cap; None when it does not say."""


NO_RULE = "no rule applies"
ALWAYS = "/robots.txt is always allowed"

_MATCHERS = 16
_MATCHED_RULES = 50_000
"""As many agents' rules are kept ready, and so many rules of them together."""


class Robots:
    """A parsed robots.txt. Immutable to its users; never raises for what a file says."""

    def __init__(self, body: bytes = b"", *, truncated: bool = False) -> None:
        """Parse the body of an answer; empty means that everything is allowed. `truncated`: the body was cut."""
        parsed = parse(body, truncated=truncated)
        self._groups = parsed.groups
        self._matchers: dict[str, Matcher] = {}
        self._matched = 0
        self.sitemaps: tuple[str, ...] = tuple(filter(None, map(_sitemap, parsed.sitemaps)))
        """The sitemaps it names, whatever the user agent: canonical http and https URLs in the order of the file."""

    def allowed(self, url: str, user_agent: str) -> bool:
        """Whether this user agent may fetch the URL: the quick form of `verdict`."""
        return self.verdict(url, user_agent, explain=False).allowed

    def verdict(self, url: str, user_agent: str, *, explain: bool = True) -> RobotsVerdict:
        """Whether this user agent may fetch the URL, by which rule, and how slowly.

        `url` is a canonical URL or its path with query. `user_agent` is the whole header; the groups for its product
        token count, all of them together, else those for `*` (RFC 9309, section 2.2.1). Of the rules that match, the
        longest pattern decides, Allow where two are as long (section 2.2.2). /robots.txt itself is always allowed.
        `explain=False` leaves `rule` empty.
        """
        matcher = self._matcher(user_agent)
        target = _target(url)
        if target == "/robots.txt":
            return RobotsVerdict(True, ALWAYS if explain else "", matcher.crawl_delay)
        rule = matcher.deciding(normal_targets(target))
        said = (NO_RULE if rule is None else str(rule)) if explain else ""
        return RobotsVerdict(rule is None or rule.allow, said, matcher.crawl_delay)

    def _matcher(self, user_agent: str) -> Matcher:
        matcher = self._matchers.get(user_agent)
        if matcher is None:
            groups = self._groups.get(product_token(user_agent)) or self._groups.get("*") or []
            matcher = Matcher(
                chain.from_iterable(group.rules for group in groups),
                max((group.crawl_delay for group in groups if group.crawl_delay is not None), default=None),
            )
            # User agents are few; a crawl that changes them must not fill the memory.
            if len(self._matchers) >= _MATCHERS or self._matched + len(matcher) > _MATCHED_RULES:
                self._matchers.clear()
                self._matched = 0
            self._matchers[user_agent] = matcher
            self._matched += len(matcher)
        return matcher


def _target(url: str) -> str:
    """The path and query of a canonical URL, or of what is only that; without fragment."""
    start = 0
    if not url.startswith("/"):
        scheme_end = url.find("://")
        start = url.find("/", scheme_end + 3)
        if scheme_end == -1 or start == -1:
            return "/"
    return url[start:].partition("#")[0]


def _sitemap(text: str) -> str:
    """The canonical URL, or nothing where it is none: the sitemap protocol demands whole URLs."""
    try:
        url = ada_url.URL(text)
    except ValueError:
        return ""
    url.hash = ""
    return str(url.href) if url.protocol in ("http:", "https:") else ""

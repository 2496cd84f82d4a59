"""The rules of one robots.txt, asked URL by URL. Groups are chosen here; patterns are matched by protego."""

from dataclasses import dataclass

import ada_url
from protego import Protego

from gossamer.fetch.robots.lines import Group, Rule, parse
from gossamer.policy.robots import product_token


@dataclass(frozen=True, slots=True)
class RobotsVerdict:
    """May this URL be fetched, and why."""

    allowed: bool
    rule: str
    """The line that decided (`Disallow: /private`), or in words why none had to; empty where it was not asked for."""
    crawl_delay: float | None
    """Seconds between fetches that the site asks of this user agent, up to the cap; None when it does not say."""


@dataclass(frozen=True, slots=True)
class _Matcher:
    group: Group
    protego: Protego


_NO_GROUP = Group()
NO_RULE = "no rule applies"


class Robots:
    """A parsed robots.txt. Immutable to its users; never raises for what a file says."""

    def __init__(self, body: bytes = b"", *, truncated: bool = False) -> None:
        """Parse the body of an answer; empty means that everything is allowed. `truncated`: the body was cut."""
        parsed = parse(body, truncated=truncated)
        self._groups = parsed.groups
        self._matchers: dict[str, _Matcher] = {}
        self.sitemaps: tuple[str, ...] = tuple(filter(None, map(_sitemap, parsed.sitemaps)))
        """The sitemaps it names, whatever the user agent: canonical http and https URLs in the order of the file."""

    def allowed(self, url: str, user_agent: str) -> bool:
        """Whether this user agent may fetch the URL: the quick form of `verdict`."""
        return self._allowed(self._matcher(user_agent), _target(url))

    def verdict(self, url: str, user_agent: str, *, explain: bool = True) -> RobotsVerdict:
        """Whether this user agent may fetch the URL, by which rule, and how slowly.

        `url` is a canonical URL or its path with query. `user_agent` is the whole header; the groups for its product
        token count, all of them together, else those for `*` (RFC 9309, section 2.2.1). Of the rules that match, the
        longest pattern decides, Allow where two are as long (section 2.2.2). /robots.txt itself is always allowed.
        `explain=False` leaves `rule` empty, which spares a search through the rules.
        """
        target = _target(url)
        matcher = self._matcher(user_agent)
        allowed = self._allowed(matcher, target)
        rule = _deciding(matcher.group, target, allowed) if explain else ""
        return RobotsVerdict(allowed, rule, matcher.group.crawl_delay)

    @staticmethod
    def _allowed(matcher: _Matcher, target: str) -> bool:
        return not matcher.group.rules or bool(matcher.protego.can_fetch(target, "*"))

    def _matcher(self, user_agent: str) -> _Matcher:
        matcher = self._matchers.get(user_agent)
        if matcher is None:
            group = self._groups.get(product_token(user_agent)) or self._groups.get("*") or _NO_GROUP
            matcher = _Matcher(group, _protego(*group.rules))
            if len(self._matchers) >= 16:  # user agents are few; a crawl that changes them must not fill the memory
                self._matchers.clear()
            self._matchers[user_agent] = matcher
        return matcher


def _protego(*rules: Rule) -> Protego:
    return Protego.parse("\n".join(["User-agent: *", *map(str, rules)]))


def _target(url: str) -> str:
    """The URL with a stand-in for its origin, so that a path that begins with `//` is not taken for a host."""
    start = 0
    if not url.startswith("/"):
        scheme_end = url.find("://")
        start = url.find("/", scheme_end + 3)
        if scheme_end == -1 or start == -1:
            return "http://origin/"
    return f"http://origin{url[start:]}"


def _deciding(group: Group, target: str, allowed: bool) -> str:
    """The text of the rule by which protego decided: it does not tell, so each is tried alone, the longest first."""
    if target.partition("#")[0] == "http://origin/robots.txt":
        return "/robots.txt is always allowed"
    # The deciding rule is of the kind that the decision is; only where none of an allowed URL's match is it silence.
    rivals = (rule for rule in group.rules if rule.allow == allowed)
    for rule in sorted(rivals, key=lambda rule: len(rule.pattern), reverse=True):
        # Against "Disallow: /", which is shorter or as short, an Allow that matches wins.
        alone = _protego(rule, Rule(allow=False, pattern="/")) if rule.allow else _protego(rule)
        if alone.can_fetch(target, "*") == allowed:
            return str(rule)
    return NO_RULE


def _sitemap(text: str) -> str:
    """The canonical URL, or nothing where it is none: the sitemap protocol demands whole URLs."""
    try:
        url = ada_url.URL(text)
    except ValueError:
        return ""
    url.hash = ""
    return str(url.href) if url.protocol in ("http:", "https:") else ""

"""Parses a robots.txt and matches URLs against its rules (RFC 9309).

docs/adr/0010-own-robots-rules-and-encoding-labels.md compares this with the libraries that exist.

Fixed by the RFC: which group and which rule decide. Fixed, too: the time for a URL stays proportional to the rules and
their length, because any server may send a hostile file and the worker's event loop matches it.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from urllib.parse import quote

import msgspec

from gossamer.errors import BadUrl
from gossamer.policy import robots as robots_policy
from gossamer.policy.robots import product_token
from gossamer.policy.urls import canonical, join

# Names of fields inside this module.
_USER_AGENT = "user-agent"
_ALLOW = "allow"
_DISALLOW = "disallow"
_CRAWL_DELAY = "crawl-delay"
_SITEMAP = "sitemap"

_FIELDS: dict[bytes, str] = {
    b"user-agent": _USER_AGENT,
    b"useragent": _USER_AGENT,
    b"user agent": _USER_AGENT,
    b"allow": _ALLOW,
    b"disallow": _DISALLOW,
    b"dissallow": _DISALLOW,
    b"dissalow": _DISALLOW,
    b"disalow": _DISALLOW,
    b"crawl-delay": _CRAWL_DELAY,
    b"crawldelay": _CRAWL_DELAY,
    b"crawl delay": _CRAWL_DELAY,
    b"sitemap": _SITEMAP,
    b"site-map": _SITEMAP,
}
"""Known fields, with common misspellings. Lines of any other field are skipped. More spellings may be added, in lower
case; none may be removed, or URLs that a site forbids would be fetched."""

_UNQUOTED_IN_PATTERN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""Characters that stay as they are in a path pattern: all of printable ASCII but letters and digits, which `quote`
always leaves. Everything else is percent-encoded. Must not change: `normal_pattern` expects such patterns."""


class Rule(msgspec.Struct, frozen=True):
    """An Allow or Disallow line of a robots.txt."""

    allow: bool
    pattern: str
    """Path pattern as the file spells it, except that bytes beyond printable ASCII are percent-encoded. Never empty."""

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"


class RuleGroup(msgspec.Struct):
    """Rules below consecutive User-agent lines, in the order of the file.

    All agents named there share one group: a file of 20,000 agents before 10,000 rules must not become 200 million
    rules.
    """

    rules: list[Rule] = []
    crawl_delay: float | None = None
    """Seconds; the longest of several lines."""


class ParsedRobots(msgspec.Struct):
    """Groups and sitemaps of a robots.txt."""

    groups: dict[str, list[RuleGroup]] = {}
    """Groups that name each agent, in the order of the file. Keys are product tokens in lower case, and `*`."""
    sitemaps: list[str] = []
    """Values of the Sitemap lines as written, in order, without repeats."""


def parse(body: bytes, *, truncated: bool = False) -> ParsedRobots:
    """Parse a robots.txt. Never raises: invalid lines are skipped.

    Only the first `policy.robots.MAX_BYTES` count, without the line that this limit cuts: `Disallow: /private` might
    become `Disallow: /`, which closes the site. `truncated`: the body is only the beginning of the file, so its last
    line may be cut, too.
    """
    if len(body) > robots_policy.MAX_BYTES:
        body, truncated = body[: robots_policy.MAX_BYTES], True
    if truncated:
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    parsed = ParsedRobots()
    sitemaps: dict[str, None] = {}
    # This first group gets the rules before the first user agent. They apply to none.
    current = RuleGroup()
    # True: the last line was a rule, so a User-agent line begins another group.
    in_rules = True
    for line in body.removeprefix(codecs.BOM_UTF8).replace(b"\r", b"\n").split(b"\n"):
        name, value = _read(line)
        if name == _USER_AGENT:
            if in_rules:
                current, in_rules = RuleGroup(), False
            token = _token(value)
            if token:
                groups = parsed.groups.setdefault(token, [])
                if not groups or groups[-1] is not current:
                    groups.append(current)
        elif name == _SITEMAP:
            sitemap = value.decode("utf-8", "replace")
            if sitemap:
                sitemaps[sitemap] = None
        elif name:
            in_rules = True
            _apply(name, value, current)
    parsed.sitemaps = list(sitemaps)
    return parsed


def _read(line: bytes) -> tuple[str, bytes]:
    """Return the field and value of a line; an empty field: the line has no meaning."""
    line = line.partition(b"#")[0].strip()
    if not line:
        return "", b""
    name, colon, value = line.partition(b":")
    known = _FIELDS.get(name.strip().lower()) if colon else None
    if known is not None:
        return known, value.strip()
    # `Disallow /private` without the colon, which other crawlers accept, too.
    name, _, value = line.replace(b"\t", b" ").partition(b" ")
    return _FIELDS.get(name.lower(), ""), value.strip()


def _token(value: bytes) -> str:
    """Return the agent that a User-agent line names, in lower case; empty: none that can be matched."""
    text = value.decode("utf-8", "replace")
    # `* (all of you)` means all agents, `*bot` the agent of that name.
    return "*" if text.split(maxsplit=1)[:1] == ["*"] else robots_policy.leading_word(text.lstrip("*"))


def _apply(name: str, value: bytes, group: RuleGroup) -> None:
    """Add an Allow, Disallow or Crawl-delay line to its group."""
    if name == _CRAWL_DELAY:
        seconds = robots_policy.crawl_delay(value.decode("utf-8", "replace"))
        if seconds is not None:
            group.crawl_delay = max(seconds, group.crawl_delay or 0.0)
    elif value:  # an empty Disallow forbids nothing
        group.rules.append(Rule(allow=name == _ALLOW, pattern=quote(value, safe=_UNQUOTED_IN_PATTERN)))


class Matcher:
    """Rules of one user agent, prepared for many look-ups.

    Rules without wildcards are looked up by length, however many there are; rules with wildcards are tried one by one,
    longest first. There is no backtracking: the time is proportional to the number of rules with wildcards, whatever
    they are.
    """

    def __init__(self, rules: Iterable[Rule], crawl_delay: float | None) -> None:
        """`crawl_delay`: seconds or None; only stored here."""
        self.crawl_delay = crawl_delay
        without_wildcards: dict[str, Rule] = {}
        with_wildcards: dict[str, Rule] = {}
        for rule in rules:
            pattern = normal_pattern(rule.pattern)
            has_wildcard = "*" in pattern or pattern.endswith("$")
            patterns = with_wildcards if has_wildcard else without_wildcards
            if rule.allow or pattern not in patterns:  # Allow wins over Disallow with the same pattern
                patterns[pattern] = rule
        self._without_wildcards = without_wildcards
        self._lengths = sorted({len(pattern) for pattern in without_wildcards}, reverse=True)
        self._with_wildcards = [
            (_weight(pattern, rule), _Wildcard(pattern), rule) for pattern, rule in with_wildcards.items()
        ]
        self._with_wildcards.sort(key=lambda entry: entry[0], reverse=True)

    def __len__(self) -> int:
        """Number of rules."""
        return len(self._without_wildcards) + len(self._with_wildcards)

    def match(self, targets: Sequence[str]) -> Rule | None:
        """Return the rule that decides on a URL; None: no rule matches.

        `targets`: the spellings of its path and query that `normal_targets` returns.
        """
        best, best_weight = None, (0, False)  # see `_weight`
        for target in targets:
            pattern = self._longest_prefix(target)
            if pattern is not None and len(pattern) > best_weight[0]:
                best = self._without_wildcards[pattern]
                best_weight = _weight(pattern, best)
        for weight, wildcard, rule in self._with_wildcards:
            if weight <= best_weight:
                break
            if any(map(wildcard.matches, targets)):
                return rule
        return best

    def _longest_prefix(self, target: str) -> str | None:
        """Return the longest pattern without wildcards with which the target begins; None: there is none."""
        for length in self._lengths:
            if length <= len(target) and target[:length] in self._without_wildcards:
                return target[:length]
        return None


class _Wildcard:
    """Pattern with `*` in it or `$` at its end."""

    __slots__ = ("_anchored", "_first", "_last", "_middle")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        self._first, *rest = pattern.removesuffix("$").split("*")
        self._last = rest[-1] if rest else None
        self._middle = tuple(filter(None, rest[:-1]))

    def matches(self, target: str) -> bool:
        """Return whether the parts of the pattern are found in the target in order, each behind the one before."""
        if not target.startswith(self._first):
            return False
        at = len(self._first)
        if self._last is None:
            return at == len(target)
        for part in self._middle:
            found = target.find(part, at)
            if found == -1:
                return False
            at = found + len(part)
        if self._anchored:
            return len(target) - len(self._last) >= at and target.endswith(self._last)
        return target.find(self._last, at) != -1


def _weight(pattern: str, rule: Rule) -> tuple[int, bool]:
    """Return a key by which rules are compared: the longest pattern wins, Allow wins among equally long ones."""
    return len(pattern), rule.allow


# The next four constants define the normal spelling, in which patterns and URLs are compared: change them together.
_ALREADY_NORMAL = re.compile(r"/[A-Za-z0-9._~/=&?-]*")
"""Paths and patterns that are in their normal spelling already; only a shortcut."""
_UNUSUAL = re.compile(r"%[0-9A-Fa-f]{2}|[^!-~]|[%*$]")
"""Escapes, and characters that must be escaped."""
_NEVER_DECODED = frozenset("/?%#*$")
"""Characters whose escapes are not decoded, because an escape means something else: the characters separate parts of a
path, begin an escape, a comment or a fragment, or are special in a pattern. A literal `*` or `$` of a URL is always
escaped."""
_SLASH_OR_QUESTION = re.compile("%2F|%3F|[/?]")
"""Characters of a query that count as equal to their escapes."""


def normal_pattern(pattern: str) -> str:
    """Return the normal spelling of a rule's pattern, in which `*` matches anything and a final `$` the end."""
    if _ALREADY_NORMAL.fullmatch(pattern):
        return pattern
    anchor = "$" if pattern.endswith("$") else ""
    return "*".join(map(_normalize, pattern.removesuffix("$").split("*"))) + anchor


def normal_targets(target: str) -> tuple[str, ...]:
    """Return the normal spellings of a URL's path and query; a rule matches if its pattern matches one of them.

    In a query, `/` and `?` mean the same as their escapes (the table in RFC 9309, section 2.2.2); in a path they do
    not. A pattern such as `/*b=c%2Fd` may apply to a path or to a query, so it is left as it is, and the query gets
    both spellings.
    """
    if not _ALREADY_NORMAL.fullmatch(target):
        target = _normalize(target.encode("utf-8", "surrogatepass").decode("latin-1"))
    path, separator, query = target.partition("?")
    if not separator or not _SLASH_OR_QUESTION.search(query):
        return (target,)
    decoded = path + separator + query.replace("%2F", "/").replace("%3F", "?")
    encoded = path + separator + query.replace("/", "%2F").replace("?", "%3F")
    return tuple({target: None, decoded: None, encoded: None})  # each once, in this order


def _normalize(octets: str) -> str:
    """Normalize octets, each given as one Latin-1 character."""
    return _UNUSUAL.sub(lambda found: _normalize_octet(found[0]), octets)


@cache
def _normalize_octet(octet: str) -> str:
    """Return the normal spelling of an escape or an unusual character. The cache stays below 700 entries: 484
    escapes (each hexadecimal letter in two cases) and the single bytes."""
    value = int(octet[1:], 16) if len(octet) == 3 else ord(octet)
    character = chr(value)
    return character if "!" <= character <= "~" and character not in _NEVER_DECODED else f"%{value:02X}"


class RobotsVerdict(msgspec.Struct, frozen=True):
    """Decision whether a URL may be fetched, and the reason."""

    allowed: bool
    rule: str
    """Line that decided (`Disallow: /private`), NO_RULE or ALWAYS. Empty: the caller did not ask for it."""
    crawl_delay: float | None
    """Seconds between fetches that the site asks of this user agent, at most `CRAWL_DELAY_CAP_SECONDS` of
    policy/robots.py. None: the site asks for no delay."""
    unreachable: bool = False
    """True: there are no rules, because the file could not be fetched for too long."""


# Values of `RobotsVerdict.rule` where no line decided.
NO_RULE = "no rule applies"
ALWAYS = "/robots.txt is always allowed"

_MAX_MATCHERS = 16
"""User agents whose matchers are cached for one robots.txt. More need memory, fewer are built more often."""
_MAX_MATCHER_RULES = 50_000
"""Rules of all cached matchers of one robots.txt together. A matcher with more rules is cached alone."""


class RobotsRules:
    """Rules of one robots.txt. Immutable for its users; never raises for the content of a file."""

    def __init__(self, body: bytes = b"", *, truncated: bool = False, url: str = "") -> None:
        """Parse the body of a response; an empty one allows everything. `truncated`: the body was cut. `url`: the
        canonical URL of the file, to which relative sitemaps are resolved; empty: they are invalid."""
        parsed = parse(body, truncated=truncated)
        self._groups = parsed.groups
        self._matchers: dict[str, Matcher] = {}
        self._cached_rules = 0
        sitemaps = [_sitemap(text, url) for text in parsed.sitemaps]
        self.sitemaps: tuple[str, ...] = tuple(dict.fromkeys(filter(None, sitemaps)))
        """Sitemaps that the file names, whatever the user agent: canonical http and https URLs in the order of the
        file."""
        self.invalid_sitemaps = sitemaps.count("")
        """Number of Sitemap lines that are no such URL."""

    def allowed(self, url: str, user_agent: str) -> bool:
        """Return whether this user agent may fetch the URL."""
        return self.verdict(url, user_agent, explain=False).allowed

    def verdict(self, url: str, user_agent: str, *, explain: bool = True) -> RobotsVerdict:
        """Return whether this user agent may fetch the URL, by which rule, and how slowly.

        `url` is a canonical URL or its path with query. `user_agent` is the whole header. All groups of its product
        token count together, else those of `*` (RFC 9309, section 2.2.1). The longest matching pattern decides, Allow
        among equally long ones (section 2.2.2). /robots.txt itself is always allowed. `explain` False leaves `rule`
        empty.
        """
        matcher = self._matcher(user_agent)
        target = _target(url)
        if target == "/robots.txt":
            return RobotsVerdict(allowed=True, rule=ALWAYS if explain else "", crawl_delay=matcher.crawl_delay)
        rule = matcher.match(normal_targets(target))
        reason = (NO_RULE if rule is None else str(rule)) if explain else ""
        return RobotsVerdict(rule is None or rule.allow, reason, matcher.crawl_delay)

    def _matcher(self, user_agent: str) -> Matcher:
        """Return the matcher for a user agent: from the cache, or made of the groups that apply to it."""
        matcher = self._matchers.get(user_agent)
        if matcher is None:
            groups = self._groups.get(product_token(user_agent)) or self._groups.get("*") or []
            matcher = Matcher(
                chain.from_iterable(group.rules for group in groups),
                max((group.crawl_delay for group in groups if group.crawl_delay is not None), default=None),
            )
            # User agents are few, but a crawl that changes them must not fill the memory.
            if len(self._matchers) >= _MAX_MATCHERS or self._cached_rules + len(matcher) > _MAX_MATCHER_RULES:
                self._matchers.clear()
                self._cached_rules = 0
            self._matchers[user_agent] = matcher
            self._cached_rules += len(matcher)
        return matcher


def _target(url: str) -> str:
    """Return the path and query of a URL, without the fragment. `url`: a canonical URL, or only its path and query."""
    start = 0
    if not url.startswith("/"):
        scheme_end = url.find("://")
        start = url.find("/", scheme_end + 3)
        if scheme_end == -1 or start == -1:
            return "/"
    return url[start:].partition("#")[0]


def _sitemap(text: str, base: str) -> str:
    """Return the canonical URL; empty if there is none. The protocol asks for absolute URLs, but some sites write
    relative ones."""
    try:
        return join(base, text) if base else canonical(text)
    except BadUrl:
        return ""

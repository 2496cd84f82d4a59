"""The rules of one robots.txt, asked URL by URL. Groups are chosen here; which rule decides, `matching` knows."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from urllib.parse import quote

import ada_url

from gossamer.policy import robots as policy
from gossamer.policy.robots import product_token

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
"""The fields that are understood, with the misspellings that are common. Lines of any other field are passed over."""

# What may stand in a path pattern as it is; everything else is percent-encoded, so that a pattern is plain ASCII.
_LINES_PLAIN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    """The path pattern in ASCII, what is not ASCII percent-encoded; never empty."""

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"


@dataclass(slots=True)
class RuleGroup:
    """The rules under one run of User-agent lines, in the order of the file. All agents named there share it: a file
    of 20,000 agents before 10,000 rules must not become 200 million."""

    rules: list[Rule] = field(default_factory=list)
    crawl_delay: float | None = None
    """Seconds; of several lines the longest."""


@dataclass(slots=True)
class ParsedRobots:
    """A whole file."""

    groups: dict[str, list[RuleGroup]] = field(default_factory=dict)
    """By product token in lower case, and `*`; in the order of the file, each once in a row."""
    sitemaps: list[str] = field(default_factory=list)
    """As written, in order, without repeats."""


def parse(body: bytes, *, truncated: bool = False) -> ParsedRobots:
    """Read a robots.txt. Never raises: what cannot be understood is passed over.

    At most the first 500 KiB count, without the line that the limit cuts through (half of `Disallow: /private` would
    close the site). `truncated`: the body had been cut before, and its last line is only part of one.
    """
    if len(body) > policy.MAX_BYTES:
        body, truncated = body[: policy.MAX_BYTES], True
    if truncated:
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    parsed = ParsedRobots()
    # Of rules before any user agent: a group that nobody finds.
    current = RuleGroup()
    # Rules end a group's user agents; the next User-agent line begins another group.
    in_rules = True
    for line in body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n").split(b"\n"):
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
            if sitemap and sitemap not in parsed.sitemaps[-100:]:
                parsed.sitemaps.append(sitemap)
        elif name:
            in_rules = True
            _apply(name, value, current)
    return parsed


def _read(line: bytes) -> tuple[str, bytes]:
    """Field and value of a line; an empty field for a line that means nothing."""
    line = line.partition(b"#")[0].strip()
    if not line:
        return "", b""
    name, colon, value = line.partition(b":")
    known = _FIELDS.get(name.strip().lower()) if colon else None
    if known is not None:
        return known, value.strip()
    # `Disallow /private`: without the colon, which other crawlers accept too.
    name, _, value = line.replace(b"\t", b" ").partition(b" ")
    return _FIELDS.get(name.lower(), ""), value.strip()


def _token(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    # `* (all of you)` means everybody, `*bot` the one of that name.
    return "*" if text.split(maxsplit=1)[:1] == ["*"] else policy.leading_word(text.lstrip("*"))


def _apply(name: str, value: bytes, group: RuleGroup) -> None:
    if name == _CRAWL_DELAY:
        seconds = policy.crawl_delay(value.decode("utf-8", "replace"))
        if seconds is not None:
            group.crawl_delay = max(seconds, group.crawl_delay or 0.0)
    elif value:  # an empty Disallow forbids nothing
        group.rules.append(Rule(allow=name == _ALLOW, pattern=quote(value, safe=_LINES_PLAIN)))


class Matcher:
    """The rules for one agent, made ready to be asked often.

    Rules without wildcards are looked up by their length, however many they are; those with a wildcard are gone
    through, the longest first. Nothing backtracks: the time is in proportion to the rules with wildcards, whatever
    they say.
    """

    def __init__(self, rules: Iterable[Rule], crawl_delay: float | None) -> None:
        """`crawl_delay`: seconds, or None; only kept here."""
        self.crawl_delay = crawl_delay
        plain: dict[str, Rule] = {}
        special: dict[str, Rule] = {}
        for rule in rules:
            pattern = normal_pattern(rule.pattern)
            patterns = special if "*" in pattern or pattern.endswith("$") else plain
            if rule.allow or pattern not in patterns:  # of Allow and Disallow with one pattern, Allow decides
                patterns[pattern] = rule
        self._plain = plain
        self._lengths = sorted({len(pattern) for pattern in plain}, reverse=True)
        self._special = [(_weight(pattern, rule), _Wildcard(pattern), rule) for pattern, rule in special.items()]
        self._special.sort(key=lambda entry: entry[0], reverse=True)

    def __len__(self) -> int:
        """How many rules are kept."""
        return len(self._plain) + len(self._special)

    def match(self, targets: Sequence[str]) -> Rule | None:
        """The rule that decides on a path that has these normal spellings; None where none matches."""
        best, best_weight = None, (0, False)
        for target in targets:
            pattern = self._longest_prefix(target)
            if pattern is not None and len(pattern) > best_weight[0]:
                best = self._plain[pattern]
                best_weight = _weight(pattern, best)
        for weight, wildcard, rule in self._special:
            if weight <= best_weight:
                break
            if any(map(wildcard.matches, targets)):
                return rule
        return best

    def _longest_prefix(self, target: str) -> str | None:
        for length in self._lengths:
            if length <= len(target) and target[:length] in self._plain:
                return target[:length]
        return None


class _Wildcard:
    """A pattern with `*` in it or `$` at its end."""

    __slots__ = ("_anchored", "_first", "_last", "_middle")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        self._first, *rest = pattern.removesuffix("$").split("*")
        self._last = rest[-1] if rest else None
        self._middle = tuple(filter(None, rest[:-1]))

    def matches(self, target: str) -> bool:
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
    return len(pattern), rule.allow


_PLAIN = re.compile(r"/[A-Za-z0-9._~/=&?-]*")
_UNUSUAL = re.compile(r"%[0-9A-Fa-f]{2}|[^!-~]|[%*$]")
# Not the same encoded and as they are: what parts a path, begins an escape, a comment or a fragment, or is special in a
# pattern. The last two stand encoded wherever they mean themselves.
_KEPT = frozenset("/?%#*$")

_SLASH_OR_MARK = re.compile("%2F|%3F|[/?]")


def normal_pattern(pattern: str) -> str:
    """Of an Allow or Disallow line's value, in ASCII: `*` stands for anything, a `$` at the end for the end."""
    if _PLAIN.fullmatch(pattern):
        return pattern
    anchor = "$" if pattern.endswith("$") else ""
    return "*".join(map(_normalize, pattern.removesuffix("$").split("*"))) + anchor


def normal_targets(target: str) -> tuple[str, ...]:
    """Of a URL's path and query: the spelling, or spellings, of which a pattern has to match one.

    A slash or question mark in a query is the same encoded or not (the table in section 2.2.2), in a path it is not.
    Since nobody can tell which of both the end of `/*b=c%2Fd` is meant for, it is the query that gets both spellings.
    """
    if not _PLAIN.fullmatch(target):
        target = _normalize(target.encode("utf-8", "surrogatepass").decode("latin-1"))
    path, mark, query = target.partition("?")
    if not mark or not _SLASH_OR_MARK.search(query):
        return (target,)
    plain = path + mark + query.replace("%2F", "/").replace("%3F", "?")
    encoded = path + mark + query.replace("/", "%2F").replace("?", "%3F")
    return tuple({target: None, plain: None, encoded: None})


def _normalize(octets: str) -> str:
    """A character stands for an octet (latin-1)."""
    return _UNUSUAL.sub(lambda found: _normalize_octet(found[0]), octets)


@cache
def _normalize_octet(octet: str) -> str:
    """Of an escape or a character that is unusual; there are fewer than 700."""
    value = int(octet[1:], 16) if len(octet) == 3 else ord(octet)
    character = chr(value)
    return character if "!" <= character <= "~" and character not in _KEPT else f"%{value:02X}"


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


class RobotsRules:
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
        rule = matcher.match(normal_targets(target))
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

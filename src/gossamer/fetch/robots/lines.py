"""From the bytes of a robots.txt to its groups, by the grammar of RFC 9309 (section 2.2) with the usual leniency."""

from dataclasses import dataclass, field
from urllib.parse import quote

from gossamer.policy import robots as policy

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
_PLAIN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    """The path pattern in ASCII, what is not ASCII percent-encoded; never empty."""

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"


@dataclass(slots=True)
class Group:
    """The rules under one run of User-agent lines, in the order of the file. All agents named there share it: a file
    of 20,000 agents before 10,000 rules must not become 200 million."""

    rules: list[Rule] = field(default_factory=list)
    crawl_delay: float | None = None
    """Seconds; of several lines the longest."""


@dataclass(slots=True)
class Parsed:
    """A whole file."""

    groups: dict[str, list[Group]] = field(default_factory=dict)
    """By product token in lower case, and `*`; in the order of the file, each once in a row."""
    sitemaps: list[str] = field(default_factory=list)
    """As written, in order, without repeats."""


def parse(body: bytes, *, truncated: bool = False) -> Parsed:
    """Read a robots.txt. Never raises: what cannot be understood is passed over.

    At most the first 500 KiB count, without the line that the limit cuts through (half of `Disallow: /private` would
    close the site). `truncated`: the body had been cut before, and its last line is only part of one.
    """
    if len(body) > policy.MAX_BYTES:
        body, truncated = body[: policy.MAX_BYTES], True
    if truncated:
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    parsed = Parsed()
    # Of rules before any user agent: a group that nobody finds.
    current = Group()
    # Rules end a group's user agents; the next User-agent line begins another group.
    in_rules = True
    for line in body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n").split(b"\n"):
        name, value = _read(line)
        if name == _USER_AGENT:
            if in_rules:
                current, in_rules = Group(), False
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


def _apply(name: str, value: bytes, group: Group) -> None:
    if name == _CRAWL_DELAY:
        seconds = policy.crawl_delay(value.decode("utf-8", "replace"))
        if seconds is not None:
            group.crawl_delay = max(seconds, group.crawl_delay or 0.0)
    elif value:  # an empty Disallow forbids nothing
        group.rules.append(Rule(allow=name == _ALLOW, pattern=quote(value, safe=_PLAIN)))

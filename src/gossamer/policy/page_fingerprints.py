"""Fingerprints of pages by which those are found that are the same for a reader under many paths."""

import re
from urllib.parse import quote, urlsplit

from gossamer.policy.emptiness import shown_source, text_of

_TARGET = re.compile(rb"""(?:href|src|action)\s*=\s*["']?([^"'\s<>]+)""")
_CANONICAL = re.compile(rb"""<link[^<>]*rel\s*=\s*["']?canonical""")
_PASSING = re.compile(
    rb"\b(?=[0-9a-f.]*[0-9a-f]{5})[0-9a-f]{1,4}(?:\.[0-9a-f]+){3,}\b"  # an address of a computer has shorter parts
    rb"|\b(?=[\w-]*\d)[\w-]{12,}\b|\b\d\d?:\d\d(?::\d\d)?\b"
)
"""Numbers of incidents and times of day, which differ from page to page."""
_REFERENCE = re.compile(rb"&#(\d{2,3});")
_LAST_OF_ASCII = 126


def names_canonical(source: bytes) -> bool:
    """Return whether a page in lower case names the address that it is a copy of."""
    return bool(_CANONICAL.search(source))


def fingerprint(source: bytes, url: str) -> int:
    """Return a number for the text of a page in lower case and for what it links to and embeds, without its own
    address and what passes. It is never 0, and differs from process to process."""
    parts = urlsplit(url.lower())
    own = parts.path + (f"?{parts.query}" if parts.query else "")
    names = tuple(
        name.encode() for one in (own, url.lower()) for name in (one, quote(one, safe=""), quote(one).lower())
    )
    shown = shown_source(source)
    targets = [target for target in _TARGET.findall(shown) if own == "/" or not target.endswith(names)]
    text = _REFERENCE.sub(
        lambda found: found[0] if (code := int(found[1])) > _LAST_OF_ASCII else bytes([code]), text_of(shown)
    )
    if len(own) > 2:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, b"")
    return hash((_PASSING.sub(b"", text), *targets)) or 1

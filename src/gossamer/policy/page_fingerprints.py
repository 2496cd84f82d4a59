"""Fingerprints of pages by which those are found that are the same for a reader under many paths."""

import re
from hashlib import blake2b
from urllib.parse import quote, urlsplit

from gossamer.policy.emptiness import shown_source, text_of

_TARGET = re.compile(rb"""(?:href|src|action)\s*=\s*["']?([^"'\s<>]+)""")
_CANONICAL = re.compile(rb"""<link[^<>]*rel\s*=\s*["']?canonical""")
_PASSING = re.compile(
    # The address of a computer has shorter parts.
    rb"(?<![\w.])(?=[0-9a-f.]*[0-9a-f]{5})[0-9a-f]{1,4}(?:\.[0-9a-f]+){3,}\b"
    rb"|(?<![\w-])(?=[\w-]*\d)[\w-]{12,}|\b\d\d?:\d\d(?::\d\d)?\b"
)
"""Numbers of incidents and times of day, which differ from page to page. Each search begins where a word begins, or a
page could make it take a time that grows with the square of its size."""
_REFERENCE = re.compile(rb"&#(\d{2,3});")
_LAST_OF_ASCII = 126


def names_canonical(source: bytes) -> bool:
    """Return whether a page in lower case names the address that it is a copy of."""
    return bool(_CANONICAL.search(source))


def fingerprint(source: bytes, url: str, *, whole: bool = False) -> int:
    """Return a number for the text of a page in lower case and for what it links to and embeds, without its own
    address and what passes. `whole`: also for what a reader does not see, such as scripts.

    It is never 0. Payloads of requests have it: another function forgets what is known of them."""
    parts = urlsplit(url.lower())
    own = parts.path + (f"?{parts.query}" if parts.query else "")
    names = tuple(
        name.encode() for one in (own, url.lower()) for name in (one, quote(one, safe=""), quote(one).lower())
    )
    shown = source if whole else shown_source(source)
    targets = [target for target in _TARGET.findall(shown) if own == "/" or not target.endswith(names)]
    text = _REFERENCE.sub(
        lambda found: found[0] if (code := int(found[1])) > _LAST_OF_ASCII else bytes([code]), text_of(shown)
    )
    if len(own) > 2:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, b"")
    parts_of_page = b"\0".join((_PASSING.sub(b"", text), *targets))
    return int.from_bytes(blake2b(parts_of_page, digest_size=8).digest()) or 1

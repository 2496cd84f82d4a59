"""Compares the links that the compiled extension and the Python reference find on a page.

A parser's tree may have an `a` twice that the page has once: the standard makes it open formatting elements again. So
numbers of elements may differ, but not the URLs, their order, or anything else.
"""

from typing import Any

from gossamer.extract import links, memory
from gossamer.extract.links import LinkExtractor, Links
from gossamer.policy.scope import compile_scope

PAGE = "http://site.test/dir/page.html?x=1"
_SEED = 7


class BothExtractors:
    """The same extractor twice."""

    def __init__(self, **options: Any) -> None:
        """`options`: as those of LinkExtractor. Raises RuntimeError if the extension is not installed."""
        if memory.native is None:
            raise RuntimeError("gossamer_native is not installed: run `make setup` where cargo is")
        scope = compile_scope(allowed_domains=["site.test", "other.test"], deny_extensions=["pdf"])
        self._compiled = LinkExtractor(scope, seed=_SEED, **options)
        self._reference = LinkExtractor(scope, seed=_SEED, memory=memory.HrefMemory(), **options)

    def difference(self, html: bytes, page: str = PAGE) -> str:
        """Return what differs for this page. Empty: nothing."""
        compiled, reference = self._compiled.extract(html, page), self._reference.extract(html, page)
        for name in ("urls", "fingerprints", "domains", "hrefs", "base", "nofollow", "noindex"):
            ours, theirs = getattr(compiled, name), getattr(reference, name)
            if ours != theirs:
                return f"{name}: {_shortest(ours)} instead of {_shortest(theirs)}"
        if _drops(compiled) != _drops(reference):
            return f"dropped: {compiled.dropped} instead of {reference.dropped}"
        return ""

    def remember(self, html: bytes, page: str) -> None:
        """Extract, and remember the new links as those of a frontier that has added all but the first."""
        for extractor in (self._compiled, self._reference):
            extractor.remember(extractor.extract(html, page), except_positions=(0,))


def _drops(found: Links) -> dict[str, int]:
    return {reason: count for reason, count in found.dropped.items() if reason != "nofollow"}


def _shortest(value: Any) -> str:
    return f"{value!r:.300}"


def shrink(both: BothExtractors, html: bytes) -> bytes:
    """Return a shortest page that is still read differently."""
    size = max(1, len(html) // 2)
    while size >= 1:
        at = 0
        while at < len(html):
            shorter = html[:at] + html[at + size :]
            if shorter and both.difference(shorter):
                html = shorter
            else:
                at += size
        size //= 2
    return html


REASONS = {
    b"<svg": "a drawing that is not closed where it began",
    b"<math": "a formula that is not closed where it began",
    b"<frameset": "a frameset in a page that has a body, too",
    b"<template": "a template around elements that are not closed",
    b"<table": "a link in a table outside of its cells, which a parser moves before the table: the order differs",
}
"""Why a page may be read differently, by what its shortest form has. See docs/adr."""


def reason(shortest: bytes) -> str:
    """Return the known reason of a difference. Empty: there is none, so it is a defect."""
    text = shortest.lower()
    return next((why for mark, why in REASONS.items() if mark in text), "")


assert links.native is memory.native

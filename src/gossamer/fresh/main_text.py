"""Main text of a page, as far as a change of it counts, without scripts, menus, headers, footers, times and forms; and
the set of its links.

Fixed: the results, because indexes store their hashes: after another release every page would count as changed once.
"""

import difflib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gossamer.errors import BadUrl
from gossamer.extract.document import HtmlDocument, node_text
from gossamer.extract.link_elements import link_elements
from gossamer.extract.links import base_of
from gossamer.extract.selectors import compile_css
from gossamer.fresh.page import PageVersion, short_hash
from gossamer.model.crawl import RevisitRule
from gossamer.policy.sketches import sketch_of
from gossamer.policy.urls import BaseUrl, fingerprint

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

_LEFT_OUT = "script,style,noscript,template,nav,header,footer,aside,form,time,svg,iframe"
"""Elements whose content changes without the page: menus, dates, tokens, advertisements."""
_MAIN = ("main", "article", "[role=main]", "body")
"""Selectors of the element with the main text; the first that a page has counts."""
_FEED_TYPES = frozenset(("application/rss+xml", "application/atom+xml"))
_FEEDS_OF_PAGE = 20
"""Feeds of one page that are looked at."""
_BLANKS = re.compile(r"\s+")


def body_hash(body: bytes) -> int:
    """Return the hash of the bytes of a page, a signed number of 64 bits; never 0."""
    return fingerprint(body, seed=0) or 1


class ContentFacts(NamedTuple):
    """Facts of a page's content that the index compares."""

    text: int
    """Hash of the main text. Where there is none, it is that of the bytes."""
    sketch: bytes = b""
    """Sketch of the main text (policy/sketches.py). Empty: there is none."""
    link_set: int = 0
    """Hash of the set of its links; 0: it is no HTML, or too costly to parse."""
    feeds: tuple[str, ...] = ()
    """Canonical URLs of the feeds that it names, RSS and Atom."""


def content_of(
    body: bytes, encoding: str, url: str, *, rule: RevisitRule, is_html: bool, key_of: Callable[[str], int]
) -> ContentFacts:
    """Return the facts of a page. `url`: canonical, of the page. `key_of`: returns the key of a URL in the index."""
    tree = _tree(body, encoding) if is_html else None
    if tree is None:
        return ContentFacts(short_hash(body_hash(body)))
    base = BaseUrl(base_of(tree, url) or url)
    # First, because elements are taken out of the tree then.
    links, feeds = _link_set(tree, base, key_of), _feeds(tree, base)
    text = _main_text(tree, keep=rule.keep, drop=rule.drop)
    text_hash = short_hash(body_hash(text.encode("utf-8", "replace") or body))
    return ContentFacts(text_hash, sketch_of(text), links, feeds)


def _tree(body: bytes, encoding: str) -> "LexborHTMLParser | None":
    """Return the parsed page. None: it is too costly to parse."""
    document = HtmlDocument(body, encoding or None)
    return None if document.is_costly else document.tree


def _feeds(tree: "LexborHTMLParser", base: BaseUrl) -> tuple[str, ...]:
    """Return the feeds that a page names (https://www.rssboard.org/rss-autodiscovery), each once."""
    found: dict[str, None] = {}
    for link in tree.tags("link"):
        attributes = link.attributes
        kind = (attributes.get("type") or "").partition(";")[0].strip().lower()
        href = attributes.get("href")
        if href and kind in _FEED_TYPES and "alternate" in (attributes.get("rel") or "").lower().split():
            with suppress(BadUrl):
                found[base.join(href)] = None
        if len(found) >= _FEEDS_OF_PAGE:
            break
    return tuple(found)


def _link_set(tree: "LexborHTMLParser", base: BaseUrl, key_of: Callable[[str], int]) -> int:
    """Return the hash of the set of links of a page to http and https URLs, whatever their order; never 0."""
    urls: set[str] = set()
    for _, _, href in link_elements(tree):
        with suppress(BadUrl):
            urls.add(base.join(href))
    return short_hash(sum(map(key_of, urls)))


def main_text(body: bytes, encoding: str, *, keep: str = "", drop: str = "") -> str:
    """Return the main text of an HTML page, its words separated by single blanks. Empty: there is none. `keep`, `drop`:
    CSS selectors; see RevisitRule."""
    tree = _tree(body, encoding)
    return "" if tree is None else _main_text(tree, keep=keep, drop=drop)


def _main_text(tree: "LexborHTMLParser", *, keep: str, drop: str) -> str:
    """Return the main text, and take elements out of the tree."""
    if drop:
        for node in tree.css(compile_css(drop).css):
            node.decompose()
    if keep:
        return _BLANKS.sub(" ", " ".join(map(node_text, tree.css(compile_css(keep).css)))).strip()
    for selector in _MAIN:
        found = tree.css(selector)
        if len(found) == 1:  # of several articles, none is the main one
            for node in found[0].css(_LEFT_OUT):
                node.decompose()
            return _BLANKS.sub(" ", node_text(found[0])).strip()
    return ""


_SENTENCE_END = re.compile(r"(?<=[.!?:;]) ")


def text_difference(url: str, old: PageVersion, new: PageVersion) -> list[str]:
    """Return a unified diff of the main texts of two versions of a page, a line for each sentence."""
    before, after = (_SENTENCE_END.split(main_text(one.content, one.encoding)) for one in (old, new))
    return list(difflib.unified_diff(before, after, f"{url} {old.hash}", f"{url} {new.hash}", lineterm="", n=1))

"""Main text of a page, as far as a change of it counts: without scripts, menus, headers, footers, times and forms.

Fixed: the result, because indexes store its hash: after another release every page would count as changed once.
"""

import difflib
import re

from gossamer.extract.document import HtmlDocument, node_text
from gossamer.extract.selectors import compile_css
from gossamer.fresh.page import PageVersion
from gossamer.policy.urls import fingerprint

_LEFT_OUT = "script,style,noscript,template,nav,header,footer,aside,form,time,svg,iframe"
"""Elements whose content changes without the page: menus, dates, tokens, advertisements."""
_MAIN = ("main", "article", "[role=main]", "body")
"""Selectors of the element with the main text; the first that a page has counts."""
_BLANKS = re.compile(r"\s+")


def body_hash(body: bytes) -> int:
    """Return the hash of the bytes of a page, a signed number of 64 bits; never 0."""
    return fingerprint(body, seed=0) or 1


def text_hash(body: bytes, encoding: str, *, is_html: bool, keep: str = "", drop: str = "") -> int:
    """Return the hash of the main text of a page, as `body_hash`. Where there is none, it is that of the bytes.
    `keep`, `drop`: CSS selectors; see RevisitRule."""
    text = main_text(body, encoding, keep=keep, drop=drop) if is_html else ""
    return body_hash(text.encode("utf-8", "replace") or body)


def main_text(body: bytes, encoding: str, *, keep: str = "", drop: str = "") -> str:
    """Return the main text of an HTML page, its words separated by single blanks. Empty: there is none."""
    document = HtmlDocument(body, encoding or None)
    if document.is_costly or (tree := document.tree) is None:
        return ""
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

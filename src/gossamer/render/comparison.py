"""Comparison of a page as the server has sent it with the document that a browser has made of it."""

from collections import Counter
from urllib.parse import urljoin

from gossamer.extract.document import HtmlDocument, node_text
from gossamer.policy.urls import host, registered_domain

_LONGEST_BYTES = 512 * 1024
"""Part of each that is compared."""
_LEFT_OUT = "script,style,noscript,template,nav,header,footer,aside,time,svg"
"""Elements whose text is not the page's: menus, dates, advertisements."""
_SHARE = 0.1
"""Part of the words of a page that must be new for its text to have changed: of one that was sent without any, a single
word. Smaller, and counters, greetings and advertisements would count."""


def has_gained(url: str, sent: bytes, built: bytes, *, site: str) -> bool:
    """Return whether the document has links or main text that the page as it was sent has not. `site`: registered
    domain whose links count, because buttons of other sites are no links of the page."""
    before, after = _content(url, sent, site), _content(url, built, site)
    if before is None or after is None:
        return True  # it cannot be compared
    words, links = before
    new_words, new_links = after[0] - words, after[1] - links
    return bool(new_links) or new_words.total() >= max(1.0, _SHARE * words.total())


def _content(url: str, body: bytes, site: str) -> tuple[Counter[str], set[str]] | None:
    """Return the words and the links of a page. None: it is not parsed."""
    document = HtmlDocument(body[:_LONGEST_BYTES], None)
    if document.is_costly or (tree := document.tree) is None:
        return None
    links = set()
    for node in tree.css("a[href]"):
        try:
            target = urljoin(url, (node.attributes.get("href") or "").strip()).partition("#")[0]
            if target.startswith(("http://", "https://")) and registered_domain(host(target)) == site:
                links.add(target)
        except ValueError:
            continue  # no URL
    root = tree.body
    if root is None:
        return Counter(), links
    for node in root.css(_LEFT_OUT):
        node.decompose()
    return Counter(node_text(root).split()), links

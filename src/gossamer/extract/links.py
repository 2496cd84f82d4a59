"""Link extraction: from the bytes of a page to the new URLs in scope with their fingerprints, and counts of the rest.

Users need only `LinkExtractor` and `Links`, so that a compiled extension can replace the rest of this module.

Fixed: the names of reasons in `Links.dropped`, which are in the statistics; that each element with a link counts
exactly once in `Links.found`; that a page never makes `extract` raise; and that an href is remembered as known only
after the frontier (the store of requests) has added its URL, or that page is never fetched.
"""

import re
from collections.abc import Collection, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.compiled import native
from gossamer.errors import BadUrl
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import is_utf8
from gossamer.extract.link_elements import ForeignContent, link_elements, link_text
from gossamer.extract.memory import NOTHING_REMEMBERED, RememberedHrefs, new_href_memory
from gossamer.policy.scope import LinkScope
from gossamer.policy.urls import BaseUrl, fingerprint, host, join, registered_domain, with_sorted_query

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

    from gossamer.extract.link_elements import LinkElement

_REFRESH = re.compile(
    r"""
    [\t\n\f\r ]*+ (?:[0-9]++ [0-9.]*+ | \.[0-9.]*+)
    (?:[\t\n\f\r ]*+[;,][\t\n\f\r ]*+ | [\t\n\f\r ]++)
    (?:[Uu][Rr][Ll][\t\n\f\r ]*+=[\t\n\f\r ]*+)?+
    (?P<target>.++)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Content of a meta refresh (HTML standard, "shared declarative refresh steps"), with possessive quantifiers: a hostile
page must not make it backtrack."""


def refresh_target(content: str) -> str | None:
    """Return the href in the `content` of a meta refresh. None: there is none, so the page only reloads itself."""
    match = _REFRESH.match(content)
    if match is None:
        return None
    target = match["target"]
    if target[0] in "\"'":
        target = target[1:].partition(target[0])[0]
    return target.strip("\t\n\f\r ") or None


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

_AFTER_SCHEME = len("https://")
"""Position from which the first `/` of a canonical URL begins its path."""


def with_encoded_query(href: str, charset: str) -> str:
    """Percent-encode the non-ASCII characters of an href's query in the document's charset (a Python codec).

    A character that the charset lacks becomes `%26%23<number>%3B`. Returns the same object if nothing changes. Only for
    http and https targets: the queries of other schemes are always UTF-8. Never raises.
    """
    query_start = href.find("?")
    if query_start < 0 or href.isascii() or charset.startswith("utf"):
        return href
    query = _NOT_ASCII.sub(lambda match: _encoded(match[0], charset), href[query_start:])
    return href[:query_start] + query if query != href[query_start:] else href


def _encoded(character: str, charset: str) -> str:
    """Return one character of a query as the URL standard encodes it in this charset."""
    try:
        data = character.encode(charset)
    except (ValueError, LookupError):
        return f"%26%23{ord(character)}%3B"
    return "".join(f"%{byte:02X}" if byte > 0x7E or byte < 0x21 else chr(byte) for byte in data)


MAX_URL_BYTES = 16 * 1024 * 1024
"""Bound on all new URLs of one page together, and on its anchor texts: many short hrefs on a page with a very long URL
would take gigabytes. A page near the bound takes this much memory, and links beyond it are dropped."""

MAX_TEXT_LENGTH = 500
"""Longest anchor text in characters; a longer one is cut. Records of pages grow or shrink with it."""
_RAW_TEXT_LENGTH = 4 * MAX_TEXT_LENGTH
"""Characters of an anchor text with its white space that are looked at. The factor leaves room for white space."""

KNOWN = "known"
"""Outcome of a link that needs no request, because its URL is in the frontier or is the page itself. It is also the
reason in the statistics, so it must not change. Compared by identity, which is faster: use this object, not the
text."""


class Links(msgspec.Struct):
    """Links of one page. `found == len(urls) + repeats + sum(dropped.values())`.

    The compiled extension returns the values of all fields up to `hrefs`, in this order.
    """

    urls: list[str] = msgspec.field(default_factory=list)
    """New URLs in scope: canonical and each once. First those of `link rel=next` and of a refresh, then those of
    anchors in document order."""
    fingerprints: list[int] = msgspec.field(default_factory=list)
    """Fingerprint of each URL: the hash by which the frontier recognises a URL that it has, signed 64-bit."""
    domains: list[str] = msgspec.field(default_factory=list)
    """Registered domain of each URL."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of links that are not followed, by reason.

    `nofollow` (the page or the element asks not to follow) counts elements. All other reasons count distinct hrefs:
    those of `LinkScope` (`offsite, extension, allow_regex, deny_regex, scheme, too_long, bad_url`), `known` (in the
    frontier already, or the page itself) and `budget` (beyond MAX_URL_BYTES)."""
    found: int = 0
    """Number of elements with a link."""
    repeats: int = 0
    """Number of elements that repeat the href or the URL of an earlier one of the page. Elements that count as
    `nofollow` are not among them."""
    nofollow: bool = False
    """True: the page asks that its links are not followed (`<meta name=robots content=nofollow>` or `none`), or its
    response does (`X-Robots-Tag`)."""
    noindex: bool = False
    """True: the page asks not to be indexed."""
    base: str = ""
    """Canonical URL that relative links are resolved against."""
    hrefs: list[str] = msgspec.field(default_factory=list)
    """The href of each URL without its fragment, for `remember`. Empty: the href is not to be remembered, because the
    page's charset decides which URL it is."""
    texts: list[tuple[str, str]] | None = None
    """URL and text of each `a`, `area`, `iframe` and `frame` whose target is http or https, followed or not, up to
    MAX_URL_BYTES. None: not requested."""


class LinkExtractor:
    """Extracts the links of the pages of one spider, with the options of one submission of URLs. Not thread-safe."""

    def __init__(
        self,
        scope: LinkScope | None,
        *,
        seed: int,
        follow_nofollow: bool = False,
        texts: bool = False,
        sorted_queries: bool = False,
        memory: Any = None,
        namespace: Hashable = None,
    ) -> None:
        """`scope`: filters of links; None: the caller passes them to each call of `extract`. `seed`: key of the
        fingerprints (see `policy.urls.spider_seed`). `follow_nofollow`: follow links although the page or the link asks
        not to. `texts`: also list every link with its text. `sorted_queries`: give URLs that differ only in the order
        of their query parameters the same fingerprint. `memory`: remembers the outcomes of hrefs under `namespace`, and
        may be shared by extractors; None: this extractor gets its own."""
        self._scope = scope
        self._seed = seed
        self._fingerprint = _order_independent_fingerprint if sorted_queries else fingerprint
        self._follow_nofollow = follow_nofollow
        self._texts = texts
        self._memory = new_href_memory() if memory is None else memory
        self._namespace = namespace
        self._native: Any = None
        if native is not None and isinstance(self._memory, native.Memory):
            self._native = native.Extractor(
                seed=seed,
                follow_nofollow=follow_nofollow,
                sorted_queries=sorted_queries,
                namespace=repr(namespace),
                memory=self._memory,
                refresh_target=refresh_target,
                registered_domain=registered_domain,
            )

    def extract(
        self,
        html: bytes | str | HtmlDocument,
        base_url: str,
        *,
        encoding: str | None = None,
        scope: LinkScope | None = None,
        nofollow: bool = False,
    ) -> Links:
        """Return the links of a page whose canonical URL is `base_url`. Never raises, whatever the page contains.

        `html`: the page, or its document, whose tree other readers of the page use, too. `encoding`: Python codec of
        the page, as `extract.encoding.decode` returns it; None: UTF-8. Bytes are decoded with it. It is needed for a
        text and a document, too, because the URL standard encodes queries in the page's encoding. `scope`: replaces the
        extractor's own. `nofollow`: the response asks not to follow its links (`policy.robots.asks_nofollow`).
        """
        active_scope = scope or self._scope
        if active_scope is None:  # a mistake in the calling code; no page can cause it
            raise ValueError("this extractor has no scope; pass one to extract()")
        charset = None if encoding is None or is_utf8(encoding) else encoding
        document = html if isinstance(html, HtmlDocument) else HtmlDocument(html, encoding)
        extract = self._extract_by_reference if self._native is None else self._extract_compiled
        links = extract(document, base_url, active_scope, charset, nofollow=nofollow)
        if active_scope.dropped is not None:
            self._drop_parameters(links, base_url, active_scope)
        return links

    def _drop_parameters(self, links: Links, page: str, scope: LinkScope) -> None:
        """Replace the URLs by those without the query parameters to leave out. Of equal ones, the first stays."""
        seen = {scope.cleaned(page)}
        urls, fingerprints, domains, hrefs = links.urls, links.fingerprints, links.domains, links.hrefs
        links.urls, links.fingerprints, links.domains, links.hrefs = [], [], [], []
        for url, value, domain, href in zip(urls, fingerprints, domains, hrefs, strict=True):
            clean = scope.cleaned(url)
            if clean in seen:
                links.repeats += 1
                continue
            seen.add(clean)
            links.urls.append(clean)
            links.fingerprints.append(value if clean is url else self._fingerprint(clean, seed=self._seed))
            links.domains.append(domain)
            links.hrefs.append(href)

    def _extract_by_reference(
        self, document: HtmlDocument, base_url: str, scope: LinkScope, charset: str | None, *, nofollow: bool
    ) -> Links:
        """Return the links that the parser of Python finds. `charset`: as below."""
        links = Links(base=base_url, texts=[] if self._texts else None, nofollow=nofollow)
        follow = self._follow_nofollow
        first_hrefs: list[str] = []
        hrefs: list[str] = []
        base: str | None = None
        nofollow_count = 0
        for tree in document.trees():  # one tree, or several for a page that would be costly to parse
            if base is None:
                base = base_of(tree, base_url)
            first_hrefs += head_hrefs(tree)
            _read_robots(tree, links)
            found: Iterable[LinkElement] = link_elements(tree)
            if links.texts is not None:
                found = [*found]
                _add_texts(links.texts, found, base or base_url, charset)
            for _, attributes, href in found:
                if not follow and "rel" in attributes and "nofollow" in _words(attributes["rel"]):
                    nofollow_count += 1
                else:
                    hrefs.append(href)
        if first_hrefs:
            hrefs = first_hrefs + hrefs
        links.base = document.base = base or base_url
        links.found = len(hrefs) + nofollow_count
        if links.nofollow and not follow:
            nofollow_count, hrefs = links.found, []
        if nofollow_count:
            links.dropped["nofollow"] = nofollow_count
        self._follow(hrefs, base_url, charset, links, scope)
        return links

    def _extract_compiled(
        self, document: HtmlDocument, base_url: str, scope: LinkScope, charset: str | None, *, nofollow: bool
    ) -> Links:
        """Return the links that the compiled extension finds. `charset`: Python codec of a page not in UTF-8."""
        encode_query = None if charset is None else partial(with_encoded_query, charset=charset)
        found = self._native.extract(document.data, base_url, scope.compiled(native), encode_query, nofollow)
        links = Links(*found)
        document.base = links.base
        if self._texts:
            links.texts = list_links(document, base_url, encoding=charset)
        return links

    def remember(self, links: Links, *, except_positions: Collection[int] = ()) -> None:
        """Record that the URLs of `links` are in the frontier, so that `extract` counts them as `known` on later pages.

        Call it only after the frontier has added them: if adding fails, a URL that is remembered already is lost.
        `except_positions`: positions in `links.urls` of the URLs that the frontier rejected; `extract` returns them
        again. May be repeated.
        """
        hrefs = links.hrefs
        if except_positions:
            hrefs = [href for position, href in enumerate(hrefs) if position not in except_positions]
        if self._native is not None:
            self._native.remember(links.base, hrefs)
        else:
            self._memory.keep(self._namespace, links.base, hrefs, KNOWN)

    def _follow(self, hrefs: list[str], page: str, charset: str | None, links: Links, scope: LinkScope) -> None:
        """Sort the hrefs into new URLs, repeats (of an href or URL of this page) and dropped ones, which are counted by
        outcome: remembered from an earlier page, invalid, the page itself, refused by the scope, beyond MAX_URL_BYTES.
        The loop runs for each href of each page, so it must not get slower."""
        base, dropped = links.base, links.dropped
        # Outcomes of hrefs that were met before, by the pages on which such an href means the same (see `HrefMemory`).
        anywhere, on_site, in_directory = self._recall(base)
        document = BaseUrl(base)
        fingerprint_of, seed = self._fingerprint, self._seed
        seen: set[str] = set()
        urls: set[str] = set()
        domains: dict[str, str] = {}
        url_bytes = known_count = 0
        for raw in hrefs:
            href = _without_fragment(raw) if "#" in raw else raw
            if href in seen:
                links.repeats += 1
                continue
            seen.add(href)
            outcome = on_site.get(href) if href[:1] == "/" else in_directory.get(href)
            if outcome is None:
                outcome = anywhere.get(href)
            if outcome is KNOWN:
                known_count += 1
                continue
            if outcome is None:
                # Where the document's encoding matters, the same href may be another URL on the next page.
                target = href if charset is None else with_encoded_query(href, charset)
                try:
                    url = document.join(target)
                except BadUrl as fault:
                    outcome = fault.reason
                else:
                    if url in urls:
                        links.repeats += 1
                        continue
                    outcome = KNOWN if url == page else scope.reason(url)
                    if outcome is None and url_bytes + len(url) > MAX_URL_BYTES:
                        dropped["budget"] = dropped.get("budget", 0) + 1
                        continue
                    if outcome is None:
                        url_bytes += len(url)
                        urls.add(url)
                        links.urls.append(url)
                        links.fingerprints.append(fingerprint_of(url, seed=seed))
                        origin = url[: url.index("/", _AFTER_SCHEME)]
                        domain = domains.get(origin)
                        if domain is None:
                            domain = domains[origin] = registered_domain(host(url))
                        links.domains.append(domain)
                        links.hrefs.append(href if target is href else "")
                        continue
                # A link to the page itself is not remembered, because another page of the spider may follow it.
                if target is href and outcome is not KNOWN and self._native is None:
                    self._memory.keep(self._namespace, base, (href,), outcome)
            dropped[outcome] = dropped.get(outcome, 0) + 1
        if known_count:
            dropped[KNOWN] = dropped.get(KNOWN, 0) + known_count

    def _recall(self, base: str) -> RememberedHrefs:
        """Return the outcomes of hrefs. The compiled extension has a memory of its own, which is not asked here."""
        return self._memory.recall(self._namespace, base) if self._native is None else NOTHING_REMEMBERED


def _order_independent_fingerprint(url: str, *, seed: int) -> int:
    return fingerprint(with_sorted_query(url), seed=seed)


def base_of(tree: "LexborHTMLParser", page: str) -> str | None:
    """Return the document base URL of the HTML standard: that of the first `base href`, or the page's own if that is no
    http or https URL. None: the tree has no `base href`, but a later piece of the page may have one."""
    is_foreign = ForeignContent()
    for base in tree.tags("base"):
        href = base.attributes.get("href")
        if href is not None and not is_foreign(base):
            try:
                return join(page, href)
            except BadUrl:
                return page
    return None


def head_hrefs(tree: "LexborHTMLParser") -> list[str]:
    """Return the targets of `link rel=next` and of a refresh."""
    hrefs: list[str] = []
    is_foreign = ForeignContent()
    for link in tree.tags("link"):
        attributes = link.attributes
        href = attributes.get("href")
        if href is not None and "next" in _words(attributes.get("rel")) and not is_foreign(link):
            hrefs.append(href)
    for meta in tree.tags("meta"):
        attributes = meta.attributes
        content = attributes.get("content")
        is_refresh = (attributes.get("http-equiv") or "").strip().lower() == "refresh" and not _is_robots(attributes)
        if content is not None and is_refresh:
            target = refresh_target(content)
            if target is not None:
                hrefs.append(target)
    return hrefs


def _read_robots(tree: "LexborHTMLParser", links: Links) -> None:
    """Set `nofollow` and `noindex` from `meta name=robots`."""
    for meta in tree.tags("meta"):
        attributes = meta.attributes
        content = attributes.get("content")
        if content is not None and _is_robots(attributes):
            directives = _words(content.replace(",", " "))
            links.nofollow = links.nofollow or "nofollow" in directives or "none" in directives
            links.noindex = links.noindex or "noindex" in directives or "none" in directives


def _is_robots(attributes: dict[str, str | None]) -> bool:
    return (attributes.get("name") or "").strip().lower() == "robots"


def _add_texts(
    texts: list[tuple[str, str]],
    elements: "Iterable[LinkElement]",
    base: str,
    charset: str | None,
) -> None:
    """Append URL and text of each link to http or https to `texts`, up to MAX_URL_BYTES for the page.

    `texts` has the links of earlier pieces of the page already. `elements`: as `link_elements` yields them.
    """
    join = BaseUrl(base).join
    size = sum(len(url) + len(text) for url, text in texts)
    for node, _, href in elements:
        # Most hrefs without a fragment are joined without a URL parser, which is faster.
        target = _without_fragment(href) if "#" in href else href
        try:
            url = join(target if charset is None else with_encoded_query(target, charset))
        except BadUrl:
            continue
        text = link_text(node)
        # The whole text counts, not the part that is kept: nested anchors copy the same text again and again.
        size += len(url) + len(text)
        # Cut before white space is removed, so that this costs little.
        text = " ".join(text[:_RAW_TEXT_LENGTH].split())[:MAX_TEXT_LENGTH]
        if size > MAX_URL_BYTES:
            break
        texts.append((url, text))


def _without_fragment(href: str) -> str:
    """Return an href that contains a `#` up to there."""
    # An href with white space before its fragment stays as it is: the white space belongs to the URL, but would be
    # stripped if it stood at the end.
    end = href.index("#")
    return href if end and href[end - 1] <= " " else href[:end]


def _words(text: str | None) -> list[str]:
    return text.lower().split() if text else []


def list_links(document: HtmlDocument, page: str, *, encoding: str | None) -> list[tuple[str, str]]:
    """Return URL and text of each link of a page whose target is http or https, as in `Links.texts`. `page`: its
    canonical URL. Never raises."""
    charset = None if encoding is None or is_utf8(encoding) else encoding
    texts: list[tuple[str, str]] = []
    base: str | None = None
    for tree in document.trees():
        if base is None:
            base = base_of(tree, page)
        _add_texts(texts, link_elements(tree), base or page, charset)
    return texts

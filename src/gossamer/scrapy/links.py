"""Faster `extract_links` for Scrapy's LinkExtractor, and faster `response.follow` and `urljoin`: the same links in the
same order, the same requests and URLs, in a fraction of the time.

Most pages need no parser: the compiled extension reads their links and texts (`native/src/plain.rs`). Without it, and
where it gives up, the tree is read that Scrapy would read. Most hrefs need no URL parser: joining them with the page's
URL takes a few operations on strings. All other hrefs go through the functions that Scrapy uses. An extractor whose
options change what a link is (`process_value`, other tags or attributes, `canonicalize`), and one of a subclass, is
left to Scrapy.

A pattern that matches too few hrefs is only slower; with one that matches too many, an href gets another URL than in
Scrapy. Fixed: the results are those of Scrapy. A test compares them on generated and on real pages.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin
from weakref import ref

from lxml import etree
from scrapy.http import HtmlResponse, Request, Response, TextResponse, XmlResponse
from scrapy.http import request as requests
from scrapy.http.response import text as responses
from scrapy.link import Link
from scrapy.linkextractors import lxmlhtml
from scrapy.linkextractors.lxmlhtml import LxmlLinkExtractor, LxmlParserLinkExtractor
from scrapy.spiders import CrawlSpider
from scrapy.utils.misc import rel_has_nofollow
from scrapy.utils.python import unique
from scrapy.utils.response import get_base_url
from scrapy.utils.url import url_is_from_any_domain
from w3lib import html
from w3lib.html import HTML5_WHITESPACE
from w3lib.url import safe_url_string

from gossamer.compiled import native
from gossamer.scrapy.shortcuts.parts import is_known_version, is_scrapys

# A clean href has no dot segment, no empty segment and no parameters (`;`), and no character that is ever encoded.
_SEGMENT = r"[\w~!$&()*+,:=@%-][\w.~!$&()*+,:=@%-]*"
_FIRST_SEGMENT = r"[\w~!$&()*+,=@%-][\w.~!$&()*+,=@%-]*"  # of a relative path: a `:` would end a scheme
_QUERY = r"\?[\w.~!$&()*+,:;=@%/?-]+"
_FRAGMENT = r"#[\w.~!$&()*+,:;=@%/?-]+"
_END = rf"(?:{_QUERY})?(?:{_FRAGMENT})?"
_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}"
_SITE = rf"//[a-z0-9][a-z0-9-]{{0,62}}(?:\.[a-z0-9][a-z0-9-]{{0,62}})*(?::(?:{_PORT}))?"
_PATH = rf"/(?:{_SEGMENT}(?:/{_SEGMENT})*/?)?"
_CLEAN_HREF: Final = re.compile(rf"(?:{_PATH}|{_FIRST_SEGMENT}(?:/{_SEGMENT})*/?)?{_END}", re.ASCII)
_CLEAN_URL: Final = re.compile(rf"(?:https?:)?({_SITE}){_PATH}{_END}", re.ASCII)
_BASE: Final = re.compile(rf"((https?):{_SITE})({_PATH})({_QUERY})?(?:{_FRAGMENT})?", re.ASCII)

_NO_SEGMENT: Final = ("", "/", "?", "#")

_XHTML: Final = f"{{{lxmlhtml.XHTML_NAMESPACE}}}"
_TAGS: Final = ("a", "area", f"{_XHTML}a", f"{_XHTML}area")
_METHODS: Final = frozenset(("_extract_links", "_process_links", "_link_allowed", "_iter_links"))
"""Methods of extractors that this module does the work of."""
_DEFAULT_TAGS: Final = {"a", "area"}
_DEFAULT_ATTRIBUTES: Final = {"href"}

_PAGES: Final = frozenset((TextResponse, HtmlResponse, XmlResponse))
_REQUEST_OPTIONS: Final = frozenset(
    (
        "method", "headers", "body", "cookies", "meta", "encoding", "priority", "dont_filter", "errback", "cb_kwargs",
        "flags",
    )
)  # fmt: skip
"""Arguments that `response.follow` passes on to the request as they are."""


class _Options(NamedTuple):
    """Options of an extractor for which this module has the same results as Scrapy."""

    parser: LxmlParserLinkExtractor
    extensions: tuple[str, ...]
    in_paths: bool
    """True: an extension could match more than the end of a path's last segment."""


def install(*, wanted: bool = True) -> None:
    """Make all link extractors of this process fast, those included that exist already, and the URLs of new requests;
    `wanted` False: leave them to Scrapy again. May be repeated. A method that a project has replaced stays."""
    for owner, name, ours, scrapys in (
        (LxmlLinkExtractor, "extract_links", _extract_links, _scrapys_method),
        (TextResponse, "follow", _follow, _scrapys_follow),
        (CrawlSpider, "_requests_to_follow", _requests_to_follow, _scrapys_rules),
    ):
        current = vars(owner)[name]
        if wanted and is_scrapys(current) and (ours is not _requests_to_follow or is_known_version()):
            setattr(owner, name, ours)
        elif not wanted and current is ours:
            setattr(owner, name, scrapys)
    for module in (requests, html):
        vars(module)["safe_url_string"] = _safe_url_string if wanted else safe_url_string
    vars(responses)["urljoin"] = _urljoin if wanted else urljoin


_scrapys_method: Final = LxmlLinkExtractor.extract_links
_scrapys_rules: Final = CrawlSpider._requests_to_follow
_scrapys_follow: Final = TextResponse.follow
_scrapys_urljoin: Final = TextResponse.urljoin

_clean_links: set[str] = set()
"""URLs of links that were joined from clean parts; a spider makes requests of them."""
_MAX_CLEAN_LINKS: Final = 10_000
"""Number of these URLs at which all are forgotten. Each takes some 150 bytes."""


def _safe_url_string(url: str, encoding: str = "utf-8", *rest: Any, **more: Any) -> str:
    """Return a URL as Scrapy and w3lib write it. Most URLs stay as they are."""
    is_clean = type(url) is str and (url in _clean_links or (_CLEAN_URL.fullmatch(url) and url[0] == "h"))
    if is_clean and _is_ascii_compatible(encoding):
        return url
    return safe_url_string(url, encoding, *rest, **more)


def _urljoin(base: str, url: str, *rest: Any, **more: Any) -> str:
    """Return the absolute URL, as `urllib.parse.urljoin` does."""
    if type(base) is str and type(url) is str and not rest and not more:
        joined = _base(base).join(url)
        if joined is not None:
            return joined
    return urljoin(base, url, *rest, **more)


@wraps(_scrapys_follow)
def _follow(
    self: TextResponse, url: Any, callback: Callable[..., Any] | None = None, *rest: Any, **options: Any
) -> Request:
    """Return the request of a link, as Scrapy's own method does."""
    href = url.url if type(url) is Link else url
    if (
        not rest
        and type(href) is str
        and type(self) in _PAGES
        and TextResponse.urljoin is _scrapys_urljoin
        and options.keys() <= _REQUEST_OPTIONS
    ):
        base, encoding = _place(self)
        joined = base.join(href)
        if joined is not None:
            if options.get("encoding") is None:
                options["encoding"] = encoding
            return Request(joined, callback, **options)
    return _scrapys_follow(self, url, callback, *rest, **options)


def _requests_to_follow(self: CrawlSpider, response: Response) -> Iterator[Request | None]:
    """Yield the requests of a page's links by the spider's rules, as Scrapy's own method does.

    Scrapy leaves out links that an earlier rule has found. With one rule, the hashes of all links are for nothing.
    """
    if len(self._rules) != 1 or not isinstance(response, HtmlResponse):
        yield from _scrapys_rules(self, response)
        return
    rule: Any = self._rules[0]
    for link in rule.process_links(list(rule.link_extractor.extract_links(response))):
        yield rule.process_request(self._build_request(0, link), response)


_last_place: "tuple[ref[TextResponse], _Base, str] | None" = None
"""The response whose link was followed last, its base URL and its encoding, which do not change."""


def _place(response: TextResponse) -> "tuple[_Base, str]":
    """Return the base URL and the encoding of a response. Both take Scrapy longer than the rest of a request."""
    global _last_place
    if _last_place is None or _last_place[0]() is not response:
        _last_place = (ref(response), _base(get_base_url(response)), response.encoding)
    return _last_place[1], _last_place[2]


def _extract_links(self: LxmlLinkExtractor, response: TextResponse) -> list[Link]:
    """Return the links of the response, as Scrapy's own method does."""
    options = _options(self)
    if options is None or not _is_ascii_compatible(response.encoding):
        return _scrapys_method(self, response)
    base = get_base_url(response)
    page = _Page(self, options, base, response)
    if not self.restrict_xpaths and (plain := _plain_links(response)) is not None:
        return page.links(plain)
    if self.restrict_xpaths:
        selectors = [found for expression in self.restrict_xpaths for found in response.xpath(expression)]
    else:
        selectors = [response.selector]
    if not all(isinstance(selector.root, etree._Element) for selector in selectors):
        return _scrapys_method(self, response)
    links = [link for selector in selectors for link in page.links(_anchors(selector.root))]
    return unique(links, key=options.parser.link_key) if options.parser.unique and len(selectors) > 1 else links


_Anchor = tuple[str, "str | etree._Element", str | None]
"""Href, text (or the element whose text it is), and `rel` of an `a` or `area`."""


def _plain_links(response: TextResponse) -> "Sequence[_Anchor] | None":
    """Return the links of a page that needs no parser. None: it needs one, or it was parsed already."""
    if native is None or type(response) is not HtmlResponse or response._cached_selector is not None:
        return None
    found: Sequence[_Anchor] | None = native.plain_links(response.text)
    return found


def _anchors(root: etree._Element) -> Iterator[_Anchor]:
    """Yield the links of an element and of all that it contains, in their order."""
    for element in root.iter(*_TAGS):
        href = element.get("href")
        if href is not None:
            yield href, element, element.get("rel")


def _options(extractor: LxmlLinkExtractor) -> _Options | None:
    """Return the options of an extractor. None: only Scrapy has the same results.

    They are read for each page, because a project may change them on an extractor that exists."""
    parser = extractor.link_extractor
    if (
        type(extractor) is not LxmlLinkExtractor
        or type(parser) is not LxmlParserLinkExtractor
        or not _METHODS.isdisjoint(vars(extractor))
        or not _METHODS.isdisjoint(vars(parser))
        or extractor.canonicalize
        or parser.process_attr is not lxmlhtml._identity
        or not isinstance(parser.link_key, operator.attrgetter)
        or not _matches_only(parser.scan_tag, _DEFAULT_TAGS)
        or not _matches_only(parser.scan_attr, _DEFAULT_ATTRIBUTES)
    ):
        return None
    extensions = tuple(extractor.deny_extensions)
    return _Options(parser, extensions, "/" in "".join(extensions))


def _matches_only(matcher: Callable[[str], bool], names: set[str]) -> bool:
    """Return whether a matcher that a LinkExtractor has made of its arguments accepts exactly these names."""
    if not isinstance(matcher, partial) or matcher.keywords:
        return False
    if matcher.func is operator.contains:  # Scrapy up to 2.16
        return matcher.args == (names,)
    return matcher.func is getattr(lxmlhtml, "_name_matches", None) and matcher.args == (names, set())


@lru_cache(maxsize=64)  # one for each encoding of the crawl's pages
def _is_ascii_compatible(encoding: str) -> bool:
    """Return whether a clean URL has the same bytes in this encoding as in ASCII, as in nearly all."""
    text = "".join(map(chr, range(0x20, 0x7F)))
    try:
        return text.encode(encoding) == text.encode("ascii")
    except (LookupError, UnicodeError):
        return False


class _Base:
    """Base URL of pages."""

    def __init__(self, url: str) -> None:
        parts = _BASE.fullmatch(url)
        self.is_clean = parts is not None
        if parts is not None:
            self._site, self._scheme, path, query = parts.groups()
            self._document = self._site + path  # without query and fragment
            self._whole = self._document + (query or "")  # without fragment
            self._directory = self._document[: self._document.rindex("/") + 1]

    def join(self, href: str) -> str | None:
        """Return the absolute URL of an href. None: only a URL parser can tell."""
        if not self.is_clean:
            return None
        if href in _clean_links:
            return href
        if _CLEAN_HREF.fullmatch(href) is not None:
            first = href[:1]
            if first == "/":
                return self._site + href
            if first == "?":
                return self._document + href
            if first == "#":
                return self._whole + href
            return self._directory + href if first else None
        if href[:3] == "../":
            return self._join_above(href)
        found = _CLEAN_URL.fullmatch(href)
        if found is None:
            return None
        return href if href[0] == "h" else f"{self._scheme}:{href}"

    def _join_above(self, href: str) -> str | None:
        """Return the absolute URL of an href that begins with `../`. None: only a URL parser can tell."""
        directory = self._directory
        while href[:3] == "../":
            href = href[3:]
            if len(directory) > len(self._site) + 1:  # at the root, `..` is the root again
                directory = directory[: directory.rindex("/", 0, -1) + 1]
        is_clean = href[:1] not in _NO_SEGMENT and _CLEAN_HREF.fullmatch(href) is not None
        return directory + href if is_clean else None


@lru_cache(maxsize=128)  # one for each page that is being handled
def _base(url: str) -> _Base:
    return _Base(url)


class _Page:
    """One page whose links are extracted."""

    def __init__(self, extractor: LxmlLinkExtractor, options: _Options, base: str, response: TextResponse) -> None:
        self._extractor = extractor
        self._options = options
        self._base = base
        self._url = response.url
        self._encoding = response.encoding
        self._joins = _base(base) if response.url.startswith(("http://", "https://")) else None
        self._is_filtered_by_domain = bool(extractor.allow_domains or extractor.deny_domains)
        self._has_filter = bool(extractor.allow_res or extractor.deny_res or self._is_filtered_by_domain)
        self._domains: dict[str, bool] = {}
        """Verdicts of the domain filters by site."""

    def links(self, anchors: Iterable[_Anchor]) -> list[Link]:
        """Return the links that the extractor's filters let through, in their order."""
        found: list[Link] = []
        seen: set[str] = set()
        parser, extractor, joins = self._options.parser, self._extractor, self._joins
        extensions, in_paths = self._options.extensions, self._options.in_paths
        for raw, source, rel in anchors:
            href = raw.strip(HTML5_WHITESPACE) if parser.strip else raw
            clean = joins.join(href) if joins is not None else None
            url = self._join(href) if clean is None else clean
            if url is None:
                continue
            if parser.unique:
                if url in seen:
                    continue
                seen.add(url)
            # Of two elements with one URL, Scrapy drops the second one before it filters.
            if clean is not None:
                if self._has_filter and not self._is_allowed(url):
                    continue
                # An href that begins with a path ends the URL's path by itself.
                if ("." in href or href[0] in "?#" or in_paths) and _path(url).lower().endswith(extensions):
                    continue
            text = source if type(source) is str else _text(source)
            link = Link(url, text, "", rel is not None and rel_has_nofollow(rel))
            if clean is None:
                if extractor._link_allowed(link):
                    found.append(link)
            elif not extractor.restrict_text or self._is_text_allowed(text):
                found.append(link)
                _clean_links.add(url)
        if len(_clean_links) > _MAX_CLEAN_LINKS:
            _clean_links.clear()
        return found

    def _join(self, href: str) -> str | None:
        """Return the absolute URL of any href, as LxmlParserLinkExtractor does. None: it has none."""
        try:
            return urljoin(self._url, safe_url_string(urljoin(self._base, href), encoding=self._encoding))
        except ValueError:
            return None

    def _is_allowed(self, url: str) -> bool:
        """Return whether the filters of URLs and domains let a clean URL through."""
        extractor = self._extractor
        if extractor.allow_res and not any(expression.search(url) for expression in extractor.allow_res):
            return False
        if extractor.deny_res and any(expression.search(url) for expression in extractor.deny_res):
            return False
        return not self._is_filtered_by_domain or self._is_domain_allowed(url)

    def _is_domain_allowed(self, url: str) -> bool:
        site = url[: url.index("/", len("https://"))]
        allowed = self._domains.get(site)
        if allowed is None:
            extractor = self._extractor
            wanted, unwanted = extractor.allow_domains, extractor.deny_domains
            allowed = not wanted or url_is_from_any_domain(site, wanted)
            allowed = allowed and not (unwanted and url_is_from_any_domain(site, unwanted))
            self._domains[site] = allowed
        return allowed

    def _is_text_allowed(self, text: str) -> bool:
        expressions = self._extractor.restrict_text
        return not expressions or any(expression.search(text) for expression in expressions)


def _path(url: str) -> str:
    """Return the path of a clean URL."""
    whole = url.partition("#")[0].partition("?")[0]
    return whole[whole.index("/", len("https://")) :]


def _text(element: "etree._Element | str") -> str:
    """Return the text of an element and all that it contains."""
    if isinstance(element, str):
        return element
    if len(element):
        return str(lxmlhtml._collect_string_content(element) or "")
    return element.text or ""

"""Fast link extractors find what Scrapy's own find: the same links, texts and `nofollow`, in the same order."""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urljoin

import pytest
from scrapy.http import HtmlResponse, Request, TextResponse, XmlResponse
from scrapy.link import Link
from scrapy.linkextractors import LinkExtractor
from scrapy.linkextractors.lxmlhtml import LxmlLinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from gossamer.scrapy import links
from gossamer.scrapy.addon import Addon
from tests.links.generate import make_page, well_formed

HREFS = (
    "", "#", "?", "/", "//", "?a=1", "#f", "?a=1#f", "p", "p/q", "./p", "../p", "../../", "../p/", "../?x", "../..",
    "../.x", "../../../../y?z#f", "/a/../b", "/a//b", "//h.test/x", "//h.test", "http://h.test", "HTTP://H.test/x",
    "http://H.test/x", "https://h.test:443/x", "http://h.test:80/", "http://h.test:99999/", "http://u:p@h.test/x",
    "mailto:a@b", "javascript:void(0)", "a:b", "/w/Special:X", "w:x/y", "/x;p=1", "/x?y;z", "/x?q='1'", "/x'y", "/x y",
    "/x%20y", "/x%2", "/x|y", "/x[1]", "/x?[1]", "/ü", "/x?ü", "#ü", "http://ü.test/x", "http://xn--4ca.test/x",
    "http://-a.test/", "http://a-.test/", "http://a_b.test/", "http://a..b.test/", "\t/x\n", "/x\ny", "/x.pdf",
    "/x.PDF?y", "/x.pdf#y", "/x?y.pdf", "?z=.pdf", "/x.tar.gz", "x.", "/x/.", "/x/..", "..", ".", "/.well", "/x?",
    "/x#",
    "/x?#", "http:/x", "http:x", "https:/x", "http:///x", "ftp://h.test/x", "file:///x", "data:,x", "/\\x", "/x\\y",
    "/x?a=b&c=d", "/x?a=b?c", "/x#a#b", "/x?a#b?c", "[", "http://[::1]/x", "http://[::1", "//[", "http://h.test/a/../b",
    "/x\u00a0", " /x ", "/%zz", "/a@b", "@", "~x", "/$x", "!x", "*x", "/(x)", "x,y", "x=y", "/x+y", "1", "a.b",
    "http://h.test/p?q=http://z/", "/x?u=http://a/b#c:d", "http://h.test?x", "http://h.test#x", "x/", "x//", "/x/?y",
)  # fmt: skip
URLS = (
    "http://site0.test:8080/", "http://site0.test/a/b/c.html", "https://x.test/a/b/?q=1", "http://x.test/a/b;c/d",
    "http://x.test", "http://x.test/a/../b/c", "http://x.test/a//b/c", "http://X.test/a/", "http://x.test/a.pdf",
    "http://127.0.0.1:40123/p/1", "http://x.test/a?b/c", "http://x.test/a#f", "http://x.test/ü/x", "http://x.test:80/a/b",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8", "latin-1", "utf-16", "cp1251", "shift_jis")
TEXTS = ("text", "<b>x</b>y", "<img src=x>", "", "<!--c-->z", "a<p>b", "&amp;&copy;", "<script>s</script>")
RELS = ("", " rel=nofollow", " rel='noopener, NoFollow'", " rel=x")

EXTRACTORS: tuple[dict[str, Any], ...] = (
    {}, {"unique": False}, {"allow": r"x", "deny": ["y", "z"]}, {"allow_domains": ["h.test", "test:8080"]},
    {"deny_domains": "h.test", "strip": False}, {"deny_extensions": []}, {"deny_extensions": ["pdf", "b/x", ""]},
    {"restrict_xpaths": ["//b|//p", "//a"]}, {"restrict_css": "a"}, {"restrict_text": "x|t"}, {"canonicalize": True},
    {"tags": "a"}, {"process_value": lambda value: value.replace("x", "w")}, {"attrs": ("href", "rel")},
)  # fmt: skip


class Own(LxmlLinkExtractor):
    """An extractor of a project."""

    def _link_allowed(self, link: Any) -> bool:
        return "x" in link.url


@pytest.fixture(autouse=True)
def _scrapys_links() -> Iterator[None]:
    yield
    links.install(wanted=False)


def test_generated_pages_have_the_same_links() -> None:
    chance = random.Random(7)
    extractors = [*(LinkExtractor(**options) for options in EXTRACTORS), Own()]
    for _ in range(4000):
        body, url, encoding = page(chance), chance.choice(URLS), chance.choice(ENCODINGS)
        extractor = chance.choice(extractors)
        ours, theirs = (found(extractor, url, body, encoding, wanted=wanted) for wanted in (True, False))
        assert ours == theirs, (url, encoding, body, vars(extractor))


PLAIN_PIECES = (
    '<a href="/%s">text</a>', '<a href="/%s" rel="nofollow">a<b>b</b>c<br>d</a>',
    "<li><a href=p%s>x &amp; y&raquo;</a>", "<p>text", "</p>", "<div>", "</div>", "<!-- <a href=no> -->",
    "<script>'<a href=no>'</script>", "<area href=%s>",
    '<a href="?a=1&amp;b=%s&c=2"><img src="a>b" alt="<">&#233;&hellip;</a>', "<table><tr><td>", "</table>", "</span>",
    "<a\nclass=x\thref='%s'\n><span><h2>x</h2></span></a>", "<a name=x>", "</a>", "<title>a & b</title>", "<br/>",
    '<a href="%s"><div>x<svg><path d="M0"/></svg></div></a>', "&nbsp;", "<p><a href=%s><!-- c -->ü</a>", "<ul>",
    "</ul>", "<noscript><iframe src=x></iframe></noscript>", "<style>a > b {}</style>", "<textarea>x</textarea>",
    "<my-tag x>", "</body>", '<a href="%s">x & y</a>', "<template>", "<select><option>x", "</select>", "<b>", "<i>",
    "</b>", "<form>", '<a href="%s"><p>x</p></a>', '<a href="%s">x</div></a>', '<a href="%s"/>',
    '<a href="%s">&copy</a>', "<a href>x</a>", "<xmp>", "<svg><title>a<b></title></svg>", "<center>", "</center>",
    "<h1>", "</h1>", "<font>", "\r\n", "<![CDATA[x]]>",
)  # fmt: skip


@pytest.mark.skipif(links.native is None, reason="the compiled extension is not installed")
def test_pages_that_need_no_parser_have_the_same_links() -> None:
    chance = random.Random(8)
    plain = 0
    extractor = LinkExtractor(unique=False, deny_extensions=[])
    for _ in range(4000):
        pieces = [chance.choice(PLAIN_PIECES).replace("%s", f"u{at}") for at in range(chance.randint(1, 9))]
        body = ("<!doctype html><html><body>" + "".join(pieces)).encode()
        plain += links.native.plain_links(body.decode()) is not None
        ours, theirs = (found(extractor, URLS[0], body, "utf-8", wanted=wanted) for wanted in (True, False))
        assert ours == theirs, body
    assert plain > 1000


def page(chance: random.Random) -> bytes:
    """Return a page of odd HTML, of whole elements, or of odd hrefs."""
    match chance.randrange(5):
        case 0 | 1:
            return make_page(chance)
        case 2:
            return well_formed(chance).encode()
    pieces = [f'<base href="{chance.choice(HREFS)}">'] if chance.random() < 0.2 else []
    for _ in range(chance.randint(1, 12)):
        href = "".join(chance.choices(HREFS, k=chance.choice((1, 1, 2)))).replace("&", chance.choice(("&", "&amp;")))
        name, text, rel = chance.choice(("a", "A", "area")), chance.choice(TEXTS), chance.choice(RELS)
        pieces.append(f'<{name} href="{href}"{rel}>{text}{chance.choice(("</a>", "</a>", ""))}')
    return "\n".join(pieces).encode()


def found(extractor: Any, url: str, body: bytes, encoding: str, *, wanted: bool) -> Any:
    """Return the links, or the error, that an extractor finds on a new response."""
    links.install(wanted=wanted)
    response = HtmlResponse(url, body=body, encoding=encoding)
    try:
        return [(link.url, str(link.text), link.fragment, link.nofollow) for link in extractor.extract_links(response)]
    except Exception as error:
        return repr(error)


def test_requests_have_the_same_urls() -> None:
    def urls() -> list[str]:
        found = []
        for encoding in (*ENCODINGS, "no-such-encoding"):
            for href in (*HREFS, *URLS):
                try:
                    found.append(Request(href, encoding=encoding).url)
                except Exception as error:
                    found.append(repr(error))
        return found

    theirs = urls()
    links.install()
    assert urls() == theirs


def test_joined_urls_are_the_same() -> None:
    chance = random.Random(9)
    links.install()
    bases: list[Any] = [*URLS, "http://x.test/..", "http://[", "ftp://x.test/a", "", "mailto:a", "http://x.test/a?b#c"]
    bases.append(b"http://x.test")
    hrefs = [*HREFS, *URLS, *("".join(chance.choices(HREFS, k=2)) for _ in range(1500)), b"/x", None]
    for base, href in itertools.product(bases, hrefs):
        assert outcome(links._urljoin, base, href) == outcome(urljoin, base, href), (base, href)


REQUEST_OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {}, {"meta": {"a": 1}}, {"cb_kwargs": {"a": 1}, "dont_filter": True, "priority": 3}, {"method": "post"},
    {"body": "x", "headers": {"A": "b"}, "cookies": {"a": "b"}, "flags": ["x"]}, {"encoding": "cp1251"},
    {"encoding": None}, {"errback": print}, {"errback": "no"}, {"no_such_option": 1}, {"priority": "no"},
)  # fmt: skip


class OwnResponse(HtmlResponse):
    """A response of a project."""

    def urljoin(self, url: str) -> str:
        return super().urljoin(url) + "#own"


@pytest.mark.parametrize("kind", [HtmlResponse, XmlResponse, TextResponse, OwnResponse])
def test_followed_links_are_the_same_requests(kind: type[TextResponse]) -> None:
    chance = random.Random(10)
    for _ in range(1500):
        base = f'<base href="{chance.choice(HREFS)}">' if chance.random() < 0.3 else ""
        body = f"<html><head>{base}</head><a href=/x>x</a></html>".encode()
        make = partial(kind, chance.choice(URLS), body=body, encoding=chance.choice(ENCODINGS))
        href, anchors = chance.choice(HREFS + URLS), outcome(make().xpath, "//a")
        target = chance.choice(
            (href, href, href, Link(href), anchors, outcome(lambda found: found[0], anchors), None, 1)
        )
        options = chance.choice(REQUEST_OPTIONS) | {"callback": chance.choice((None, print, "no"))}
        found: list[Any] = []
        for wanted in (True, False):
            links.install(wanted=wanted)
            response = make()
            requests = [outcome(response.follow, target, **options)]
            requests += outcome(lambda: list(response.follow_all([target], **options))) or []  # noqa: B023
            joined = outcome(response.urljoin, href)
            found.append((joined, [described(request) for request in requests]))
        assert found[0] == found[1], (response.url, body, target, options)


class Ruled(CrawlSpider):
    """A spider whose rules a test sets."""

    name = "ruled"

    def page(self, response: Any) -> None:
        """Return nothing."""

    def halve(self, found: list[Link]) -> list[Link]:
        return found[::2]

    def mark(self, request: Request, response: Any) -> Request | None:
        return None if "x" in request.url else request.replace(priority=1)


class OwnRequests(Ruled):
    """A spider that makes its requests itself."""

    def _build_request(self, rule_index: int, link: Link) -> Request:
        return Request(f"{link.url}?{rule_index}", callback=self.page)


@pytest.mark.parametrize("kind", [Ruled, OwnRequests])
def test_rules_make_the_same_requests(kind: type[Ruled]) -> None:
    chance = random.Random(11)
    choices = (
        lambda: Rule(LinkExtractor(), callback="page", follow=True),
        lambda: Rule(LinkExtractor(allow="x"), callback="page"),
        lambda: Rule(LinkExtractor(unique=False), process_links="halve", process_request="mark"),
        lambda: Rule(Own(), process_request=lambda request, response: request.replace(meta={"a": response.url})),
    )
    for _ in range(500):
        body, url = page(chance), chance.choice(URLS)
        spider = type(
            "Spider", (kind,), {"rules": [chance.choice(choices)() for _ in range(chance.choice((0, 1, 1, 2)))]}
        )()
        response_kind = chance.choice((HtmlResponse, HtmlResponse, XmlResponse))
        found = []
        for wanted in (True, False):
            links.install(wanted=wanted)
            made = outcome(lambda: list(spider._requests_to_follow(response_kind(url, body=body, encoding="utf-8"))))  # noqa: B023
            found.append([described(one) for one in made])
        assert found[0] == found[1], (url, body)


def test_a_method_that_a_project_has_replaced_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (LxmlLinkExtractor, "extract_links"), (TextResponse, "follow"), (CrawlSpider, "_requests_to_follow"),
    ):  # fmt: skip
        own = lambda *arguments: []  # noqa: E731
        monkeypatch.setattr(owner, name, own)
        links.install()
        assert vars(owner)[name] is own
        links.install(wanted=False)
        assert vars(owner)[name] is own
        monkeypatch.undo()


def outcome(call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Return the result of a call, or the text of its error."""
    try:
        return call(*arguments, **more)
    except Exception as error:
        return repr(error)


def described(request: Any) -> Any:
    """Return all attributes of a request. Others stay as they are."""
    if not isinstance(request, Request):
        return request
    return [getattr(request, name) for name in (*Request.attributes, "_meta", "_cb_kwargs", "_flags", "_headers")]


def test_a_response_whose_urls_a_project_joins_itself_is_followed_by_scrapy(monkeypatch: pytest.MonkeyPatch) -> None:
    links.install()
    response = HtmlResponse("http://x.test/", body=b"<html></html>", encoding="utf-8")
    assert response.follow("/x").url == "http://x.test/x"
    monkeypatch.setattr(TextResponse, "urljoin", lambda self, url: f"http://own.test{url}")
    assert response.follow("/x").url == "http://own.test/x"


@pytest.mark.parametrize(
    ("change", "links_expected"),
    [
        (lambda extractor: extractor.deny_extensions.add(".html"), 1),
        (lambda extractor: extractor.link_extractor.__dict__.update(process_attr=lambda value: None), 0),
        (lambda extractor: extractor.__dict__.update(_link_allowed=lambda link: False), 0),
        (lambda extractor: extractor.allow_res.clear(), 2),
    ],
)
def test_what_a_project_changes_on_an_extractor_counts(change: Callable[[Any], None], links_expected: int) -> None:
    links.install()
    extractor = LinkExtractor(allow="x")
    response = HtmlResponse("http://x.test/", body=b"<a href=/x>1</a><a href=/x.html>2</a>", encoding="utf-8")
    assert len(extractor.extract_links(response)) == 2
    change(extractor)
    assert len(extractor.extract_links(response)) == links_expected


def test_links_of_xhtml_are_found() -> None:
    links.install()
    body = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><a href="/x">t<b>u</b></a></html>'
    response = XmlResponse("http://x.test/", body=body, encoding="utf-8")
    assert [(link.url, link.text) for link in LinkExtractor().extract_links(response)] == [("http://x.test/x", "tu")]


@pytest.mark.parametrize(("value", "is_fast"), [(None, True), ("False", False), (True, True)])
def test_the_add_on_makes_extractors_fast_unless_a_project_does_not_want_it(
    value: Any, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy.settings import Settings

    before = LxmlLinkExtractor.extract_links
    settings = Settings({"GOSSAMER_FAST_LINKS": value} if value is not None else {})
    Addon().update_settings(settings)
    assert (LxmlLinkExtractor.extract_links is not before) == is_fast

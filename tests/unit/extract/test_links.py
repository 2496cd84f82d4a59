"""What a page links to, compared with a slow and plain implementation; hostile pages; the memory of hrefs."""

import resource
from html.parser import HTMLParser

import pytest
from ada_url import join_url
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.extract import document, memory
from gossamer.extract import links as links_module
from gossamer.extract.links import MAX_TEXT_LENGTH, LinkExtractor, Links
from gossamer.extract.memory import HrefMemory
from gossamer.policy.scope import LinkScope, compile_scope
from gossamer.policy.urls import fingerprint, host, registered_domain

PAGE = "http://www.a.test/dir/page.html?x=1"
SEED = 7


@pytest.fixture(autouse=True, params=["compiled", "reference"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the compiled extension, and without it."""
    if request.param == "reference":
        monkeypatch.setattr(links_module, "native", None)
        monkeypatch.setattr(memory, "native", None)
    elif memory.native is None:
        pytest.skip("gossamer_native is not installed: `make setup` builds it where cargo is")


def extractor(scope: LinkScope | None = None, **options: object) -> LinkExtractor:
    return LinkExtractor(scope or compile_scope(), seed=SEED, **options)  # type: ignore[arg-type]


def urls(html: str | bytes, page: str = PAGE, **options: object) -> list[str]:
    return extractor(**options).extract(html, page).urls


def adds_up(links: Links) -> bool:
    parallel = len(links.urls) == len(links.fingerprints) == len(links.domains) == len(links.hrefs)
    return parallel and links.found == len(links.urls) + links.repeats + sum(links.dropped.values())


def test_links_of_a_page() -> None:
    html = b"""<!DOCTYPE html><title>t</title><link rel="stylesheet" href=s.css><link rel="Next" href="two.html">
    <a href="/one">1</a> <a href=' three.html#part '>3</a> <a href="HTTP://b.test">b</a> <a name=x>no</a>
    <a href="mailto:x@y">m</a><a href="javascript:void(0)">j</a><a href="#top">top</a><a href="">self</a>
    <a href="/one#again">again</a><a href="?x=2">query</a><a href="http://[">bad</a><a href="//c.co.uk/&amp;">c</a>"""
    links = extractor().extract(html, PAGE)
    assert links.urls == [
        "http://www.a.test/dir/two.html",
        "http://www.a.test/one",
        "http://www.a.test/dir/three.html",
        "http://b.test/",
        "http://www.a.test/dir/page.html?x=2",
        "http://c.co.uk/&",
    ]
    assert links.fingerprints == [fingerprint(url, seed=SEED) for url in links.urls]
    assert links.domains == ["a.test", "a.test", "a.test", "b.test", "a.test", "c.co.uk"]
    assert links.dropped == {"scheme": 2, "bad_url": 1, "known": 1}
    assert (links.found, links.repeats, links.base) == (12, 2, PAGE)
    assert adds_up(links)


def test_with_sorted_queries_links_of_another_order_have_one_fingerprint_and_keep_their_spelling() -> None:
    html = "<a href='/x?b=2&a=1'>1</a><a href='/x?a=1&b=2'>2</a><a href='/x?a=1&b=3'>3</a><a href='/x'>4</a>"
    plain, sorted_ = extractor().extract(html, PAGE), extractor(sorted_queries=True).extract(html, PAGE)
    assert plain.urls == sorted_.urls
    assert len(set(plain.fingerprints)) == 4
    assert sorted_.fingerprints[0] == sorted_.fingerprints[1] == plain.fingerprints[1]
    assert sorted_.fingerprints[2:] == plain.fingerprints[2:]


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<a href='a\n b\t.html'>", ["http://www.a.test/dir/a%20b.html"]),
        ("<a href=' \t\r\n/x '>", ["http://www.a.test/x"]),
        ("<a href='\\x\\y'>", ["http://www.a.test/x/y"]),
        ("<a href='ht\ntp://b.test/'>", ["http://b.test/"]),
        ("<a href='http:other'>", ["http://www.a.test/dir/other"]),
        ("<a href='https:other'>", ["https://other/"]),
        ("<A HREF=UPPER>", ["http://www.a.test/dir/UPPER"]),
        ("<a href=one><a href=two>", ["http://www.a.test/dir/one", "http://www.a.test/dir/two"]),
        ("<!-- <a href=x> --><script>'<a href=y>'</script><style><a href=w></style>", []),
        ("<textarea><a href=x></textarea><title><a href=y></title>", []),
        ("<noscript><a href=x></noscript>", ["http://www.a.test/dir/x"]),
        ("<map><area href=x><a href=y></a><area href=z></map>", [f"http://www.a.test/dir/{c}" for c in "xyz"]),
        ("<svg><a href=x></a></svg>", ["http://www.a.test/dir/x"]),
        ("<svg><a xlink:href=x></a></svg>", ["http://www.a.test/dir/x"]),
        ("<a href='x>y'>", ["http://www.a.test/dir/x%3Ey"]),
        ("<a title='>' href=x>", ["http://www.a.test/dir/x"]),
        ("<a href=x", []),
        ("<a href=x href=y>", ["http://www.a.test/dir/x"]),
        ("<link rel='prev next' href=n><link rel=nextone href=m>", ["http://www.a.test/dir/n"]),
        ("", []),
        ("\0\0<a href='x\0y'>", ["http://www.a.test/dir/x%EF%BF%BDy"]),
    ],
)
def test_spellings(html: str, wanted: list[str]) -> None:
    assert urls(html) == wanted
    assert urls(html.encode()) == wanted


@pytest.mark.parametrize(
    ("base", "wanted"),
    [
        ("<base href='/other/'>", "http://www.a.test/other/x"),
        ("<base target=_top><base href='//b.test/q'><base href='/third/'>", "http://b.test/x"),
        ("<base href='data:,x'>", "http://www.a.test/dir/x"),
        ("<base href='http://['>", "http://www.a.test/dir/x"),
        ("<base href=''>", "http://www.a.test/dir/x"),
        ("<base href='http://me:secret@b.test/'>", "http://b.test/x"),
    ],
)
def test_base(base: str, wanted: str) -> None:
    assert urls(f"<head>{base}</head><a href=x>") == [wanted]


@pytest.mark.parametrize(
    "drawing",
    ["<svg><base href=/no/></svg>", "<svg><base href=/no/ /><g></svg>", "<math><base href=/no/></math>",
     "<svg><a><base href=/no/></a></svg>", "<math><annotation-xml><base href=/no/></annotation-xml></math>"],
)  # fmt: skip
def test_the_base_of_a_drawing_is_not_that_of_the_page(drawing: str) -> None:
    assert urls(f"{drawing}<a href=x>") == ["http://www.a.test/dir/x"]
    assert urls(f"{drawing}<base href=/b/><a href=x>") == ["http://www.a.test/b/x"]


@pytest.mark.parametrize(
    "html",
    [
        "<svg><foreignObject><base href=/b/></foreignObject></svg>",
        "<svg><desc><base href=/b/></desc></svg>",
        "<math><mi><base href=/b/></mi></math>",
        "<math><annotation-xml encoding=text/html><base href=/b/></annotation-xml></math>",
        "<noframes><base href=/no/></noframes><base href=/b/>",
    ],
)
def test_the_base_of_html_in_a_drawing_is_that_of_the_page(html: str) -> None:
    assert urls(f"{html}<a href=x>") == ["http://www.a.test/b/x"]


def test_a_link_element_in_a_drawing_is_none() -> None:
    assert urls("<svg><link rel=next href=no /><area href=no /></svg><link rel=next href=x>") == [
        "http://www.a.test/dir/x"
    ]


def test_frames_are_followed_as_links() -> None:
    page = (
        "<a href=1>one</a><iframe src=2 title='two'><a href=no>no</a></iframe><noframes><a href=3>three</a></noframes>"
        "<iframe srcdoc='&lt;base href=/no/&gt;&lt;a href=4&gt;four&lt;/a&gt;'></iframe><area href=5 alt=five>"
        "<iframe src=about:blank></iframe><iframe src=2></iframe>"
    )
    links = extractor(texts=True).extract(page, PAGE)
    assert links.urls == [f"http://www.a.test/dir/{number}" for number in range(1, 6)]
    assert links.texts == [*zip(links.urls, ("one", "two", "three", "four", "five"), strict=True), (links.urls[1], "")]
    assert (links.found, links.repeats, links.dropped) == (7, 1, {"scheme": 1})
    assert extractor().extract(page + "<meta name=robots content=nofollow>", PAGE).dropped == {"nofollow": 7}


def test_a_frameset_is_followed() -> None:
    page = (
        "<html><head><base href=/b/></head><frameset cols='1,2'><frame src=menu title=Menu><frameset><frame src=main>"
        "</frameset><noframes><body><a href=plain>Plain</a></body></noframes></frameset></html>"
    )
    links = extractor(texts=True).extract(page, PAGE)
    assert links.texts == [
        (f"http://www.a.test/b/{name}", text) for name, text in (("menu", "Menu"), ("main", ""), ("plain", "Plain"))
    ]
    assert links.urls == [url for url, _ in links.texts]


def test_with_a_base_the_empty_href_is_the_base() -> None:
    links = extractor().extract("<base href='/other/'><a href='#x'><a href='/dir/page.html?x=1'>", PAGE)
    assert links.urls == ["http://www.a.test/other/"]
    assert links.dropped == {"known": 1}


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;url=/x", "/x"),
        ("5; URL = '/x'y", "/x"),
        ("0,/x", "/x"),
        ("1.5 /x", "/x"),
        (' 0 ; url="/x', "/x"),
        ("0", None),
        ("", None),
        ("url=/x", None),
        ("0;url=", None),
        ("0;javascript:x", None),
    ],
)
def test_refresh(content: str, target: str | None) -> None:
    html = f"<meta http-equiv=Refresh content='{content}'>" if "'" not in content else ""
    html = html or f'<meta http-equiv=Refresh content="{content}">'
    assert urls(html) == ([] if target is None else ["http://www.a.test/x"])


def test_nofollow_is_honoured_unless_told_otherwise() -> None:
    html = "<a href=x rel='external NoFollow'><a href=y rel=nofollower><a href=z>"
    links = extractor().extract(html, PAGE)
    assert [url[-1] for url in links.urls] == ["y", "z"]
    assert links.dropped == {"nofollow": 1}
    assert adds_up(links)
    assert len(urls(html, follow_nofollow=True)) == 3


@pytest.mark.parametrize(
    ("content", "nofollow", "noindex"),
    [
        ("nofollow", True, False),
        ("NOINDEX, NoFollow", True, True),
        ("none", True, True),
        ("index,follow", False, False),
    ],
)
def test_robots_meta(content: str, nofollow: bool, noindex: bool) -> None:
    html = f"<meta name=Robots content='{content}'><a href=x>"
    links = extractor().extract(html, PAGE)
    assert (links.nofollow, links.noindex) == (nofollow, noindex)
    assert links.dropped == ({"nofollow": 1} if nofollow else {})
    assert adds_up(links)
    followed = extractor(follow_nofollow=True).extract(html, PAGE)
    assert (followed.nofollow, len(followed.urls)) == (nofollow, 1)


def test_scope_reasons_are_counted() -> None:
    scope = compile_scope(allowed_domains=["a.test"], deny_regex=["/no/"])
    links = extractor(scope).extract("<a href=//b.test/><a href=x.pdf><a href=/no/><a href=/yes>", PAGE)
    assert links.urls == ["http://www.a.test/yes"]
    assert links.dropped == {"offsite": 1, "extension": 1, "deny_regex": 1}


def test_texts_are_of_all_links() -> None:
    scope = compile_scope(allowed_domains=["a.test"])
    html = f"<a href=x#f> a <b>b</b>\n c </a><a href=//b.test/>off</a><a href=x>{'y ' * 9000}</a><area href=z alt=Alt>"
    links = extractor(scope, texts=True).extract(html + "<a href=mailto:x>m</a>", PAGE)
    assert links.texts is not None
    assert links.texts[0] == ("http://www.a.test/dir/x", "a b c")
    assert links.texts[1] == ("http://b.test/", "off")
    assert len(links.texts[2][1]) <= MAX_TEXT_LENGTH
    assert links.texts[3] == ("http://www.a.test/dir/z", "Alt")
    assert len(links.texts) == 4
    assert extractor().extract(html, PAGE).texts is None


# --- encodings --------------------------------------------------------------------------------------------------------


def test_queries_are_encoded_in_the_documents_encoding() -> None:
    """As browsers send them: paths in UTF-8, queries in the page's own encoding."""
    html = "<a href='/é?q=é€'>x".encode("cp1252")
    wanted = "http://www.a.test/%C3%A9?q=%E9%80"
    assert extractor().extract(html, PAGE, encoding="cp1252").urls == [wanted]
    assert extractor().extract(html.decode("cp1252"), PAGE, encoding="cp1252").urls == [wanted]
    lacking = "<a href='?q=\N{SNOWMAN}'>x"
    assert extractor().extract(lacking, PAGE, encoding="cp1252").urls == [f"{PAGE[:-4]}?q=%26%239731%3B"]
    assert extractor().extract(lacking, PAGE).urls == [f"{PAGE[:-4]}?q=%E2%98%83"]


@pytest.mark.parametrize("encoding", [None, "utf-8", "cp1252", "utf-16-le", "cp932", "no such codec", "base64", ""])
def test_a_wrong_encoding_never_raises(encoding: str | None) -> None:
    links = extractor().extract(b"\xff\xfe\x80<a href='/x\xe9?\xff'>\xc3", PAGE, encoding=encoding)
    assert adds_up(links)


# --- the memory -------------------------------------------------------------------------------------------------------


def test_what_was_confirmed_is_known_on_the_next_page() -> None:
    html = "<a href=/nav><a href=rel><a href=http://b.test/><a href=?q=1>"
    finder = extractor()
    first = finder.extract(html, PAGE)
    assert len(first.urls) == 4
    # Not remembered before the frontier confirmed: a crash in between must not lose links.
    assert finder.extract(html, PAGE).urls == first.urls
    finder.remember(first)
    finder.remember(first)
    assert finder.extract(html, PAGE).urls == [f"{PAGE[:-4]}?q=1"]
    # In another directory the relative one means another page, on another host the absolute one too.
    assert finder.extract(html, "http://www.a.test/else/").urls == [
        "http://www.a.test/else/rel",
        "http://www.a.test/else/?q=1",
    ]
    assert "http://c.test/nav" in finder.extract(html, "http://c.test/").urls
    assert "https://www.a.test/nav" in finder.extract(html, "https://www.a.test/").urls


def test_what_means_the_same_everywhere_is_known_on_every_site() -> None:
    finder = extractor()
    html = "<a href=http://b.test/x><a href=HTTPS://c.test/><a href=//d.test/y><a href=/on-site>"
    finder.remember(finder.extract(html, "http://www.a.test/"))
    assert finder.extract(html, "http://e.test/deep/er?q").urls == ["http://e.test/on-site"]
    # Behind another scheme `//` means other URLs; so might the rest, which is found out anew.
    assert "https://d.test/y" in finder.extract(html, "https://e.test/").urls


def test_links_to_the_whole_world_leave_room_for_the_sites_own() -> None:
    memory = HrefMemory(max_bytes=20_000)
    finder = extractor(memory=memory)
    own = "".join(f"<a href=/{number}>" for number in range(10))
    finder.remember(finder.extract(own, PAGE))
    for page in range(20):
        world = "".join(f"<a href=http://{page}-{number}.test/>" for number in range(40))
        finder.remember(finder.extract(own + world, PAGE))
        assert memory.bytes <= 13_000
        assert finder.extract(own, PAGE).urls == []


def test_what_a_cap_dropped_is_offered_again() -> None:
    finder = extractor()
    first = finder.extract("<a href=/a><a href=/b><a href=/c>", PAGE)
    finder.remember(first, except_positions=[1])
    second = finder.extract("<a href=/a><a href=/b><a href=/c>", PAGE)
    assert [url[-1] for url in second.urls] == ["b"]
    assert second.dropped == {"known": 2}


def test_refusals_are_remembered_with_their_reason() -> None:
    memory = HrefMemory()
    finder = extractor(compile_scope(allowed_domains=["a.test"]), memory=memory)
    html = "<a href=http://b.test/><a href=/x.pdf><a href=javascript:x><a href=http://[>"
    first = finder.extract(html, PAGE)
    assert len(memory) == 4
    assert (
        finder.extract(html, PAGE).dropped == first.dropped == {"offsite": 1, "extension": 1, "scheme": 1, "bad_url": 1}
    )


def test_the_memory_is_bounded_and_keeps_what_is_used() -> None:
    memory = HrefMemory(max_bytes=150_000)
    finder = extractor(memory=memory)
    finder.remember(finder.extract("<a href=/nav>", "http://www.a.test/"))
    for page in range(100):
        html = "<a href=/nav>" + "".join(f"<a href=r{number}>" for number in range(50))
        links = finder.extract(html, f"http://www.a.test/{page}/")
        assert links.dropped == {"known": 1}
        finder.remember(links)
        assert memory.bytes <= 150_000
    finder.remember(finder.extract("".join(f"<a href=/{number}>" for number in range(5000)), PAGE))
    assert memory.bytes <= 150_000
    finder.remember(finder.extract("<a href=/" + "x" * 5000 + ">", PAGE))
    assert memory.bytes <= 150_000


# --- against a plain implementation -----------------------------------------------------------------------------------

SPELLINGS = [
    "/",
    "/a",
    "/a#x",
    "a",
    "./a",
    "../a",
    "?q",
    "#",
    "//b.test/x",
    "http://b.test",
    "http:x",
    "HTTPS://b.test/y",
    "x.pdf",
    "mailto:x",
    "javascript:x",
    "http://[",
    "http://u:p@www.a.test/a",
    "\\a",
    "a?b#c?d",
    "/a/../b",
    "%2e%2e/x",
    "é",
]
HREFS = st.one_of(
    st.sampled_from([*SPELLINGS, "", "/\u2028", "a b", "a #b"]), st.text(alphabet="/?#:.@a \\%é&;", max_size=8)
)
PAGES = st.lists(st.lists(HREFS, max_size=12), min_size=1, max_size=6)
PLACES = st.sampled_from(
    [PAGE, "http://www.a.test/", "http://www.a.test/dir/b", "https://www.a.test/dir/", "http://b.test/x/y?z"]
)


class Plain(HTMLParser):
    """Hrefs of anchors, by the standard library's parser."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs.append(dict(attrs)["href"] or "")


def plainly(html: str, page: str, scope: LinkScope, seen: set[str]) -> list[str]:
    """In-scope targets that are new to the whole crawl, in order, the long way round."""
    new: list[str] = []
    for href in Plain(html).hrefs:
        try:
            url = join_url(page, href).partition("#")[0]
        except ValueError:
            continue
        if not url.startswith(("http://", "https://")):
            continue
        scheme, _, rest = url.partition("//")
        authority, slash, path = rest.partition("/")
        url = f"{scheme}//{authority.rpartition('@')[2]}{slash}{path}"
        if scope.refusal(url) is None and url not in seen and url not in new:
            new.append(url)
    return new


@settings(max_examples=200, deadline=None)
@given(PAGES, st.lists(PLACES, min_size=6, max_size=6))
def test_a_crawl_finds_what_a_plain_implementation_finds(pages: list[list[str]], places: list[str]) -> None:
    """Page after page, with a frontier that remembers: nothing is lost to the memory, nothing is invented."""
    scope = compile_scope(allowed_domains=["a.test", "b.test"])
    finder, plain_seen, seen = extractor(scope), set(places), set(places)
    for hrefs, page in zip(pages, places, strict=False):
        quoted = [href.replace("&", "&amp;").replace('"', "&quot;") for href in hrefs]
        html = "<body>" + "".join(f'<p><a class=c href="{href}">t</a>' for href in quoted)
        new = plainly(html, page, scope, plain_seen)
        plain_seen.update(new)
        links = finder.extract(html, page)
        assert [url for url in links.urls if url not in seen] == new
        assert links.fingerprints == [fingerprint(url, seed=SEED) for url in links.urls]
        assert links.domains == [registered_domain(host(url)) for url in links.urls]
        assert links.found == len(hrefs)
        assert adds_up(links)
        seen.update(links.urls)
        finder.remember(links)


@settings(deadline=None)
@given(
    st.one_of(st.binary(max_size=400), st.text(max_size=400)), st.sampled_from([None, "cp1252", "cp932", "utf-16-le"])
)
def test_nothing_is_ever_raised(html: bytes | str, encoding: str | None) -> None:
    assert adds_up(extractor(texts=True).extract(html, PAGE, encoding=encoding))


# --- hostile pages ----------------------------------------------------------------------------------------------------

N = 100_000
HOSTILE = {
    "nested divs": b"<div>" * N,
    "nested spans with stray end tags": b"<span>" * N + b"</i>" * N,
    "nested formatting before paragraphs": b"<p>" + b"".join(b"<b id=%d>" % i for i in range(3000)) + b"<p>x" * 3000,
    "a short one of these": b"<p>" + b"".join(b"<b id=%d>" % i for i in range(900)) + b"<p>x" * 900,
    "nested lists": b"<ul><li>" * N,
    "nested definition lists": b"<dl><dd><dl><dt>" * (N // 2),
    "nested svg": b"<svg>" * N,
    "nested tables": b"<table><tr><td>" * N,
    "many attributes": b"<a " + b"".join(b" a%d=1" % i for i in range(N)) + b" href=x>",
    "open comment": b"<!--" * N,
    "open scripts": b"<script>" * N,
    "open quotes": b"<a href='" * N,
    "only brackets": b"<" * N,
    "entities": b"<a href='" + b"&amp" * N + b"'>",
    "misnested": b"<b><div>" * N + b"</b>" * N,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_stay_within_bounds(name: str) -> None:
    """Let in as they are, some cost a parser minutes or gigabytes; the test run's own time limit would show it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    links = extractor(texts=True).extract(HOSTILE[name] + b"<a href=/end>", PAGE)
    assert adds_up(links)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500 * 1024  # KiB


@pytest.mark.parametrize(
    "name", ["nested divs", "nested formatting before paragraphs", "nested lists", "nested tables"]
)
def test_links_of_hostile_pages_are_still_found(name: str) -> None:
    links = extractor().extract(HOSTILE[name] + b"</p><a class=x title='>' href=/end>end</a>", PAGE)
    assert links.urls == ["http://www.a.test/end"]


def test_what_is_parsed_in_pieces_is_one_page() -> None:
    """Its base counts for all of it, what asks not to follow too, and texts belong to their links."""
    rows = "".join(f"<p><a href={number}>at {number}</a>" for number in range(20_000))
    links = extractor(texts=True).extract(f"<base href=/b/>{rows}<a href=1>again</a><link rel=next href=two>", PAGE)
    assert links.urls == ["http://www.a.test/b/two", *(f"http://www.a.test/b/{number}" for number in range(20_000))]
    assert links.repeats == 1
    assert links.texts == [
        *((f"http://www.a.test/b/{number}", f"at {number}") for number in range(20_000)),
        ("http://www.a.test/b/1", "again"),
    ]
    assert extractor().extract(rows + "<meta name=robots content=nofollow>", PAGE).dropped == {"nofollow": 20_000}


def test_a_hundred_thousand_links() -> None:
    html = b"".join(b"<a href=/%d>x</a>" % number for number in range(N))
    links = extractor().extract(html, PAGE)
    assert len(links.urls) == N


def test_long_page_url_with_many_links_has_a_bound() -> None:
    """100,000 short hrefs in a directory with a name of 8,000 characters would be 800 MB of URLs."""
    page = "http://www.a.test/" + "x" * 8000 + "/"
    html = b"".join(b"<a href=%d>x</a>" % number for number in range(20_000))
    links = extractor(texts=True).extract(html, page)
    assert adds_up(links)
    assert links.dropped["budget"] > 0
    assert sum(map(len, links.urls)) <= 16 * 1024 * 1024


@pytest.mark.parametrize("encoding", [None, "cp1252", "utf-16-le"])
@pytest.mark.parametrize("filler", ["x", "<p>é</p>", "<div>", "<!-- -->", "<script>'<a href=no>'</script>"])
def test_links_are_read_to_the_end_of_a_long_page(
    encoding: str | None, filler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if filler != "x":  # the others take long
        monkeypatch.setattr(document, "MAX_PARSED_BYTES", 300_000)
    long = filler * (document.MAX_PARSED_BYTES // len(filler) + 1)
    html = f"<a href=/start>one</a>{long}<a href=/middle>two</a>{long}<base href=/b/><a class=x href=end>three</a>"
    for text in (html, html.encode(encoding or "utf-8")):
        links = extractor(texts=True).extract(text, PAGE, encoding=encoding)
        assert links.urls == [f"http://www.a.test/{path}" for path in ("start", "middle", "b/end")]
        assert [text for _, text in links.texts or ()] == ["one", "two", "three"]
    refused = extractor().extract(html + "<meta name=robots content=nofollow>", PAGE)
    assert (refused.urls, refused.dropped) == ([], {"nofollow": 3})


def test_parameters_to_leave_out_make_links_equal() -> None:
    scope = compile_scope(drop_parameters=["ref", "utm_*"], deny_regex=["never"])
    finder = extractor(scope)
    html = (
        '<a href="/p/1?ref=list">1</a><a href="/p/1">1</a><a href="/p/2?utm_source=x&amp;page=2">2</a>'
        '<a href="?ref=top">self</a><a href="/p/2?page=2&amp;ref=b">2</a><a href="/p/3?a=ref">3</a>'
        '<a href="/p/4?ref=ü">4</a>'
    )
    found = finder.extract(html, "http://www.a.test/?ref=home")
    assert found.urls == [
        "http://www.a.test/p/1",
        "http://www.a.test/p/2?page=2",
        "http://www.a.test/p/3?a=ref",
        "http://www.a.test/p/4",
    ]
    assert found.fingerprints == [fingerprint(url, seed=SEED) for url in found.urls]
    assert found.repeats == 3
    assert adds_up(found)
    finder.remember(found)
    again = finder.extract(html, "http://www.a.test/")
    assert [url for url in again.urls if url not in found.urls] == []
    assert adds_up(again)

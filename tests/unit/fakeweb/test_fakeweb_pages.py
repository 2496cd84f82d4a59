"""The HTML says what the shape says, in the size asked for."""

import gzip
import json
import re
from urllib.parse import urldefrag, urljoin
from urllib.robotparser import RobotFileParser

import ada_url
import pytest
from selectolax.lexbor import LexborHTMLParser

from gossamer.fakeweb.answer import Answer, Ending, html
from gossamer.fakeweb.answers import Answers
from gossamer.fakeweb.site import Fate, Site, SitePage
from gossamer.fakeweb.spec import Robots, Sitemap, WebSpec
from gossamer_fakeweb.expected import graph


def hrefs(body: bytes) -> list[str]:
    return [node.attributes["href"] or "" for node in LexborHTMLParser(body).css("a[href]")]


def links(body: bytes, base: str) -> list[str]:
    return [urldefrag(urljoin(base, href)).url for href in hrefs(body)]


def fetch(answers: Answers, url: str) -> Answer:
    _, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return answers.answer(authority.partition(":")[0], slash + path)


def test_a_page_is_the_same_every_time_and_differs_from_others() -> None:
    one, same = (Answers(Site(WebSpec(pages=50), port=8080)) for _ in range(2))
    pages = [one.answer("site1.test", f"/p/{number}").body for number in range(1, 50)]
    assert pages == [same.answer("site1.test", f"/p/{number}").body for number in range(1, 50)]
    assert len(set(pages)) == 49


@pytest.mark.parametrize("page_bytes", [6_000, 12_000, 20_001, 138_000, 600_000])
def test_pages_have_the_size_asked_for(page_bytes: int) -> None:
    answers = Answers(Site(WebSpec(pages=1000, page_bytes=page_bytes)))
    for number in range(1, 40):
        body = answers.answer("site0.test", f"/p/{number}").body
        assert len(body) == page_bytes
        body.decode("utf-8")


def test_a_page_is_larger_where_its_links_need_more() -> None:
    answers = Answers(Site(WebSpec(page_bytes=0, out_degree=300)))
    assert len(hrefs(answers.answer("site0.test", "/").body)) == 300


@pytest.mark.parametrize("port", [80, 8080])
@pytest.mark.parametrize("subdomains", [1, 2])
def test_the_links_in_the_html_are_the_outlinks_in_their_order(port: int, subdomains: int) -> None:
    spec = WebSpec(hosts=4, pages=60, cross_host_share=0.2, subdomains=subdomains)
    site = Site(spec, port=port)
    answers = Answers(site)
    for host in range(spec.hosts):
        for number in range(spec.pages):
            body = fetch(answers, site.url(host, number)).body
            outlinks = [site.url(*link) for link in site.outlinks(SitePage(host, number))]
            assert links(body, site.url(host, number)) == outlinks
            assert [
                ada_url.join_url(site.url(host, number), href).partition("#")[0] for href in hrefs(body)
            ] == outlinks


def test_links_are_spelled_in_many_ways() -> None:
    site = Site(WebSpec(pages=500))
    answers = Answers(site)
    spelled = {re.sub(r"\d+", "0", href) for n in range(500) for href in hrefs(fetch(answers, site.url(0, n)).body)}
    assert spelled >= {"/", "/p/0", "0", "p/0", "../p/0", "/p/0#s0", "//site0.test/p/0", "http://site0.test/p/0"}


def test_following_the_html_finds_the_whole_graph() -> None:
    site = Site(WebSpec(hosts=3, pages=150, out_degree=6, cross_host_share=0.1))
    answers = Answers(site)
    found = {site.url(0)}
    waiting = [site.url(0)]
    while waiting:
        url = waiting.pop()
        answer = fetch(answers, url)
        assert answer.status == 200
        for link in links(answer.body, url):
            if link not in found:
                found.add(link)
                waiting.append(link)
    assert found == graph(site, seeds=[0])


def test_scripts_and_comments_hold_links_that_are_none() -> None:
    body = Answers(Site(WebSpec())).answer("site0.test", "/").body
    assert body.count(b"<a href") == 20 + 2


def test_a_moved_page_still_links_to_where_it_did() -> None:
    site = Site(WebSpec(hosts=3, pages=100, redirect_same=0.3, redirect_cross=0.3, redirect_chain=2))
    answers = Answers(site)
    moved = [SitePage(0, number) for number in range(100) if site.hops(SitePage(0, number))]
    assert {site.fate(page) for page in moved} == {Fate.REDIRECT_SAME, Fate.REDIRECT_CROSS}
    for page in moved:
        url = site.url(*page)
        for _ in range(2):
            answer = fetch(answers, url)
            assert answer.status in (301, 302, 303, 307, 308)
            url = urljoin(url, dict(answer.headers)["Location"])
        answer = fetch(answers, url)
        assert answer.status == 200
        assert links(answer.body, url) == [site.url(*link) for link in site.outlinks(page)]


def test_the_cache_of_pages_is_bounded_and_changes_nothing() -> None:
    site = Site(WebSpec(pages=200))
    small, large = Answers(site, cache_bytes=50_000), Answers(site)
    for number in [*range(200), *range(200)]:
        path = site.path(number)
        assert small.answer("site0.test", path) == large.answer("site0.test", path)
    assert small.cached_bytes <= 50_000
    assert large.cached_bytes == 200 * 12_000


@pytest.mark.parametrize(
    ("fate", "status", "ending"),
    [
        (Fate.REFUSE, 200, Ending.REFUSE),
        (Fate.RESET, 200, Ending.RESET),
        (Fate.STALL, 200, Ending.STALL),
        (Fate.NOT_FOUND, 404, Ending.WHOLE),
        (Fate.RATE_LIMITED, 429, Ending.WHOLE),
        (Fate.SERVER_ERROR, 500, Ending.WHOLE),
        (Fate.UNAVAILABLE, 503, Ending.WHOLE),
    ],
)
@pytest.mark.parametrize("once", [False, True])
def test_failing_pages_fail_always_or_once(fate: Fate, status: int, ending: Ending, once: bool) -> None:
    spec = WebSpec(errors_once=once, retry_after_seconds=9, **{fate.value: 1.0})  # type: ignore[arg-type]
    answers = Answers(Site(spec))
    heals = once and fate is not Fate.NOT_FOUND
    for _ in range(2):
        answer = answers.answer("site0.test", "/p/5")
        assert (answer.status, answer.ending) == (status, ending)
        assert ("Retry-After", "9") in answer.headers or status not in (429, 503)
        for _ in range(2):
            again = answers.answer("site0.test", "/p/5")
            assert (again.status, again.ending) == ((200, Ending.WHOLE) if heals else (status, ending))
        answers.reset()


def test_robots_txt_by_variant() -> None:
    site = Site(WebSpec(hosts=6, robots=tuple(Robots), crawl_delay_seconds=2.5, robots_slow_ms=30))
    answers = Answers(site)
    read = {site.robots(host): fetch(answers, site.base(host) + "/robots.txt") for host in range(6)}
    assert {variant: answer.status for variant, answer in read.items() if answer.status != 200} == {
        Robots.NONE: 404,
        Robots.BROKEN: 500,
    }
    assert {variant for variant, answer in read.items() if answer.delay_ms} == {Robots.SLOW}
    assert b"Crawl-delay: 2.5\n" in read[Robots.CRAWL_DELAY].body
    parser = RobotFileParser()
    parser.parse(read[Robots.DISALLOW].body.decode().splitlines())
    assert [parser.can_fetch("x", path) for path in ("/", "/p/1", "/p/7", "/p/77")] == [True, True, False, False]


@pytest.mark.parametrize("kind", [Sitemap.PLAIN, Sitemap.GZ, Sitemap.INDEX])
def test_sitemaps_list_every_page(kind: Sitemap) -> None:
    site = Site(WebSpec(hosts=2, pages=2500, sitemap=kind, robots=(Robots.ALLOW,)), port=8080)
    answers = Answers(site)
    named = re.findall(r"^Sitemap: (.+)$", fetch(answers, site.base(1) + "/robots.txt").body.decode(), re.M)
    assert len(named) == 1
    content = fetch(answers, named[0]).body
    if kind is Sitemap.GZ:
        content = gzip.decompress(content)
    if kind is Sitemap.INDEX:
        parts = re.findall(r"<sitemap><loc>(.+?)</loc></sitemap>", content.decode())
        assert len(parts) == 3
        assert fetch(answers, site.base(1) + "/sitemap-3.xml").status == 404
        content = b"".join(fetch(answers, part).body for part in parts)
    assert re.findall(r"<url><loc>(.+?)</loc></url>", content.decode()) == [site.url(1, n) for n in range(2500)]


def test_handmade_pages_come_before_generated_ones_and_in_turn() -> None:
    first, second = html("one"), html("two")
    answers = Answers(Site(WebSpec()), {("site0.test", "/"): first, ("other.test", "/x?y=1"): (first, second)})
    assert answers.answer("site0.test", "/") == first
    assert answers.answer("site0.test", "/p/1").status == 200
    assert [answers.answer("other.test", "/x?y=1").body for _ in range(3)] == [b"one", b"two", b"two"]
    assert answers.answer("other.test", "/x").status == 404
    assert answers.answer("unknown.test", "/").status == 421
    answers.reset()
    assert answers.answer("other.test", "/x?y=1").body == b"one"
    assert answers.mounted_hosts() == ["other.test"]
    with pytest.raises(ValueError, match="needs an answer"):
        answers.mount("other.test", "/", ())


def test_a_page_that_a_script_writes_shows_no_link_and_is_the_same_page() -> None:
    plain, written = (
        fetch(Answers(Site(WebSpec(scripts=scripts))), "http://site1.test/p/3").body for scripts in (False, True)
    )
    assert hrefs(written) == []
    found = re.search(rb"innerHTML = (\".*\")</script>", written)
    assert found is not None
    text = json.loads(found[1].replace(b"\\!", b"!"))
    assert text.encode() == plain.partition(b"\n")[2]

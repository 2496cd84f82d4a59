"""What the options of a crawl do, on webs made for each question."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, plain, redirect, serve
from gossamer.fakeweb.server import Server as Web
from gossamer_fakeweb import fetches
from tests.servers.crawling import Crawled, crawl

ONE = WebSpec(hosts=1, pages=1)


def page(*links: str, more: str = "") -> Answer:
    return html("<title>x</title>" + more + "".join(f'<a href="{link}">{link}</a> ' for link in links))


def paths(crawled: Crawled, *, success: bool = True) -> set[str]:
    """Host and path of the records, without the port."""
    return {_short(record.url) for record in crawled.pages if record.success is success}


def _short(url: str) -> str:
    host, _, path = url.partition("//")[2].partition("/")
    return f"{host.partition(':')[0]}/{path}"


def asked(web: Web) -> set[str]:
    return {f"{record.host}{record.path}" for record in web.log() if record.path != "/robots.txt"}


async def crawl_mounts(
    folder: Path, mounts: Mapping[tuple[str, str], Answer], *seeds: str, **options: object
) -> tuple[Crawled, Web]:
    """Crawl a.test (or other seeds) of a web made by hand."""
    async with serve(ONE, mounts=mounts) as web:
        urls = [
            f"http://{seed.partition('/')[0]}:{web.port}/{seed.partition('/')[2]}" for seed in seeds or ("a.test/",)
        ]
        return await crawl(folder, urls, ["*:127.0.0.1"], **options), web


CHAIN = {("a.test", f"/{n}"): page(f"/{n + 1}") for n in range(6)} | {("a.test", "/"): page("/1")}


@pytest.mark.parametrize(("depth", "last"), [(0, 0), (1, 1), (3, 3)])
async def test_depth(depth: int, last: int, tmp_path: Path) -> None:
    crawled, _ = await crawl_mounts(tmp_path, CHAIN, crawl__depth=depth)
    assert paths(crawled) == {"a.test/"} | {f"a.test/{n}" for n in range(1, last + 1)}
    assert {record.url[-1]: record.depth for record in crawled.pages if record.url[-1] != "/"} == {
        str(n): n for n in range(1, last + 1)
    }


SCOPES = {
    ("a.test", "/d/"): page("/d/in", "/up", "http://sub.a.test:{port}/", "http://b.test:{port}/", "/d/x.zip"),
    ("a.test", "/d/in"): page(),
    ("a.test", "/up"): page(),
    ("a.test", "/d/x.zip"): page(),
    ("sub.a.test", "/"): page(),
    ("b.test", "/"): page(),
}


@pytest.mark.parametrize(
    ("scope", "more"),
    [
        ("domain", {"a.test/up", "sub.a.test/"}),
        ("host", {"a.test/up"}),
        ("path", set()),
        ("any", {"a.test/up", "sub.a.test/", "b.test/"}),
    ],
)
async def test_scope(scope: str, more: set[str], tmp_path: Path) -> None:
    async with serve(ONE) as web:
        for (host, path), answer in SCOPES.items():
            web.mount(host, path, html(answer.body.replace(b"{port}", str(web.port).encode())))
        crawled = await crawl(tmp_path, [f"http://a.test:{web.port}/d/"], ["*:127.0.0.1"], crawl__scope=scope)
        assert paths(crawled) == {"a.test/d/", "a.test/d/in"} | more
        assert asked(web) == paths(crawled)
        assert crawled.summary.info is not None
        assert crawled.summary.info.total().links_dropped["extension"] == 1


async def test_allow_and_deny_apply_to_links_and_not_to_seeds(tmp_path: Path) -> None:
    mounts = {("a.test", "/"): page("/keep/1", "/keep/secret", "/other")}
    mounts |= {("a.test", path): page() for path in ("/keep/1", "/keep/secret", "/other")}
    crawled, _ = await crawl_mounts(tmp_path, mounts, crawl__allow=("/keep/",), crawl__deny=("secret",))
    assert paths(crawled) == {"a.test/", "a.test/keep/1"}


async def test_allow_and_deny_are_written_as_a_browser_shows_the_url(tmp_path: Path) -> None:
    """The host begins with an expression for paths, too."""
    links = ["/каталог/1", "/каталог/секрет", "/with space/1", "/shop/1", "/other/1"]
    mounts = {("shop.test", "/"): page(*links)}
    sent = ["/%D0%BA%D0%B0%D1%82%D0%B0%D0%BB%D0%BE%D0%B3/1", "/with%20space/1", "/other/1", "/shop/1"]
    mounts |= {("shop.test", path): page() for path in sent}
    crawled, _ = await crawl_mounts(tmp_path, mounts, "shop.test/", crawl__deny=("секрет", "/with space/", "/shop"))
    assert paths(crawled) == {"shop.test/", f"shop.test{sent[0]}", "shop.test/other/1"}
    assert crawled.summary.tally.filters["deny /shop"].urls == 1
    lines = crawled.summary.as_text().splitlines()
    assert [line.split(":")[0] for line in lines if "--deny" in line] == [
        "    --deny /shop", "    --deny /with space/", "    --deny секрет",
    ]  # fmt: skip
    allow = ("^/каталог/", "^/with ")
    crawled, _ = await crawl_mounts(tmp_path / "2", mounts, "shop.test/", crawl__allow=allow, crawl__deny=("/секрет",))
    assert paths(crawled) == {"shop.test/", f"shop.test{sent[0]}", "shop.test/with%20space/1"}


async def test_max_pages_is_never_exceeded_and_failures_do_not_count(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=2, pages=60, not_found=0.3)) as web:
        crawled = await crawl(tmp_path, web.seeds(), web.resolve_overrides(), crawl__max_pages=20)
        assert sum(record.success for record in crawled.pages) == 20
        assert sum(record.status == 200 for record in web.log()) == 20
        assert crawled.summary.info is not None
        assert crawled.summary.info.total().dropped["budget"] > 0


async def test_domain_max_pages(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=3, pages=30)) as web:
        crawled = await crawl(tmp_path, web.seeds(), web.resolve_overrides(), crawl__domain_max_pages=5)
        assert len(crawled.pages) == 15


async def test_robots_is_read_however_little_is_taken_of_pages(tmp_path: Path) -> None:
    """RFC 9309, section 2.5: 500 KiB at least."""
    mounts = {
        ("a.test", "/robots.txt"): plain("User-agent: *\n" + "# more\n" * 1000 + "Disallow: /no\n"),
        ("a.test", "/"): html('<a href="/no/way">'),
        ("a.test", "/no/way"): html("never"),
    }
    crawled, web = await crawl_mounts(tmp_path, mounts, fetch__max_body=1000)
    assert [page.reason for page in crawled.pages] == ["", "robots"]
    assert not any(record.path == "/no/way" for record in web.log())


async def test_robots_is_obeyed_unless_told_otherwise(tmp_path: Path) -> None:
    mounts = {
        ("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /no\n"),
        ("a.test", "/"): page("/no/way", "/yes"),
        ("a.test", "/no/way"): page(),
        ("a.test", "/yes"): page(),
    }
    crawled, web = await crawl_mounts(tmp_path, mounts)
    assert paths(crawled) == {"a.test/", "a.test/yes"}
    refused = next(record for record in crawled.pages if not record.success)
    assert (refused.reason, refused.status_code, refused.url[-7:]) == ("robots", 0, "/no/way")
    assert "a.test/no/way" not in asked(web)
    crawled, web = await crawl_mounts(tmp_path / "2", mounts, crawl__ignore_robots=True)
    assert paths(crawled) == {"a.test/", "a.test/yes", "a.test/no/way"}
    assert not any(record.path == "/robots.txt" for record in web.log())


async def test_a_redirect_out_of_scope_ends_with_its_chain(tmp_path: Path) -> None:
    mounts = {
        ("a.test", "/"): page("/away"),
        ("a.test", "/away"): redirect("http://b.test/x"),
        ("b.test", "/x"): page(),
    }
    crawled, web = await crawl_mounts(tmp_path, mounts)
    record = next(record for record in crawled.pages if record.url.endswith("/away"))
    assert (record.success, record.reason, record.response_url) == (False, "offsite", "http://b.test/x")
    assert [(hop.url, hop.status) for hop in record.redirects] == [(record.url, 302)]
    assert "b.test/x" not in asked(web)


async def test_redirects_that_meet_what_was_seen_end_there(tmp_path: Path) -> None:
    mounts = {
        ("a.test", "/"): page("/one", "/two", "/loop", "/self", "/nowhere", "/data"),
        ("a.test", "/one"): redirect("/end"),
        ("a.test", "/two"): redirect("/end"),
        ("a.test", "/end"): page(),
        ("a.test", "/loop"): redirect("/loop2"),
        ("a.test", "/loop2"): redirect("/loop"),
        ("a.test", "/self"): redirect("/self"),
        ("a.test", "/nowhere"): Answer(status=302),
        ("a.test", "/data"): redirect("data:text/html,x"),
    }
    crawled, web = await crawl_mounts(tmp_path, mounts)
    ends = {_short(record.url): (record.success, record.reason) for record in crawled.pages}
    assert sorted([ends.pop("a.test/one"), ends.pop("a.test/two")]) == [(False, "duplicate"), (True, "")]
    assert ends == {
        "a.test/": (True, ""),
        "a.test/loop": (False, "redirect_loop"),
        "a.test/self": (False, "redirect_loop"),
        "a.test/nowhere": (True, ""),
        "a.test/data": (False, "bad_redirect"),
    }
    assert max(fetches(web.log()).values()) == 1


async def test_a_redirect_without_end_is_ended(tmp_path: Path) -> None:
    mounts = {("a.test", f"/{n}"): redirect(f"/{n + 1}") for n in range(15)}
    crawled, _ = await crawl_mounts(tmp_path, mounts, "a.test/0")
    (record,) = crawled.pages
    assert (record.reason, len(record.redirects)) == ("too_many_redirects", 11)


async def test_a_cookie_wall_is_passed(tmp_path: Path) -> None:
    """A redirect to itself that sets a cookie is no loop; the cookie is sent on."""
    wall = redirect("/")
    mounts = {
        ("a.test", "/"): (
            Answer(status=302, headers=(*wall.headers, ("Set-Cookie", "seen=1; Path=/"))),
            page(),
        )
    }
    crawled, _ = await crawl_mounts(tmp_path, mounts, records__secrets="keep")  # type: ignore[arg-type]
    (record,) = crawled.pages
    assert record.success
    assert record.request_headers["Cookie"] == ["seen=1"]
    assert [hop.status for hop in record.redirects] == [302]


async def test_sitemaps_feed_the_crawl(tmp_path: Path) -> None:
    inner = "<urlset>" + "".join(f"<url><loc>http://a.test/{n}</loc></url>" for n in range(3)) + "</urlset>"
    index = "<sitemapindex><sitemap><loc>http://a.test/s.xml.gz</loc></sitemap></sitemapindex>"
    async with serve(ONE) as web:
        origin = f"a.test:{web.port}"
        web.mount("a.test", "/robots.txt", plain(f"Sitemap: http://{origin}/index.xml\n"))
        web.mount("a.test", "/index.xml", Answer(body=index.replace("a.test", origin).encode()))
        web.mount("a.test", "/s.xml.gz", Answer(body=gzip.compress(inner.replace("a.test", origin).encode())))
        web.mount("a.test", "/", page())
        for n in range(3):
            web.mount("a.test", f"/{n}", page())
        everything = {"a.test/", "a.test/0", "a.test/1", "a.test/2", "a.test/index.xml", "a.test/s.xml.gz"}
        crawled = await crawl(tmp_path, [f"http://{origin}/"], ["*:127.0.0.1"], crawl__sitemaps=True)
        assert paths(crawled) == everything
        crawled = await crawl(tmp_path / "2", [f"http://{origin}/index.xml"], ["*:127.0.0.1"], crawl__depth=0)
        assert paths(crawled) == everything - {"a.test/"}
        crawled = await crawl(tmp_path / "3", [f"http://{origin}/"], ["*:127.0.0.1"])
        assert paths(crawled) == {"a.test/"}


FACETS = {
    ("a.test", "/"): page("/list?b=2&a=1", "/list?a=1&b=2", "/list?a=1&b=3", "/moved?y=2&x=1"),
    ("a.test", "/list?b=2&a=1"): page(),
    ("a.test", "/list?a=1&b=2"): page(),
    ("a.test", "/list?a=1&b=3"): page("/list?b=3&a=1"),
    ("a.test", "/list?b=3&a=1"): page(),
    ("a.test", "/moved?y=2&x=1"): redirect("/moved?x=1&y=2"),
    ("a.test", "/moved?x=1&y=2"): page(),
}


async def test_urls_that_differ_in_the_order_of_their_query_are_one_where_that_is_ignored(tmp_path: Path) -> None:
    """They are fetched as they are written; a redirect to the other order leads to its page."""
    either = {"a.test/list?a=1&b=2", "a.test/list?b=2&a=1"}
    others = {"a.test/", "a.test/list?a=1&b=3", "a.test/moved?y=2&x=1"}
    crawled, web = await crawl_mounts(tmp_path, FACETS, crawl__query_order="ignored")
    assert len(either & paths(crawled)) == 1
    assert paths(crawled) - either == others
    assert asked(web) == paths(crawled) | {"a.test/moved?x=1&y=2"}
    crawled, web = await crawl_mounts(tmp_path / "2", FACETS)
    assert paths(crawled) == {f"a.test{path}" for _, path in FACETS} - {"a.test/moved?x=1&y=2"}


async def test_seeds_too_are_one_where_the_order_of_the_query_is_ignored(tmp_path: Path) -> None:
    seeds = ("a.test/list?a=1&b=2", "a.test/list?b=2&a=1")
    crawled, _ = await crawl_mounts(tmp_path, FACETS, *seeds, crawl__query_order="ignored")
    assert len(crawled.pages) == 1
    crawled, _ = await crawl_mounts(tmp_path / "2", FACETS, *seeds)
    assert len(crawled.pages) == 2


@pytest.mark.parametrize("depth", [0, 2, None])
async def test_the_wandering_spider_goes_on_to_a_dead_end_whatever_the_depth(depth: int | None, tmp_path: Path) -> None:
    crawled, _ = await crawl_mounts(
        tmp_path, CHAIN, crawl__spider="wandering", crawl__depth=depth, crawl__attrs={"who": "me"}
    )
    steps = sorted((record.depth, (record.attrs or {})["step"]) for record in crawled.pages)
    assert steps == [(n, n) for n in range(6 + 1)]
    assert all((record.attrs or {})["who"] == "me" for record in crawled.pages)


async def test_the_wandering_spider_goes_on_where_it_has_been(tmp_path: Path) -> None:
    """Three pages that link to each other: only the limit ends the walk."""
    pages = [f"/{n}" for n in range(3)]
    crawled, _ = await crawl_mounts(
        tmp_path,
        {("a.test", path): page(*pages) for path in ("/", *pages)},
        crawl__spider="wandering",
        crawl__depth=1,
        crawl__max_pages=40,
    )
    assert sorted((record.attrs or {})["step"] for record in crawled.pages) == list(range(40))
    assert len({record.request_id for record in crawled.pages}) == 40


async def test_links_attrs_headers_and_cookie(tmp_path: Path) -> None:
    crawled, _ = await crawl_mounts(
        tmp_path,
        {("a.test", "/"): page("/x#part", "https://elsewhere.test/"), ("a.test", "/x"): page()},
        crawl__links=True,
        crawl__attrs={"n": 1},
        crawl__header={"X-Test": "yes"},
        crawl__cookie="a=b",
        records__secrets="keep",
        fetch__user_agent="tester/1",
    )
    first = next(record for record in crawled.pages if record.depth == 0)
    assert [link.text for link in first.links] == ["/x#part", "https://elsewhere.test/"]
    assert first.attrs == {"n": 1}
    assert first.request_headers["X-Test"] == ["yes"]
    assert first.request_headers["Cookie"] == ["a=b"]
    assert first.request_headers["User-Agent"] == ["tester/1"]
    assert "Host" not in first.request_headers


async def test_a_private_address_behind_a_link_or_redirect_is_refused_even_with_allow_private(tmp_path: Path) -> None:
    """--allow-private is for the seeds' own hosts."""
    async with serve(ONE) as web:
        seed = f"http://127.0.0.1:{web.port}/"
        web.mount("127.0.0.1", "/", page(f"http://localhost:{web.port}/x", "/r"))
        web.mount("127.0.0.1", "/r", redirect(f"http://127.0.0.2:{web.port}/y"))
        crawled = await crawl(tmp_path, [seed], crawl__allow_private=True, crawl__scope="any")
        ends = {record.url.removeprefix("http://"): (record.success, record.reason) for record in crawled.pages}
        assert ends == {
            f"127.0.0.1:{web.port}/": (True, ""),
            f"localhost:{web.port}/x": (False, "blocked_address"),
            f"127.0.0.1:{web.port}/r": (False, "blocked_address"),
        }


async def test_what_is_no_text_is_base64(tmp_path: Path) -> None:
    crawled, _ = await crawl_mounts(
        tmp_path, {("a.test", "/"): Answer(headers=(("Content-Type", "image/png"),), body=b"\x89PNG\x00\xff")}
    )
    (record,) = crawled.pages
    assert (record.body, record.body_encoding) == ("iVBORwD/", "base64")


async def test_nothing_fetched_is_exit_code_1(tmp_path: Path) -> None:
    crawled, _ = await crawl_mounts(tmp_path, {}, "nobody.test/", fetch__retries=0)
    assert crawled.summary.exit_code() == 1
    assert [record.reason for record in crawled.pages] == ["http_421"]

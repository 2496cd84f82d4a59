"""`gossamer.get`: one page, as a crawl would fetch it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import gossamer
from gossamer.errors import BadInput, ConnectFailed, DnsFailed, FetchRefused
from gossamer.fakeweb import Answer, FakeWeb, WebSpec, html, plain, redirect, serve

ONE = WebSpec(hosts=1, pages=1)


async def got(mounts: dict[tuple[str, str], Any], path: str = "/", **options: Any) -> gossamer.Page:
    """Return the page at this path of a.test, while a web with these answers runs."""
    async with serve(ONE, mounts=mounts) as web:
        resolve = {"a.test": "127.0.0.1", "b.test": "127.0.0.1"}
        return await asyncio.to_thread(gossamer.get, f"http://a.test:{web.port}{path}", resolve=resolve, **options)


async def test_a_page_has_its_text_and_status() -> None:
    page = await got({("a.test", "/"): html("<h1>Grüße</h1>")})
    assert page.record.status_code == 200
    assert "Grüße" in page.text


async def test_redirects_are_followed_to_any_host() -> None:
    async with serve(ONE, mounts={("b.test", "/x"): html("there")}) as web:
        web.mount("a.test", "/", redirect(f"http://b.test:{web.port}/x"))
        resolve = {"a.test": "127.0.0.1", "b.test": "127.0.0.1"}
        page = await asyncio.to_thread(gossamer.get, f"http://a.test:{web.port}/", resolve=resolve)
    assert page.url == f"http://b.test:{web.port}/x"
    assert [hop.status for hop in page.record.redirects] == [302]


async def test_an_error_status_is_a_page() -> None:
    page = await got({("a.test", "/gone"): Answer(status=404)}, "/gone")
    assert page.record.status_code == 404
    assert not page.record.success


async def test_a_refusal_by_the_site_is_a_page_that_has_failed() -> None:
    rejected = "<title>Request Rejected</title>The requested URL was rejected. Your support ID is: 1"
    record = (await got({("a.test", "/"): html(rejected)})).record
    assert (record.status_code, record.success, record.reason) == (200, False, "refused_denied")
    assert record.refusal is not None


async def test_robots_txt_is_obeyed() -> None:
    mounts = {("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /"), ("a.test", "/"): html("hello")}
    with pytest.raises(FetchRefused, match=r"robots.txt: .*Disallow: /"):
        await got(mounts)
    assert "hello" in (await got(mounts, ignore_robots=True)).text


def test_an_error_says_what_to_do_in_python_words() -> None:
    told = r"^Cannot fetch http://nobody\.invalid/: the host name .* its address with resolve={\"HOST\": \"ADDRESS\"}"
    with pytest.raises(DnsFailed, match=told):
        gossamer.get("http://nobody.invalid/")


async def test_it_works_where_an_event_loop_runs_as_in_a_notebook() -> None:
    with FakeWeb.start(ONE) as web:
        (seed,) = web.seeds()
        assert gossamer.get(seed, resolve=web_addresses(web)).record.status_code == 200


def web_addresses(web: FakeWeb) -> Iterator[str]:
    """Return `HOST:ADDRESS` for all hosts of the web: the other form of the option."""
    return iter(web.resolve_overrides())


def test_no_response_is_an_error_with_its_reason() -> None:
    with pytest.raises(ConnectFailed, match="did not accept the connection"):
        gossamer.get("http://a.test:1/", resolve={"a.test": "127.0.0.1"}, ignore_robots=True)


def test_mistakes_are_named_as_the_program_wrote_them() -> None:
    with pytest.raises(BadInput, match="add allow_private=True"):
        gossamer.get("http://127.0.0.1/")
    with pytest.raises(BadInput, match=r"^timeout: "):
        gossamer.get("http://a.test/", timeout=-1)
    with pytest.raises(BadInput, match=r"^None is no URL\."):
        gossamer.get(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean user_agent"):
        gossamer.get("http://a.test/", useragent="x")  # type: ignore[call-arg]

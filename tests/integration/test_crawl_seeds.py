"""Seeds from elsewhere, and seeds at private addresses, however many there are."""

from pathlib import Path

import pytest

from gossamer.crawling.engine import prepare
from gossamer.crawling.seeds import gather_seeds
from gossamer.errors import BadInput
from gossamer.fakeweb import WebSpec, plain, redirect, serve
from gossamer.wiring.worker import make_resolver
from tests.servers.crawling import settings_for
from tests.servers.http_proxy import run_http_proxy

ONE = WebSpec(hosts=1, pages=1)


async def gathered(folder: Path, source: str, *overrides: str, **options: object) -> list[str]:
    settings = settings_for(folder, overrides, **options)
    resolver = make_resolver(settings)
    try:
        return await gather_seeds(settings, resolver, [], [source])
    finally:
        resolver.close()


async def test_a_seed_list_may_be_where_the_seeds_may_be(tmp_path: Path) -> None:
    """At a private address if that is permitted; where it redirects to is not meant."""
    mounts = {("127.0.0.1", "/list"): plain("http://a.test/\n"), ("127.0.0.1", "/nowhere"): redirect("mailto:a@b.test")}
    async with serve(ONE, mounts=mounts) as web:
        web.mount("127.0.0.1", "/away", redirect(f"http://127.0.0.2:{web.port}/list"))
        source = f"http://127.0.0.1:{web.port}"
        with pytest.raises(BadInput, match="cannot be fetched"):
            await gathered(tmp_path, f"{source}/list")
        assert await gathered(tmp_path, f"{source}/list", crawl__allow_private=True) == ["http://a.test/"]
        with pytest.raises(BadInput, match="no web page"):
            await gathered(tmp_path, f"{source}/nowhere", crawl__allow_private=True)
        with pytest.raises(BadInput, match=r"127\.0\.0\.2"):
            await gathered(tmp_path, f"{source}/away", crawl__allow_private=True)


async def test_a_seed_list_comes_through_the_proxy(tmp_path: Path) -> None:
    async with serve(ONE, mounts={("127.0.0.1", "/list"): plain("http://a.test/\n")}) as web:
        source = f"http://127.0.0.1:{web.port}/list"
        with pytest.raises(BadInput, match="cannot be fetched"):
            await gathered(tmp_path, source, crawl__allow_private=True, fetch__proxy="http://127.0.0.1:1")
        with run_http_proxy() as port:
            found = await gathered(
                tmp_path,
                source,
                crawl__allow_private=True,
                fetch__proxy=f"http://127.0.0.1:{port}",
                fetch__timeout=20.0,
            )
        assert found == ["http://a.test/"]


async def test_a_fetched_seed_list_may_be_as_long_as_a_file(tmp_path: Path) -> None:
    long = "# " + "x" * 6 * 2**20 + "\nhttp://a.test/\n"
    async with serve(ONE, mounts={("list.test", "/"): plain(long)}) as web:
        found = await gathered(tmp_path, f"http://list.test:{web.port}/", "*:127.0.0.1", fetch__timeout=20.0)
    assert found == ["http://a.test/"]


PUBLIC = [f"http://1.1.{n // 250}.{n % 250 + 1}/" for n in range(1500)]


async def test_the_last_of_many_seeds_is_judged_like_the_first(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with pytest.raises(BadInput, match=r"127\.0\.0\.1 is not on the public internet \(loopback\)") as caught:
        await prepare(settings, [*PUBLIC, "http://127.0.0.1/"], [], crawl_id=None)
    assert "--resolve" not in str(caught.value)
    assert "127.0.0.1 is 127.0.0.1" not in str(caught.value)


async def test_private_seeds_are_permitted_however_many_there_are(tmp_path: Path) -> None:
    private = [f"http://10.0.{n // 250}.{n % 250 + 1}/" for n in range(1500)]
    settings = settings_for(tmp_path, crawl__allow_private=True)
    plan = await prepare(settings, [*private, "http://localhost/", *PUBLIC], [], crawl_id=None)
    assert len(plan.terms.private_hosts) == 1501
    assert {"10.0.0.1", "10.0.5.250", "localhost"} <= set(plan.terms.private_hosts)


async def test_names_that_a_proxy_looks_up_are_taken_at_their_word(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, crawl__allow_private=True, fetch__proxy="socks5h://127.0.0.1:1")
    plan = await prepare(settings, ["http://inside.test/", "http://10.0.0.1/"], [], crawl_id=None)
    assert set(plan.terms.private_hosts) == {"inside.test", "10.0.0.1"}
    unasked = settings_for(tmp_path, fetch__proxy="socks5h://127.0.0.1:1")
    with pytest.raises(BadInput, match="public internet"):
        await prepare(unasked, ["http://inside.test/", "http://10.0.0.1/"], [], crawl_id=None)

"""Where a crawl's cookie and secret headers go, as the servers hear it, and what records show of them."""

import asyncio
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.servers.crawling import Crawled, crawl, gossamer, resolving
from tests.servers.heard import Heard, listening

SECRET = {"cookie": "sid=s3cret", "authorization": "Bearer s3cret", "x-key": "s3cret"}
PLAIN = {"accept-language": "de", "x-plain": "yes"}
ASKED = {
    "crawl__scope": "any",
    "crawl__depth": 1,
    "crawl__cookie": "sid=s3cret",
    "crawl__header": {"Authorization": "Bearer s3cret", "X-Key": "s3cret", "Accept-Language": "de", "X-Plain": "yes"},
    "crawl__secret_header": ("X-Key",),
}


def places(heard: list[Heard]) -> dict[str, Heard]:
    """The requests by host and path; none came twice."""
    found = {f"{one.header('host')}".partition(":")[0] + one.head.split(" ", 2)[1]: one for one in heard}
    assert len(found) == len(heard)
    return found


def sent(request: Heard) -> dict[str, str]:
    """What of the crawl's headers a request carried."""
    return {name: value for name in (*SECRET, *PLAIN) if (value := request.header(name)) is not None}


async def crawl_two_domains(
    folder: Path, links: str, redirects: Mapping[str, str] | None = None, **options: object
) -> tuple[Crawled, dict[str, Heard]]:
    """Crawl www.a.test, whose first page links to these places (host and path, or path)."""
    answers: dict[str, bytes] = {}
    bodies: dict[str, bytes] = {}
    async with listening(answers, bodies) as (port, heard):

        def url(place: str) -> str:
            host, _, path = place.partition("/")
            return f"http://{host}:{port}/{path}"

        bodies["/"] = "".join(f'<a href="{url(place)}">x</a>' for place in links.split()).encode()
        for path, place in (redirects or {}).items():
            answers[path] = f"302 Found\r\nLocation: {url(place)}".encode()
        crawled = await crawl(folder, [url("www.a.test/")], ["*:127.0.0.1"], **ASKED, **options)
    return crawled, places(heard)


async def test_secrets_go_to_the_seeds_domain_only_and_other_headers_everywhere(tmp_path: Path) -> None:
    _, heard = await crawl_two_domains(tmp_path, "www.a.test/in sub.a.test/sub b.test/out nota.test/near")
    assert {place: sent(one) for place, one in heard.items()} == {
        "www.a.test/": SECRET | PLAIN,
        "www.a.test/in": SECRET | PLAIN,
        "sub.a.test/sub": SECRET | PLAIN,
        "b.test/out": PLAIN,
        "nota.test/near": PLAIN,
    }


async def test_secrets_do_not_follow_a_redirect_to_another_domain_and_return_with_one_back(tmp_path: Path) -> None:
    redirects = {"/away": "b.test/there", "/there": "a.test/home", "/within": "sub.a.test/end"}
    _, heard = await crawl_two_domains(tmp_path, "www.a.test/away www.a.test/within", redirects)
    assert {place: sent(one) for place, one in heard.items()} == {
        "www.a.test/": SECRET | PLAIN,
        "www.a.test/away": SECRET | PLAIN,
        "b.test/there": PLAIN,
        "a.test/home": SECRET | PLAIN,
        "www.a.test/within": SECRET | PLAIN,
        "sub.a.test/end": SECRET | PLAIN,
    }


async def test_the_domains_in_headers_for_get_the_secrets_with_their_subdomains(tmp_path: Path) -> None:
    links = "b.test/b api.c.test/c v1.api.c.test/c1 www.c.test/c2"
    for_them = ("B.test", "api.c.test")
    _, heard = await crawl_two_domains(tmp_path, links, crawl__headers_for=for_them)
    assert {place: sent(one) for place, one in heard.items()} == {
        "www.a.test/": SECRET | PLAIN,
        "b.test/b": SECRET | PLAIN,
        "api.c.test/c": SECRET | PLAIN,
        "v1.api.c.test/c1": SECRET | PLAIN,
        "www.c.test/c2": PLAIN,
    }


@pytest.mark.parametrize(("setting", "shown"), [("redact", False), ("keep", True)])
async def test_records_show_the_values_of_secret_headers_only_where_a_setting_says_so(
    setting: str, shown: bool, tmp_path: Path
) -> None:
    warc = tmp_path / "pages.warc.gz"
    outputs = (str(tmp_path / "pages.jsonl"), str(warc))
    crawled, _ = await crawl_two_domains(tmp_path, "b.test/out", crawl__output=outputs, records__secrets=setting)
    first = next(page for page in crawled.pages if page.depth == 0)
    other = next(page for page in crawled.pages if page.depth == 1)
    told = {name.lower(): values for name, values in first.request_headers.items()}
    assert {name: told[name] for name in SECRET} == {
        name: [value if shown else "<redacted>"] for name, value in SECRET.items()
    }
    assert {name: told[name] for name in PLAIN} == {name: [value] for name, value in PLAIN.items()}
    assert SECRET.keys().isdisjoint(name.lower() for name in other.request_headers)
    archived = gzip.decompress(warc.read_bytes())
    assert (b"s3cret" in archived, b"Cookie: <redacted>\r\n" in archived) == (shown, not shown)
    assert b"Accept-Language: de\r\n" in archived
    assert ("s3cret" in (tmp_path / "pages.jsonl").read_text()) is shown


async def test_fetch_sends_secrets_where_a_crawl_would(tmp_path: Path) -> None:
    answers: dict[str, bytes] = {}
    async with listening(answers) as (port, heard):
        answers["/"] = f"302 Found\r\nLocation: http://b.test:{port}/out".encode()
        flags = ["--cookie", "sid=s3cret", "--header", "X-Key: s3cret", "--secret-header", "x-key", "--scope", "any"]
        command = ["fetch", f"http://a.test:{port}/", *resolving(["*:127.0.0.1"]), *flags, "--json"]
        done = await asyncio.to_thread(gossamer, *command, cwd=tmp_path)
    assert json.loads(done.stdout)["success"], done.stderr
    assert {place: set(sent(one)) & set(SECRET) for place, one in places(heard).items()} == {
        "a.test/": {"cookie", "x-key"},
        "b.test/out": set(),
    }
    assert "s3cret" not in done.stdout + done.stderr

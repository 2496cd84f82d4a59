"""Databases of single applications of a service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.crawling import gossamer, resolving
from tests.servers.program import until
from tests.servers.service import up
from tests.servers.stores import StoreServer, store_server


@pytest.fixture(scope="module", params=["postgresql", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with store_server(request.param) as started:
        yield started


def test_an_application_has_its_pages_in_its_own_database_and_no_others(server: StoreServer, tmp_path: Path) -> None:
    shop, news = server.address(), server.address()
    outputs = json.dumps({"shop": [shop], "news": [{"path": news, "records": "pages"}]})
    with FakeWeb.start(WebSpec(hosts=1, pages=12)) as web:
        flags = resolving(web.resolve_overrides())
        with up(tmp_path, *flags, environment={"GOSSAMER_WORKER__APP_OUTPUTS": outputs}):
            for appid in ("shop", "news", "other"):
                _feed(tmp_path, appid, web, depth=5)
            until(lambda: _finished(tmp_path) == 3, "the end of the crawls")
    for address, appid in ((shop, "shop"), (news, "news")):
        rows = server.rows(address, "pages")
        assert {row["appid"] for row in rows} == {appid}
        assert len(rows) == len({row["url"] for row in rows}) == 12


def _finished(folder: Path) -> int:
    """Return how many crawls have finished."""
    said = [gossamer("crawls", "show", f"{appid}/c", cwd=folder).stdout for appid in ("shop", "news", "other")]
    return sum("finished" in one for one in said)


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_database_counts_as_away_until_its_own_rows_are_written(server: StoreServer, tmp_path: Path) -> None:
    """The rows of another application, whose database is there, do not end the outage."""
    shop = server.address()
    with store_server("redis") as other, FakeWeb.start(WebSpec(hosts=1, pages=12)) as web:
        news = other.address()
        outputs = json.dumps({"shop": [shop], "news": [news]})
        with up(
            tmp_path, *resolving(web.resolve_overrides()), environment={"GOSSAMER_WORKER__APP_OUTPUTS": outputs}
        ) as service:
            other.kill()
            _feed(tmp_path, "news", web, depth=0)
            until(lambda: "could not be written" in service.said(), "the outage")
            _feed(tmp_path, "shop", web, depth=5)
            until(lambda: _finished(tmp_path) == 1, "the end of the other crawl")
            assert len(server.rows(shop, "pages")) == 12
            assert "can be written again" not in service.said()
            other.start()
            until(lambda: _finished(tmp_path) == 2, "the end of the crawls")
            said = service.said()
        assert len(other.rows(news, "pages")) == 1
    assert said.count("trouble_began app_output") == said.count("outputs of all applications can be written again") == 1
    assert "s3cret" not in said


def _feed(folder: Path, appid: str, web: FakeWeb, *, depth: int) -> None:
    request = {"appid": appid, "crawlid": "c", "url": web.seeds()[0], "maxdepth": depth}
    fed = gossamer("feed", json.dumps(request), cwd=folder)
    assert fed.returncode == 0, fed.stderr


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ('{"shop": "pages.jsonl"}', "worker.app_outputs.shop: pages.jsonl is not a database. Write, for example, "),
        ('{"shop": "mysql://me:s3cret@127.0.0.1:9/d"}', "worker.app_outputs.shop: the output cannot be used: "),
        ('{"shop": 5}', "Write a table of outputs by appid"),
        ('["pages.jsonl"]', "Write a table of outputs by appid"),
    ],
)
@pytest.mark.parametrize("command", ["up", "worker"])
def test_an_output_that_cannot_be_used_stops_the_start_in_one_line(
    command: str, outputs: str, words: str, tmp_path: Path
) -> None:
    done = gossamer(command, cwd=tmp_path, env={"GOSSAMER_WORKER__APP_OUTPUTS": outputs})
    assert done.returncode == 2
    assert words in done.stderr
    assert "s3cret" not in done.stderr
    assert done.stderr.count("\n") == 1

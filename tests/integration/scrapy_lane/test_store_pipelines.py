"""Item pipelines to stores in plain Scrapy projects: nothing lost, nothing twice, misfits dropped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.program import until
from tests.servers.scraping import Scraped, Scraper
from tests.servers.stores import TYPED, StoreServer, store_server

PIPELINES = {
    "postgresql": ("PostgreSqlPipeline", "POSTGRESQL_PIPELINE_URL"),
    "mysql": ("MySqlPipeline", "MYSQL_PIPELINE_URL"),
    "opensearch": ("OpenSearchPipeline", "ES_PIPELINE_URL"),
    "redis": ("RedisHashPipeline", "REDIS_HASH_PIPELINE_URL"),
}


@pytest.fixture(scope="module", params=TYPED)
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with store_server(request.param) as started:
        yield started


def scraper(folder: Path, server_kind: str, address: str, *, keyless: str = "no", name: str = "one") -> Scraper:
    pipeline, setting = PIPELINES[server_kind]
    settings = {
        "ITEM_PIPELINES": f'{{"gossamer.scrapy.pipelines.{pipeline}": 700}}',
        setting: address,
        "GOSSAMER_DATA_DIR": str(folder / "data"),
    }
    arguments = {"keyless": keyless, "count": "300"}
    return Scraper(folder, "offers", frontier=None, name=name, settings=settings, arguments=arguments)


def scrape(folder: Path, server_kind: str, address: str, **options: str) -> Scraped:
    with scraper(folder, server_kind, address, **options) as running:
        return running.finish()


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_killed_process_and_a_killed_server_lose_nothing_and_repeat_nothing(
    server: StoreServer, tmp_path: Path
) -> None:
    address = server.address()
    with scraper(tmp_path, server.kind, address) as killed:
        until(lambda: len(killed.items) > 30 or killed.process.poll() is not None, "the first items")
        killed.kill()
    with scraper(tmp_path, server.kind, address, name="two") as running:
        until(lambda: len(running.items) > 60 or running.process.poll() is not None, "more items")
        server.kill()
        try:
            until(lambda: "trouble_began" in running.log or running.process.poll() is not None, "the outage")
            assert running.process.poll() is None, running.log
        finally:
            server.start()
        done = running.finish()
    assert done.exit_code == 0, done.log
    assert "s3cret" not in done.log
    expected = {f"https://a.test/{number}" for number in range(300) if number % 100 != 50}
    urls = [row["url"] for row in server.rows(address, "items")]
    assert sorted(urls) == sorted(expected)
    assert {item["url"] for item in done.items} == expected
    assert done.stats["item_dropped_count"] == 3
    assert done.stats[f"gossamer/{server.kind}/refused"] == 3
    assert done.stats[f"gossamer/{server.kind}/items"] == 297
    assert "the field price with the value" in done.log


@pytest.mark.parametrize("server", ["postgresql", "opensearch"], indirect=True)
def test_items_without_url_are_recognised_by_their_content(server: StoreServer, tmp_path: Path) -> None:
    address = server.address()
    if server.kind == "opensearch":  # the form of other pipelines: server, index, and a type of documents
        address = address.replace("opensearch://", "http://") + "/items/property"
    for _ in range(2):
        done = scrape(tmp_path, server.kind, address, keyless="yes")
        assert done.exit_code == 0, done.log
    titles = sorted(row["title"] for row in server.rows(address, "items"))
    assert titles == sorted(f"Offer {number}" for number in range(300) if number % 100 != 50)


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_an_address_of_redis_without_a_table_means_the_hash_items(server: StoreServer, tmp_path: Path) -> None:
    address = server.address().partition("?")[0]
    done = scrape(tmp_path, server.kind, address)
    assert done.exit_code == 0, done.log
    rows = server.rows(f"{address}?table=items", "pages")
    assert {row["url"] for row in rows} == {f"https://a.test/{number}" for number in range(300)}
    assert done.stats["gossamer/redis/items"] == 300


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_table_of_the_projects_own_is_filled_by_its_key(server: StoreServer, tmp_path: Path) -> None:
    address = server.address()
    statement = "CREATE TABLE properties (url VARCHAR(100) PRIMARY KEY, title VARCHAR(30), price DOUBLE, tags TEXT)"
    server.execute(address, statement)  # type: ignore[attr-defined]
    unkeyed = scrape(tmp_path, server.kind, server.at(address, "properties"))
    assert unkeyed.exit_code != 0
    assert "MYSQL_PIPELINE_URL: " in unkeyed.log
    assert "has no column _key" in unkeyed.log
    done = scrape(tmp_path, server.kind, server.at(address, "properties", key="url"))
    assert done.exit_code == 0, done.log
    assert len(server.rows(address, "properties")) == 297


@pytest.mark.parametrize(
    ("kind", "address", "words"),
    [
        ("mysql", "postgresql://h/d", "MYSQL_PIPELINE_URL: write mysql://USER@HOST:PORT/NAME"),
        ("mysql", "mysql://me:s3cret@127.0.0.1:9/d", "MYSQL_PIPELINE_URL: "),
        ("opensearch", "http://me:s3cret@127.0.0.1:9/shop", "ES_PIPELINE_URL: "),
    ],
)
def test_an_address_that_cannot_be_used_stops_the_start(kind: str, address: str, words: str, tmp_path: Path) -> None:
    done = scrape(tmp_path, kind, address)
    assert done.exit_code != 0
    assert words in done.log
    assert "s3cret" not in done.log


def test_a_pipeline_without_an_address_is_off_and_names_all_its_settings(tmp_path: Path) -> None:
    done = scrape(tmp_path, "opensearch", "")
    assert done.exit_code == 0, done.log
    assert "OpenSearchPipeline: OPENSEARCH_PIPELINE_URL or ES_PIPELINE_URL is not set" in done.log

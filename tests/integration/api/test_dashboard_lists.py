"""Lists of the dashboard of a crawl service, which come by pages."""

from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from gossamer.dashboard import audit, bus, crawls, domains, overview, workers
from gossamer.history.audit import HistoryAudit
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import DomainPolicy

from .conftest import Service, Start
from .test_dashboard import submit, text
from .test_past import history, listed, remembering, until

__all__ = ["history"]  # a fixture

_SIZES = (
    (crawls, ("_A_PAGE", "_RECORDS")), (domains, ("_A_PAGE",)), (workers, ("_WORKERS", "_SERVICES")),
    (bus, ("_LETTERS",)), (audit, ("_A_PAGE",)), (overview, ("_CRAWLS_SHOWN",)),
)  # fmt: skip
_CRAWL = "appid=shop&crawlid=first"
_LISTS = {
    "crawls": "second", "crawls?state=running": "second", "domains": "second", "workers": "second", "bus": "second",
    **{f"crawl/pages?{_CRAWL}&kind={kind}": "http://a.test/" for kind in ("pages", "failures", "items")},
}  # fmt: skip
"""Text of an entry, by path."""


async def _fill(service: Service, name: str) -> None:
    """Add an entry to each list: the second call fills a page of two."""
    await submit(service, name)
    await service.frontier.set_domain_policy(f"{name}.test", DomainPolicy(hits=1))
    await service.context.counters.report_facts(f"{name}:1", {"roles": ["rest"], "version": "1"})
    record = {"appid": "shop", "crawlid": "first", "url": "http://a.test/", "type": "page", "success": True}
    records = [record, {**record, "success": False, "reason": "x"}, {**record, "type": "item"}]
    publish, topics = service.context.bus.publish, service.context.topics
    await publish(topics.crawled_by("shop"), list(map(msgspec.json.encode, records)))
    await publish(topics.dead_letter, [msgspec.json.encode({"topic": name, "message": "", "reason": "no"})])


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for pages, names in _SIZES:
        for name in names:
            monkeypatch.setattr(pages, name, 2)


@pytest.mark.usefixtures("pages_of_two")
async def test_a_list_with_exactly_one_full_page_has_no_next_one(
    start: Start, history: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(history=history, audit=HistoryAudit(history)) as service:
        seats = [await service.frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
        for seat, name in zip(seats, ("first", "second"), strict=True):
            await _fill(service, name)
            await seat.lease(limit=1)  # a worker is one that has asked for work
        async with remembering(service, history):

            async def are_remembered() -> bool:
                return len(await listed(service)) == 2

            await until(are_remembered)
        topics = (await service.http.get("/v1/topics")).json()["items"]
        monkeypatch.setattr(bus, "_TOPICS", len(topics))
        for path, entry in (*_LISTS.items(), ("audit", "shop/second")):
            page = (await service.http.get(f"/ui/{path}")).text
            assert entry in page, path
            assert 'rel="next"' not in page, path
        assert "All running crawls" not in await text(service, "/")
        for seat in seats:
            await seat.close()
    names = {path.stem.removesuffix("_live").replace("records", "crawl/pages") for path in _with_pages()}
    assert names == {path.partition("?")[0] for path in _LISTS} | {"audit"}


def _with_pages() -> list[Path]:
    """Templates of lists that come by pages."""
    folder = Path(str(files("gossamer.dashboard") / "templates"))
    texts = {path: path.read_text() for path in folder.glob("*.html") if path.name != "macros.html"}
    return [path for path, text in texts.items() if 'rel="next"' in text or "m.older(" in text]


@pytest.mark.usefixtures("pages_of_two")
async def test_without_a_history_a_full_page_of_crawls_has_no_next_one_either(service: Service) -> None:
    for name in ("first", "second"):
        await submit(service, name, appid=name)
    for state in ("", "running"):
        page = await text(service, "/crawls", state=state)
        assert "second" in page
        assert 'rel="next"' not in page
    assert "All running crawls" not in await text(service, "/")
    await submit(service, "third", appid="shop")
    page = await text(service, "/crawls")
    assert 'rel="next"' in page

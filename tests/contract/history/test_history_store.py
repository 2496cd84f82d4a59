"""The history: what is written twice, or by two processes, counts once; what is old goes; lists are newest first."""

import asyncio
import random
from collections.abc import Iterator, Sequence

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, event, func, select

from gossamer.errors import BadInput, HistoryRefused, HistoryUnavailable
from gossamer.history import retention, tables
from gossamer.history.audit import HistoryAudit
from gossamer.history.database import HistoryDatabase
from gossamer.history.domain_uses import KEPT_MINUTES, DomainUse
from gossamer.history.failures import EXAMPLES
from gossamer.history.retention import BATCH, RatePosition
from gossamer.history.service_rates import ServiceRate
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import Crawl, CrawlId, CrawlState
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.model.messages.history import CrawlEnded, RequestFailed
from gossamer.storage.audit import AuditedChange, AuditFilter, AuditOutcome, AuditWrite
from tests.contract.history import first_schema

DAY = 86400.0
NOW = 1_800_000_000.0


def info(
    name: str,
    *,
    fetched: int = 0,
    waiting: int = 0,
    started: float = NOW,
    run: int = 1,
    ended: float | None = None,
    state: CrawlState | None = None,
    appid: str = "shop",
) -> CrawlInfo:
    counts = SpiderCounts(
        added=fetched + waiting + 3, queued=waiting, fetched=fetched, failed={"dns": 1, "http_503": 2}
    )
    crawl = CrawlId(appid, name)
    return CrawlInfo(
        crawl=crawl,
        pool="shared",
        state=state or (CrawlState.RUNNING if ended is None else CrawlState.FINISHED),
        run=run,
        started=started,
        ended=ended,
        domains=1 if waiting else 0,
        seen=counts.added,
        spiders={"link": counts},
        queued_by_priority={-10: waiting} if waiting else {},
        options=Crawl(id=crawl, max_pages=9),
    )


def end(name: str, *, at: float, run: int = 1, event: str = "", spider: str = "", kind: str = "finished") -> CrawlEnded:
    return CrawlEnded(
        event_id=event or f"{name}-{run}-{spider}", kind=kind, appid="shop", crawlid=name, run=run, spider=spider, at=at
    )


def failure(name: str, number: int, *, reason: str = "dns", at: float = NOW) -> RequestFailed:
    return RequestFailed(
        appid="shop", crawlid=name, spider="link", request_id=f"r{number}", url=f"http://a.test/{number}", status=0,
        reason=reason, error="no such host", at=at + number,
    )  # fmt: skip


async def names(history: HistoryStore, **chosen: str) -> list[str]:
    """Return the names of all crawls, read in pages of two."""
    found: list[str] = []
    cursor = ""
    while True:
        page, cursor = await history.crawls(**chosen, cursor=cursor, limit=2)  # type: ignore[arg-type]
        found += [past.info.crawl.crawlid for past in page]
        if not cursor:
            return found


async def counts(url: str) -> dict[str, int]:
    """Return the number of rows of each table."""
    database = HistoryDatabase(url)
    try:
        return {
            name: await database.read(lambda c, table=table: c.scalar(select(func.count()).select_from(table)) or 0)  # type: ignore[misc]
            for name, table in tables.METADATA.tables.items()
        }
    finally:
        await database.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "of the first schema"])
async def test_every_database_gets_the_tables(history: HistoryStore, url: str, is_new: bool) -> None:
    database = HistoryDatabase(url)
    if not is_new:
        await database.write(first_schema.create)
    await history.crawls(limit=1)
    options = {"version_table": "history_alembic_version"}
    found = await database.read(
        lambda connection: list(compare_metadata(MigrationContext.configure(connection, opts=options), tables.METADATA))
    )
    assert found == []
    await database.close()


async def test_the_newest_crawl_comes_first_and_each_comes_once(history: HistoryStore) -> None:
    order = list(range(9))
    random.Random(7).shuffle(order)
    # Some begin in the same instant.
    for number in order:
        await history.record_crawls([info(f"c{number}", started=NOW + number // 2)], now=NOW)
    found = await names(history)
    assert sorted(found) == [f"c{number}" for number in range(9)]
    assert [int(name[1:]) // 2 for name in found] == [4, 3, 3, 2, 2, 1, 1, 0, 0]


async def test_a_crawl_that_comes_meanwhile_moves_no_page(history: HistoryStore) -> None:
    await history.record_crawls([info(f"c{number}", started=NOW + number) for number in range(4)], now=NOW)
    first, cursor = await history.crawls(limit=2)
    await history.record_crawls([info("new", started=NOW + 9)], now=NOW)
    second, end_of_list = await history.crawls(cursor=cursor, limit=2)
    assert [past.info.crawl.crawlid for past in (*first, *second)] == ["c3", "c2", "c1", "c0"]
    assert end_of_list == ""


INVALID = ("x", "äö", "MTIz", "bmFuIG5hbg", "MSAx\n", "=" * 50)
OUT_OF_RANGE = ("bmFuIDE", "MSAxODQ0Njc0NDA3MzcwOTU1MTYxNg")
"""No number, and one of more than 64 bits, each beside a valid one."""


@pytest.mark.parametrize("cursor", [*INVALID, *OUT_OF_RANGE])
async def test_an_invalid_cursor_is_refused(history: HistoryStore, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        await history.crawls(cursor=cursor, limit=2)


async def test_a_text_that_no_name_has_finds_nothing(history: HistoryStore) -> None:
    await history.record_crawls([info("prices")], now=NOW)
    assert await names(history, text="pri\0") == []
    assert await names(history, text="\ud800") == []


async def test_filters(history: HistoryStore) -> None:
    done = info("Prices_100%", ended=NOW + 5, started=NOW + 1)
    await history.record_crawls([done, info("stock"), info("x", appid="other")], now=NOW)
    await history.record_crawls([info("stock", fetched=1)], now=NOW, domains={CrawlId("shop", "stock"): ["a.test"]})
    assert sorted(await names(history, state="running")) == ["stock", "x"]
    assert await names(history, state="finished") == ["Prices_100%"]
    assert await names(history, appid="other") == ["x"]
    assert await names(history, text="PRICES") == ["Prices_100%"]
    assert await names(history, text="_100%") == ["Prices_100%"]
    assert await names(history, text="%") == ["Prices_100%"]  # a character like any other
    assert await names(history, text="other/") == ["x"]
    assert await names(history, domain="A.test") == ["stock"]
    assert await names(history, domain="b.test") == []
    assert await names(history, appid="shop", state="running", text="sto", domain="a.test") == ["stock"]


async def test_an_earlier_sample_changes_nothing(history: HistoryStore) -> None:
    later = info("c", fetched=8, started=NOW)
    ended = info("c", fetched=8, started=NOW, ended=NOW + 60)
    second = info("c", fetched=1, started=NOW + 90, run=2)
    for state, before in ((later, ()), (ended, (later,)), (second, (later, ended, info("c", fetched=2)))):
        for each in (state, *before, info("c", fetched=5)):
            await history.record_crawls([each], now=NOW)
        row = await history.crawl(CrawlId("shop", "c"))
        assert row is not None
        assert (row.info.run, row.state, row.info.total().fetched, row.info.ended) == (
            state.run, state.state.value, state.total().fetched, state.ended,
        )  # fmt: skip


async def test_a_frontier_that_begins_anew_begins_the_numbers_of_runs_anew(history: HistoryStore) -> None:
    await history.record_crawls([info("c", fetched=8, run=7)], now=NOW)
    await history.record_crawls([info("c", fetched=1, run=1, started=NOW + 1)], now=NOW)
    row = await history.crawl(CrawlId("shop", "c"))
    assert row is not None
    assert (row.info.run, row.info.total().fetched) == (1, 1)


async def test_what_two_processes_write_at_once_counts_once(url: str) -> None:
    """Each of them samples the same crawls, records the same ends and failures, in another order."""
    stores = [HistoryStore(url) for _ in range(3)]
    crawls = [f"c{number}" for number in range(30)]

    async def write(store: HistoryStore, seed: int) -> None:
        order = random.Random(seed)
        for fetched in (1, 5, 9):
            samples = [info(name, fetched=fetched, ended=NOW + 9 if fetched == 9 else None) for name in crawls]
            order.shuffle(samples)
            await store.record_crawls(samples, now=NOW + 60 * fetched, domains={CrawlId("shop", "c1"): ["a.test"]})
        ended = [end(name, at=NOW + 9) for name in crawls] * 2
        failed = [failure(name, number) for name in crawls[:3] for number in range(5)] * 2
        order.shuffle(ended)
        order.shuffle(failed)
        await store.record_messages(ended, failed)

    await asyncio.gather(*(write(store, seed) for seed, store in enumerate(stores)))
    found = await counts(url)
    assert {name: found[f"history_{name}"] for name in ("crawl", "end", "failure", "domain")} == {
        "crawl": 30, "end": 30, "failure": 15, "domain": 1,
    }  # fmt: skip
    for name in crawls:
        row = await stores[0].crawl(CrawlId("shop", name))
        assert row is not None
        assert (row.state, row.info.total().fetched) == ("finished", 9)
        points = await stores[0].rates(CrawlId("shop", name), started=NOW)
        assert max(point.fetched for point in points) == 9
    for store in stores:
        await store.close()


async def test_an_end_without_a_sample_ends_its_run_and_no_other(history: HistoryStore) -> None:
    await history.record_crawls([info("c", fetched=8, run=2, started=NOW)], now=NOW)
    await history.record_messages([end("c", at=NOW - 5, run=1), end("c", at=NOW + 5, run=2, spider="link")], [])
    row = await history.crawl(CrawlId("shop", "c"))
    assert row is not None
    assert row.info.ended is None
    await history.record_messages([end("c", at=NOW + 6, run=2, kind="stopped")], [])
    row = await history.crawl(CrawlId("shop", "c"))
    assert row is not None
    assert (row.state, row.info.ended) == ("stopped", NOW + 6)
    assert [(each.run, each.spider, each.kind) for each in await history.ends(CrawlId("shop", "c"))] == [
        (2, "", "stopped"), (2, "link", "finished"), (1, "", "finished"),
    ]  # fmt: skip


async def test_a_crawl_that_the_frontier_forgot_is_lost_unless_it_has_ended(history: HistoryStore) -> None:
    await history.record_crawls([info("open"), info("done", ended=NOW)], now=NOW)
    await history.record_lost([CrawlId("shop", "open"), CrawlId("shop", "done"), CrawlId("shop", "none")], now=NOW + 3)
    rows, _ = await history.crawls(limit=9)
    assert {row.info.crawl.crawlid: (row.state, row.info.ended) for row in rows} == {
        "open": ("lost", NOW + 3), "done": ("finished", NOW),
    }  # fmt: skip


async def test_the_latest_examples_of_each_reason_are_kept(history: HistoryStore, url: str) -> None:
    many = [failure("c", number) for number in range(4 * EXAMPLES)]
    for first in range(0, len(many), 7):
        await history.record_messages([], many[first : first + 7])
    await history.record_messages([], [failure("c", 900, reason="http_503"), failure("d", 1)])
    found = await history.failures(CrawlId("shop", "c"), since=0)
    assert {reason: [row.url for row in rows] for reason, rows in found.items()} == {
        "http_503": ["http://a.test/900"],
        "dns": [f"http://a.test/{number}" for number in reversed(range(3 * EXAMPLES, 4 * EXAMPLES))],
    }
    assert (await counts(url))["history_failure"] == EXAMPLES + 2
    assert list(await history.failures(CrawlId("shop", "c"), since=NOW + 500)) == ["http_503"]


async def test_rates_are_differences_of_counters(history: HistoryStore) -> None:
    for second, fetched in ((30, 30), (50, 100), (90, 300), (3690, 900), (3750, 960)):
        await history.record_crawls([info("c", fetched=fetched, waiting=7)], now=NOW + second)
    await history.record_crawls([info("c", fetched=2, run=2, started=NOW + 4000)], now=NOW + 4001)
    points = await history.rates(CrawlId("shop", "c"), started=NOW)
    assert [(point.at - NOW, point.fetched) for point in points] == [(50, 100), (90, 300), (3690, 900), (3750, 960)]
    assert [point.pages_per_second for point in points] == [2.0, 5.0, 5.0, 1.0]  # the pause was no work
    assert points[0].waiting == 7


async def test_a_long_run_has_fewer_points(history: HistoryStore) -> None:
    hours = 24 * 30
    for hour in range(0, hours, 40):
        await history.record_crawls(
            [info(f"c{hour // 240}", fetched=hour)], now=NOW + hour * 3600
        )  # three crawls of ten days
    points = await history.rates(CrawlId("shop", "c0"), started=NOW)
    assert [point.fetched for point in points] == [0, 40, 80, 120, 160, 200]


async def sweep_all(history: HistoryStore, before: float) -> None:
    while await history.sweep(before=before):
        pass


async def test_what_is_older_than_it_is_kept_goes(history: HistoryStore, url: str) -> None:
    old = [info(f"old{number}", ended=NOW - 9 * DAY, started=NOW - 10 * DAY) for number in range(600)]
    domains: dict[CrawlId, Sequence[str]] = {each.crawl: ["a.test"] for each in old}
    await history.record_crawls(old, now=NOW - 9 * DAY, domains=domains)
    running = info("running", started=NOW - 20 * DAY, fetched=1, run=2)
    await history.record_crawls([running], now=NOW - 19 * DAY)
    await history.record_crawls([running, info("new", ended=NOW)], now=NOW, domains={running.crawl: ["b.test"]})
    await history.record_messages(
        [*(end(each.crawl.crawlid, at=NOW - 9 * DAY) for each in old), end("running", at=NOW - 15 * DAY)],
        [failure(each.crawl.crawlid, 1, at=NOW - 9 * DAY) for each in old],
    )
    await sweep_all(history, NOW - 7 * DAY)
    assert await names(history) == ["new", "running"]
    found = await counts(url)
    assert {name: found[f"history_{name}"] for name in ("end", "failure", "domain", "rate")} == {
        "end": 0, "failure": 0, "domain": 1, "rate": 2,
    }  # fmt: skip


async def test_no_transaction_of_a_sweep_deletes_many_rows(history: HistoryStore, url: str) -> None:
    """Crawls have any number of domains, failures and rates. Writers wait while they are deleted."""
    old = [info(f"old{number}", ended=NOW - 9 * DAY, started=NOW - 10 * DAY) for number in range(60)]
    domains = {each.crawl: [f"{number}.test" for number in range(30)] for each in old}
    await history.record_crawls(old, now=NOW - 9 * DAY, domains=domains)
    failed = [failure(each.crawl.crawlid, number, reason=f"r{number}") for each in old for number in range(20)]
    await history.record_messages([], failed)
    before, more = sum((await counts(url)).values()), True
    while more:
        more = await history.sweep(before=NOW - 7 * DAY)
        after = sum((await counts(url)).values())
        assert before - after <= BATCH
        before = after
    assert before == 0


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that databases have executed."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


async def test_old_rates_become_one_an_hour_by_few_statements(history: HistoryStore, statements: list[str]) -> None:
    for minute in range(0, 4 * 60, 7):
        samples = [info(f"c{number}", fetched=minute) for number in range(20)]
        await history.record_crawls(samples, now=NOW + 60 * minute)
    statements.clear()
    position, more = RatePosition(), True
    while more:
        position, more = await history.thin_rates(now=NOW + 2 * DAY + 3 * 3600 + 60, after=position)
    found = [statement for statement in statements if "history_rate" in statement]
    assert len(found) <= 2 * (20 * 4 * 60 // 7 // BATCH + 1)  # of 680 rates: a new process goes through all
    points = await history.rates(CrawlId("shop", "c3"), started=NOW)
    start = NOW % 3600 // 60
    hours = {int(start + minute) // 60: minute for minute in range(0, 4 * 60, 7)}  # the last minute of each
    assert [point.fetched for point in points][:3] == [hours[hour] for hour in sorted(hours)][:3]
    assert len(points) < 4 * 60 // 7 // 2


async def test_one_process_at_a_time_has_a_turn(history: HistoryStore) -> None:
    assert await history.take_turn("sampler", owner="a", seconds=60)
    assert await history.take_turn("sampler", owner="a", seconds=60)
    assert not await history.take_turn("sampler", owner="b", seconds=60)
    assert await history.take_turn("other", owner="b", seconds=60)
    await history.give_back_turn("sampler", owner="b")
    assert not await history.take_turn("sampler", owner="b", seconds=60)
    await history.give_back_turn("sampler", owner="a")
    assert await history.take_turn("sampler", owner="b", seconds=-1)
    assert await history.take_turn("sampler", owner="c", seconds=60)


@pytest.mark.parametrize("address", ["mysql://a/b", "sqlite+aiosqlite:///x", "nonsense"])
def test_an_address_that_cannot_be_used_is_named(address: str) -> None:
    with pytest.raises(BadInput, match="write for example"):
        HistoryStore(address)


async def test_a_database_that_is_away_is_an_outage() -> None:
    store = HistoryStore("postgresql+psycopg://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(HistoryUnavailable) as caught:
        await store.crawls(limit=1)
    assert "secret" not in str(caught.value)
    assert str(caught.value).count("could not be reached") == 1
    await store.close()


async def test_a_row_that_can_never_be_stored_is_refused_and_is_no_outage(history: HistoryStore, url: str) -> None:
    """An outage is waited for; what is refused would be refused for ever. Nothing of the call is written."""
    for run in (2**63, 2**70):
        with pytest.raises(HistoryRefused):
            await history.record_messages([end("good", at=NOW), end("bad", at=NOW, run=run)], [failure("good", 1)])
    with pytest.raises(HistoryRefused):
        await history.record_crawls([info("good"), info("bad", run=2**64)], now=NOW)
    if url.startswith("postgresql"):  # SQLite has no such limits
        with pytest.raises(HistoryRefused):
            await history.record_messages([end("long", at=NOW, event="e" * 33)], [])
        appid = "".join(random.Random(1).choices([chr(number) for number in range(0x4E00, 0x9FFF)], k=4000))
        with pytest.raises(HistoryRefused):
            await history.record_crawls([info("good"), info("bad", appid=appid)], now=NOW)
    assert set((await counts(url)).values()) == {0}


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_reads_of_a_database_that_is_away_do_not_wait_one_after_the_other() -> None:
    """After an outage, reads fail without a try for a while. Then one tries, and the others go on failing."""
    tries: list[int] = []
    answering, is_tried = asyncio.Event(), asyncio.Event()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(len(tries))
        is_tried.set()
        await answering.wait()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    clock = _Clock()
    port = server.sockets[0].getsockname()[1]
    store = HistoryStore(f"postgresql+psycopg://a@127.0.0.1:{port}/none?sslmode=disable", monotonic=clock)

    async def read() -> None:
        with pytest.raises(HistoryUnavailable):
            await store.crawl(CrawlId("shop", "c"))

    answering.set()
    await read()
    first = len(tries)
    await asyncio.gather(*(read() for _ in range(20)))
    assert len(tries) == first
    clock.now = 60.0
    answering.clear()
    is_tried.clear()
    trying = asyncio.create_task(read())
    await is_tried.wait()
    await asyncio.gather(*(read() for _ in range(20)))
    answering.set()
    await trying
    assert len(tries) == 2 * first
    await store.close()
    server.close()
    await server.wait_closed()


async def test_the_use_of_domains_is_kept_for_a_day_whatever_the_rest_is_kept_for(
    history: HistoryStore, url: str
) -> None:
    def use(domain: str, minute: int, used: float = 1.5) -> DomainUse:
        return DomainUse(domain, minute, used, most=2, hits=10, window=60.0)

    begin = int(NOW // 60)
    for minute in range(0, KEPT_MINUTES + 120, 60):
        await history.record_domain_uses([use("a.test", begin + minute), use("b.test", begin + minute)])
    await history.record_domain_uses([use("a.test", begin + minute, 7.5)])  # again, by another process
    found = await history.domain_use("a.test")
    assert [row.minute for row in found] == list(range(begin + minute - KEPT_MINUTES, begin + minute + 1, 60))
    assert (found[-1].used, found[-1].most, found[-1].hits, found[-1].window) == (7.5, 2, 10, 60.0)
    assert (await counts(url))["history_domain_use"] == 2 * len(found)
    assert await history.domain_use("c.test") == []


async def test_the_speed_of_the_service_is_kept_for_a_day(history: HistoryStore, url: str) -> None:
    begin = int(NOW // 60)
    for minute in range(0, KEPT_MINUTES + 120, 60):
        await history.record_service_rate(ServiceRate(begin + minute, 1.5, 7))
    await history.record_service_rate(ServiceRate(begin + minute, 2.5, 8))  # again, by another process
    found = await history.service_rates(KEPT_MINUTES)
    assert [row.minute for row in found] == list(range(begin + minute - KEPT_MINUTES + 60, begin + minute + 1, 60))
    assert found[-1] == (begin + minute, 2.5, 8)
    assert [row.minute for row in await history.service_rates(2)] == [begin + minute - 60, begin + minute]
    assert (await counts(url))["history_service_rate"] == len(found)


async def test_an_unexpected_error_of_the_audit_holds_up_no_other_change(
    history: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail, write = HistoryAudit(history), history.write_audit
    change = AuditedChange(actor="a", action="crawl.stop", subject="shop/1")
    meanwhile: list[asyncio.Task[int]] = []

    async def write_while_another_comes(writes: Sequence[AuditWrite]) -> list[int]:
        if not meanwhile:
            meanwhile.append(asyncio.create_task(trail.begin(change)))
            await asyncio.sleep(0)  # it begins
            raise RuntimeError("an error of this program")
        return await write(writes)

    monkeypatch.setattr(history, "write_audit", write_while_another_comes)
    assert await trail.begin(change) == 0
    assert await asyncio.wait_for(meanwhile[0], 30) > 0


async def test_the_audit_is_written_in_order_and_bounded(
    history: HistoryStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = HistoryAudit(history)
    changes = [
        AuditedChange(actor=f"a{number % 2}", action="crawl.stop", subject=f"shop/c{number}\0", details={"n": number})
        for number in range(9)
    ]
    numbers = await asyncio.gather(*(trail.begin(change) for change in changes))
    assert numbers == sorted(numbers)
    await asyncio.gather(*(trail.end(n, c, AuditOutcome(200)) for n, c in zip(numbers[:3], changes[:3], strict=True)))
    rows = await history.audit(limit=100)
    assert [row.id for row in rows] == numbers[::-1]
    assert [row.status for row in rows] == [None] * 6 + [200] * 3
    assert [row.id for row in await history.audit(before=numbers[4], limit=2)] == [numbers[3], numbers[2]]
    assert len(await history.audit(AuditFilter(actor="a1", action="crawl", subject="c3"), limit=9)) == 1
    assert await history.audit(AuditFilter(action="crawl_stop"), limit=9) == []
    monkeypatch.setattr(retention, "MAX_CHANGES", 4)
    while await history.sweep(before=NOW - 1e9):
        pass
    assert [row.id for row in await history.audit(limit=100)] == numbers[:4:-1]
    while await history.sweep(before=2e10):
        pass
    assert (await counts(url))["history_change"] == 0

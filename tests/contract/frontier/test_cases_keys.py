"""Every key in the server has its name in keys.py, and its end."""

import re
from collections.abc import Callable

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Lane
from gossamer.frontier.valkey.keys import KeyPattern, ShardKeys
from gossamer.model.crawl import BudgetScope, CrawlId, DomainPolicy, Order, Rate, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl, fingerprint
from .pair import Clock
from .stage import Stage

PLAIN = Terms()
NUMBERS = {"generation", "bucket", "band", "priority"}


def documented() -> re.Pattern[str]:
    """What keys.py can spell, for any shard and any names."""

    def any_name(field: re.Match[str]) -> str:
        return r"-?\d+" if field[1] in NUMBERS else ".+"

    spelled = [re.sub(r"\\{(\w+)\\}", any_name, re.escape(pattern)) for pattern in KeyPattern]
    base = re.escape(ShardKeys("PREFIX", 0).base).replace("PREFIX", r"t\d+").replace("0", r"\d+")
    return re.compile(f"{base}(?:{'|'.join(spelled)})")


@pytest.mark.parametrize("shards", [1, 3])
async def test_every_key_is_documented(stage_of: Callable[[int], Stage], shards: int) -> None:
    """A bit of everything, looked at again and again."""
    stage, clock = stage_of(shards), Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=30.0)
    pattern, seen = documented(), set()

    async def look() -> None:
        for key in await stage.keys():
            assert pattern.fullmatch(key), f"not in keys.py: {key}"
            seen.add(re.split(r"[:|]", key.split("}:")[1])[0])

    domains = [f"d{number}.test" for number in range(6)]
    await frontier.set_domain_policy("d0.test", DomainPolicy(scope=BudgetScope.IP))
    await frontier.set_domain_policy("d1.test", DomainPolicy(blacklisted=True))
    await frontier.set_domain_policy(None, DomainPolicy(hits=3))
    crawls = {
        "plain": a_crawl("plain", keep_failed=True),
        "few": a_crawl("few", max_pages=2),
        "slow": a_crawl("slow", rate=Rate(1, 60.0), order=Order.LIFO),
        "own": a_crawl("own", pool="own"),
    }
    for crawl in crawls.values():
        run = await frontier.open_crawl(crawl, expires={"link": clock.now + 86400})
        terms = Terms(domain_max_pages=3) if crawl.id.crawlid == "own" else PLAIN
        await frontier.add(run, terms, [a_batch(d, range(300), priority=p) for d in domains for p in (0, 90)])
        other = Terms(useragent="another")
        await frontier.add(run, other, [a_batch(d, ["again"], unfiltered=True) for d in domains])
    await look()
    await frontier.block_domain("d2.test", seconds=50)
    await frontier.set_crawl_delay("d3.test", seconds=2)
    await frontier.claim_robots("d3.test", "https://d3.test", owner="one", seconds=60)
    await frontier.spiders.announce(Lane.SCRAPY, ["shop"])
    await frontier.claim(run, ["item 0"], owner="one")
    await frontier.save_robots("d4.test", "https://d4.test", b"x", ttl_seconds=60)
    seats = [
        await frontier.open_leaseholder(pool=pool, spiders=["link"], egress=egress)
        for pool, egress in [("shared", ""), ("shared", "192.0.2.1"), ("own", "")]
    ]
    endings = [Outcome.FETCHED, Outcome.RETRY, Outcome.RETURNED, Outcome.FAILED]
    for number in range(12):
        clock.now += 5
        for seat in seats:
            leases = await seat.lease(limit=9)
            await look()
            kept = number % 2  # of the requests of every second call, one is in flight until its worker is dead
            for lease in leases[:kept]:
                await seat.request_redirect(
                    lease, fingerprint=fingerprint("link", f"https://x.test/{number}"), payload=b"chain"
                )
            ended = list(enumerate(leases[kept:], number))
            await seat.settle([Settlement(lease, endings[at % 4], "why", 3.0) for at, lease in ended[1:]])
            await seat.settle([Settlement(lease, Outcome.FAILED, "dns", unanswered=True) for _, lease in ended[:1]])
        await frontier.maintain()
        await look()
    stage.connections[0].countdown = 1  # some shards do not hear of it
    with pytest.raises(FrontierUnavailable):
        await frontier.stop_crawl(CrawlId("app", "plain"))
    await look()
    stage.connections[0].countdown = shards + 1
    with pytest.raises(FrontierUnavailable):
        await frontier.set_domain_policy(None, None)
    await look()
    await frontier.stop_crawl(CrawlId("app", "slow"), spider="link")
    clock.now += 60
    await frontier.maintain()  # the workers are dead by now
    for crawl in crawls.values():
        await frontier.stop_crawl(crawl.id)
    await look()
    assert seen >= {
        "a",
        "app",
        "app-domains",
        "c",
        "call",
        "d",
        "failed",
        "h",
        "stopping",
        "l",
        "later",
        "meta",
        "off",
        "policy",
        "q",
        "r",
        "per-egress",
        "running",
        "s",
        "t",
        "w",
        "x",
    }
    for seat in seats:
        await seat.close()
    for domain in (None, "d0.test", "d1.test"):
        await frontier.set_domain_policy(domain, None)
    for _ in range(2):
        clock.now += 31 * 86400
        await frontier.maintain()
    stays = {key.split("}:")[1] for key, ttl in (await stage.keys()).items() if ttl == -1}
    assert stays <= {"meta", "n", "policy"}, f"without an end: {sorted(stays)}"
    await stage.leave()


@pytest.mark.parametrize(("domain", "waiting"), [("a.test", 5), ("a.test", 1), (None, 5)])
@pytest.mark.parametrize("scope", list(BudgetScope))
async def test_a_hit_is_remembered_as_long_as_the_longer_window_that_comes(
    stage_of: Callable[[int], Stage], domain: str | None, waiting: int, scope: BudgetScope
) -> None:
    """Its record may not end with the shorter one; where the domain's own policy changes, even if nothing waits."""
    stage, clock = stage_of(1), Clock()
    frontier = await stage.frontier(clock=clock)
    await frontier.set_domain_policy(domain, DomainPolicy(hits=1, window_seconds=3.0, scope=scope))
    run = await frontier.open_crawl(a_crawl("one"))
    await frontier.add(run, PLAIN, [a_batch("a.test", range(waiting))])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"], egress="192.0.2.1")
    (lease,) = await seat.lease(limit=1) or await seat.lease(limit=1)  # an egress nobody knew is seen by the next call
    await seat.settle([Settlement(lease, Outcome.FETCHED)])
    await frontier.set_domain_policy(domain, DomainPolicy(hits=1, window_seconds=60.0, scope=scope))
    (life,) = [ttl for key, ttl in (await stage.keys()).items() if "}:w:a.test" in key]
    assert life > 55_000
    await seat.close()
    await stage.leave()


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_records_of_hits_expire_also_where_one_command_cannot_set_many(
    stage_of: Callable[[int], Stage], known: bool
) -> None:
    """Servers before Valkey 9.1 and Redis 8.4 do not know MSETEX."""
    stage = stage_of(1)
    frontier = await stage.frontier()
    connection = stage.connections[0]
    await connection.everywhere("ACL", "SETUSER", "default", "+msetex" if known else "-msetex")
    try:
        run = await frontier.open_crawl(a_crawl("one", rate=Rate(1, 60.0)))
        domains = [f"d{number}.test" for number in range(150)]  # more than are written together
        await frontier.add(run, PLAIN, [a_batch(domain, range(2)) for domain in domains])
        seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        leases = await seat.lease(limit=200)
        held = {key: ttl for key, ttl in (await stage.keys()).items() if "}:w:" in key}
        assert (len(leases), set(held.values())) == (150, {-1}), "a record with a request in flight must not expire"
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        left = {key: ttl for key, ttl in (await stage.keys()).items() if "}:w:" in key}
        assert left.keys() == held.keys()
        assert all(60_000 < ttl <= 2 * 62_000 for ttl in left.values()), left
        await seat.close()
    finally:
        await connection.everywhere("ACL", "SETUSER", "default", "+msetex")
    await stage.leave()

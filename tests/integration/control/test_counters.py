"""Counters over windows, on a real server, with a clock of our own."""

from gossamer.control.stats import LIFE_SECONDS, SILENT_SECONDS, Counters
from gossamer.valkey.shards import Shards


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_count_shows_in_every_window_and_leaves_them_one_after_the_other(shards: Shards) -> None:
    clock = Clock()
    counters = Counters(shards, prefix="t", clock=clock)
    await counters.add("crawler", {"link:200": 3, "link:404": 1})
    everywhere = {"900": 3, "3600": 3, "21600": 3, "43200": 3, "86400": 3, "604800": 3, "lifetime": 3}
    assert (await counters.read("crawler"))["link:200"] == everywhere
    for seconds, gone in ((1000, "900"), (3600, "3600"), (21600, "21600"), (43200, "43200"), (86400, "86400")):
        clock.now = 1_700_000_000.0 + seconds + 900
        assert gone not in (await counters.read("crawler"))["link:200"]
    assert (await counters.read("crawler"))["link:200"] == {"604800": 3, "lifetime": 3}


async def test_counts_of_many_processes_add_up(shards: Shards) -> None:
    for prefix in ("t", "t", "other"):
        await Counters(shards, prefix=prefix).add("kafka-monitor", {"total": 2})
    assert (await Counters(shards, prefix="t").read("kafka-monitor"))["total"]["lifetime"] == 4


async def test_a_counter_keeps_a_bounded_number_of_buckets(shards: Shards) -> None:
    clock = Clock()
    counters = Counters(shards, prefix="t", clock=clock)
    for minute in range(0, 60 * 24 * 30, 47):
        clock.now = 1_700_000_000.0 + minute * 60
        await counters.add("crawler", {"link:200": 1})
    size = await shards.command("{t:stats:crawler}", "HLEN", "{t:stats:crawler}:link:200")
    assert size < 61 + 97 + 169 + 2
    assert (await counters.read("crawler"))["link:200"]["lifetime"] == len(range(0, 60 * 24 * 30, 47))


async def test_a_process_that_falls_silent_is_no_longer_named(shards: Shards) -> None:
    clock = Clock()
    counters = Counters(shards, prefix="t", clock=clock)
    await counters.beat("rest", "host-1:aaaa")
    clock.now += SILENT_SECONDS - 1
    await counters.beat("rest", "host-1:bbbb")
    assert await counters.nodes("rest") == {"host-1": ["aaaa", "bbbb"]}
    clock.now += 2
    assert await counters.nodes("rest") == {"host-1": ["bbbb"]}


async def test_every_key_has_an_end(shards: Shards) -> None:
    counters = Counters(shards, prefix="t")
    await counters.add("crawler", {"link:200": 1})
    await counters.beat("rest", "host-1:aaaa")
    for key in await shards.command("x", "KEYS", "*"):
        assert 0 < await shards.command(key.decode(), "TTL", key) <= LIFE_SECONDS


async def test_a_report_costs_the_same_with_any_number_of_processes(shards: Shards) -> None:
    """Each process reports every few seconds."""
    counters = Counters(shards, prefix="t")

    async def answered() -> int:
        text = (await shards.command("x", "INFO", "stats")).decode()
        return int(text.partition("total_net_output_bytes:")[2].split()[0])

    for number in range(300):
        node = f"host:{number}"
        await counters.beat("rest", node)
        await counters.report_facts(node, {"version": "1" * 100})
        await counters.report_troubles(node, {"app_output": "x" * 100})
    statistics = await answered()
    statistics = await answered() - statistics
    before = await answered()
    await counters.beat("rest", "host:1")
    await counters.report_facts("host:1", {"version": "1"})
    await counters.report_troubles("host:1", {})
    assert await answered() - before - statistics < 300
    assert len(await counters.facts()) == 300
    assert len(await counters.troubles()) == 299


async def test_reports_forget_what_was_not_confirmed(shards: Shards) -> None:
    """Also where no program asks for the list."""
    clock = Clock()
    counters = Counters(shards, prefix="t", clock=clock)
    for number in range(20):
        await counters.report_facts(f"host:{number}", {"version": "1"})
    clock.now += 31
    for _ in range(200):
        await counters.report_facts("host:new", {"version": "1"})
    assert await shards.command("{t:processes}", "HLEN", "{t:processes}") == 1

"""Many crawls of two applications side by side: what happens to one is nothing to the others."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.worker.records import timestamp
from tests.servers.service import talking, up

CRAWLS = 50


async def test_a_stop_and_an_expiry_touch_nobody_else(tmp_path: Path) -> None:
    """Two applications, 50 crawls each, mixed priorities; some of one are stopped, one of the other expires."""
    # One site is slow for everybody, so that there is something to stop and to expire.
    policies = "default: {hits: 1000, window: 1, moderated: false}\ndomains: {site9.test: {hits: 1, window: 8}}\n"
    with FakeWeb.start(WebSpec(hosts=10, pages=60, page_bytes=2000)) as web:
        flags = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
        seeds = web.seeds()
        with up(tmp_path, *flags, policies=policies) as service:
            async with talking(service) as talk:
                slow = seeds[9]
                for n in range(CRAWLS):
                    for app, site in (("alpha", n % 9), ("beta", (n + 4) % 9)):
                        request = {"appid": app, "crawlid": f"c{n}", "maxdepth": 1, "priority": 1 + n % 90}
                        await talk.say({**request, "url": f"{seeds[site]}p/{n + 1}"})
                # Slow ones: of alpha all are stopped, of beta one expires, the other goes on.
                for n in range(3):
                    await talk.say({"appid": "alpha", "crawlid": f"slow{n}", "url": f"{slow}p/{n + 1}", "maxdepth": 1})
                # The slow site's next hit is far away now.
                await talk.until(
                    talk.topics.crawled, lambda found: any(page["crawlid"].startswith("slow") for page in found)
                )
                await talk.say(
                    {"appid": "beta", "crawlid": "late", "url": f"{slow}p/7", "expires": int(time.time()) + 4},
                    {"appid": "beta", "crawlid": "patient", "url": f"{slow}p/8"},
                )
                for n in range(3):
                    stop = {"uuid": f"s{n}", "appid": "alpha", "spiderid": "link", "action": "stop"}
                    await talk.say({**stop, "crawlid": f"slow{n}"})
                    assert (await talk.answer(f"s{n}", appid="alpha"))["total_purged"] <= 1 + 59
                assert (await talk.event("expired", "late", appid="beta"))["total_expired"] == 1
                for app in ("alpha", "beta"):
                    ended = await talk.until(
                        talk.topics.outbound_to(app),
                        lambda found: {f"c{n}" for n in range(CRAWLS)} <= finished(found),
                    )
                    kinds = Counter(message["action"] for message in ended if "event_id" in message)
                    assert kinds["finished"] >= CRAWLS
                    pages = await talk.until(talk.topics.crawled_by(app), lambda found: len(found) >= CRAWLS)
                    assert {page["appid"] for page in pages} == {app}
                    assert not Counter((page["crawlid"], page["url"]) for page in pages).most_common(1)[0][1] > 1
                await talk.event("finished", "patient", appid="beta")
                told = talk.seen[talk.topics.outbound_to("beta")]
                assert {m["action"] for m in told if m.get("crawlid") == "patient"} == {"finished"}


def finished(messages: list[dict[str, Any]]) -> set[str]:
    return {message["crawlid"] for message in messages if message.get("action") == "finished"}


async def test_an_urgent_request_goes_before_the_backlog(tmp_path: Path) -> None:
    policies = "default: {hits: 20, window: 1}\n"
    with FakeWeb.start(WebSpec(hosts=1, pages=300, page_bytes=1000)) as web:
        flags = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
        with up(tmp_path, *flags, policies=policies) as service:
            async with talking(service) as talk:
                base = web.seeds()[0]
                backlog = [{"appid": "bulk", "crawlid": f"b{n % 5}", "url": f"{base}p/{n + 1}"} for n in range(250)]
                await talk.say(*backlog)
                await talk.until(talk.topics.crawled, lambda found: len(found) >= 5)
                await talk.say({"appid": "news", "crawlid": "now", "url": f"{base}p/299", "priority": 90})
                pages = await talk.until(
                    talk.topics.crawled, lambda found: any(page["appid"] == "news" for page in found)
                )
                place = next(at for at, page in enumerate(pages) if page["appid"] == "news")
                # What was leased when it came, and not the 200 that wait.
                assert place < 60


async def test_a_policy_change_is_in_force_within_a_second(tmp_path: Path) -> None:
    """From a file that is edited, and by a message; the web's log is the judge."""
    with FakeWeb.start(WebSpec(hosts=1, pages=400, page_bytes=1000)) as web:
        flags = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
        with up(tmp_path, *flags, policies="default: {hits: 1, window: 60}\n") as service:
            async with talking(service) as talk:
                base = web.seeds()[0]
                requests = [{"appid": "testapp", "crawlid": "c", "url": f"{base}p/{n + 1}"} for n in range(100)]
                await talk.say(*requests)
                await talk.until(talk.topics.crawled, lambda found: len(found) >= 1)
                (tmp_path / "policies.yaml").write_text("default: {hits: 500, window: 1, moderated: false}\n")
                changed = time.time()
                pages = await talk.until(talk.topics.crawled, lambda found: len(found) >= 40)
                assert sorted(page["timestamp"] for page in pages)[1] < timestamp(changed + 1.2)
                stop = {"uuid": "d", "appid": "testapp", "domain": "site0.test", "action": "blacklist-update"}
                await talk.say(stop)
                await talk.answer("d")
                more = [{"appid": "testapp", "crawlid": "d", "url": f"{base}p/{n + 200}"} for n in range(50)]
                await talk.say(*more)
                ask = {"uuid": "i", "appid": "testapp", "spiderid": "link", "action": "info", "crawlid": "d"}
                await talk.say(ask)
                assert (await talk.answer("i"))["total_pending"] == 50
                late = [page for page in await talk.until(talk.topics.crawled, bool) if page["crawlid"] == "d"]
                assert late == []

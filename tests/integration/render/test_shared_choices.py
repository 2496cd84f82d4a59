"""What `auto` has learnt is shared by the workers of a crawl, outlives them, and is the reason in the records."""

import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gossamer.errors import BrowserMissing
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.render.shared_choices import SharedChoices
from gossamer.wiring.browser import no_browser
from tests.integration.render.building import Builder, building
from tests.servers.valkey import standalone

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

WORDS = "<p>" + "words that a reader sees and that stay as they are " * 8 + "</p>"
CHANGED = WORDS + "<script>document.body.insertAdjacentHTML('beforeend', '<a href=/found>more</a>')</script>"
SAME = WORDS + "<script>window.visits = 1</script>"
EMPTY = "<div id=app></div><script>document.getElementById('app').innerHTML = '<h1>Thing</h1>'</script>"
KINDS = {"changed": CHANGED, "same": SAME, "empty": EMPTY}


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[list[Builder]]:
    """Workers of one crawl that share a frontier."""
    async with AsyncExitStack() as open_now:
        frontier = await ValkeyFrontier.connect(open_now.enter_context(standalone()).address)
        open_now.push_async_callback(frontier.close)
        first = await open_now.enter_async_context(
            building(shared=SharedChoices(frontier, "shared"), browser__quiet=0.05)
        )
        for name, body in KINDS.items():
            for number in range(30):
                first.page(f"/{name}/{number}", body)
        found = [first]
        while len(found) < count:
            found.append(first.beside(SharedChoices(frontier, "shared")))
            open_now.push_async_callback(found[-1].backend.close)
        yield found


async def choices(builder: Builder, name: str, numbers: range) -> Counter[str]:
    """The decisions on pages of a kind."""
    pages = [await builder.build(f"/{name}/{number}", because="auto", learns=True) for number in numbers]
    return Counter(page.render_choice for page in pages)


async def test_a_second_worker_and_one_after_a_restart_render_no_more_than_needed() -> None:
    async with workers(3) as (first, second, third):
        for name in KINDS:
            await choices(first, name, range(3))
        await first.backend.close()
        for worker in (second, third):
            assert await choices(worker, "same", range(3, 8)) == {"plain:no_change": 5}
            assert await choices(worker, "changed", range(3, 6)) == {"rendered:change": 3}
            assert await choices(worker, "empty", range(3, 6)) == {"rendered:change": 3}


async def test_a_worker_without_a_browser_hands_over_what_is_known_to_need_one() -> None:
    async with workers(2) as (first, second):
        shared = second.backend._shared
        assert shared is not None
        await second.backend.close()
        second.backend = no_browser(first.backend._http, shared)
        assert await choices(second, "changed", range(1)) == {"plain:no_browser": 1}, "no worker could render it"
        with pytest.raises(BrowserMissing) as missing:
            await choices(second, "empty", range(1))
        assert missing.value.why == "auto", "a worker with a browser decides"
        for name in KINDS:
            await choices(first, name, range(3))
        await first.backend.close()
        other = no_browser(first.backend._http, shared)
        second.backend = other
        assert await choices(second, "same", range(3, 6)) == {"plain:no_change": 3}
        for name in ("changed", "empty"):
            with pytest.raises(BrowserMissing) as missing:
                await choices(second, name, range(3, 4))
            assert (missing.value.why, missing.value.was_sent) == ("auto:change", True)


async def test_what_is_not_known_yet_is_left_to_a_worker_with_a_browser_where_there_is_one() -> None:
    async with workers(2) as (first, second):
        shared = second.backend._shared
        assert shared is not None
        await shared._frontier.announce_browser(pool="shared", worker="one", seconds=60)
        second.backend = no_browser(first.backend._http, shared)
        with pytest.raises(BrowserMissing) as missing:
            await choices(second, "changed", range(1))
        assert missing.value.why == "auto"
        page = await first.build("/changed/0", because="auto", learns=True, in_lane=True)
        assert page.render_choice == "rendered:sample"
        page = await first.build("/same/0", because="auto", why="check", learns=True, in_lane=True)
        assert page.render_choice == "rendered:check"
        assert page.rendering is not None
        assert page.rendering.because == "auto"


async def test_a_server_that_is_away_costs_renderings_and_no_page() -> None:
    async with AsyncExitStack() as open_now:
        server = open_now.enter_context(standalone())
        frontier = await ValkeyFrontier.connect(server.address)
        open_now.push_async_callback(frontier.close)
        builder = await open_now.enter_async_context(
            building(shared=SharedChoices(frontier, "shared"), browser__quiet=0.05)
        )
        for number in range(3):
            builder.page(f"/same/{number}", SAME)
        server.kill()
        assert await choices(builder, "same", range(3)) == {"rendered:sample": 2, "plain:no_change": 1}

"""Processes that lease and settle one crawl and are killed without warning: nothing is lost, nothing done twice."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from tests.servers.nursery import Reared

from .asking import a_batch, a_crawl
from .graph import ends_rendered, reachable, url
from .stage import Stage

WORKERS = 4
KILLS = 5
ONE_LANE = ("one",) * WORKERS
TWO_LANES = ("plain", "both", "browser", "both")


def start(stage: Stage, settled: Path, lanes: str) -> Reared:
    arguments = [stage.server.address, stage.prefix, str(settled), lanes]
    module = "tests.contract.frontier.worker_process"
    log = settled.parents[1] / f"{settled.name}.log"
    return Reared(module, arguments, environment=os.environ, log=log, libraries="commands")


def written(folder: Path) -> Counter[str]:
    """What the workers say they settled, and how often."""
    return Counter(line for file in folder.iterdir() for line in file.read_text().splitlines())


@pytest.mark.parametrize(
    ("stage", "lanes"),
    [("single", ONE_LANE), ("sharded", TWO_LANES), ("cluster", ONE_LANE), ("cluster", TWO_LANES)],
    ids=["single-one lane", "sharded-two lanes", "cluster-one lane", "cluster-two lanes"],
    indirect=["stage"],
)
async def test_killed_workers_lose_nothing(stage: Stage, tmp_path: Path, lanes: tuple[str, ...]) -> None:
    """Every page is settled exactly once in the end, whoever dies when, and the run finishes once. With two lanes, some
    pages change theirs on the way."""
    chance = random.Random(7)
    frontier = await stage.frontier(dead_after_seconds=0.5)
    await frontier.set_domain_policy(
        None, DomainPolicy(hits=100_000, window_seconds=1.0, moderated=False, concurrency=1000)
    )
    run = await frontier.open_crawl(a_crawl("stress"))
    domain, path = url(0)
    await frontier.add(run, Terms(), [a_batch(domain, [path])], seeds=True)
    expected = reachable(0)
    folder = tmp_path / "settled"
    folder.mkdir()
    workers: list[Reared] = []
    try:
        workers = [start(stage, folder / f"{number}", lanes[number]) for number in range(WORKERS)]
        kills, seen_done = 0, 0
        states = [CrawlState.RUNNING]
        async with asyncio.timeout(100):
            while states[-1] is CrawlState.RUNNING:
                info = await frontier.crawl_info(run.crawl.id)
                assert info is not None
                total = info.total()
                assert total.added == total.queued + total.later + total.leased + total.done or stage.shards > 1
                states.append(info.state)
                # Kills are spread over the work, not over time.
                if kills < KILLS and total.done >= seen_done + len(expected) // (KILLS + 2):
                    seen_done, kills = total.done, kills + 1
                    victim = chance.randrange(WORKERS)
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = start(stage, folder / f"{victim}-{kills}", lanes[victim])
                await asyncio.sleep(0.01)
            for worker in workers:
                assert await asyncio.to_thread(worker.wait) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    info = await frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.state, info.run) == (CrawlState.FINISHED, 1)
    assert (info.total().added, info.total().fetched, info.seen) == (len(expected),) * 3
    rendered = sum(map(ends_rendered, expected)) if "browser" in lanes else 0
    assert (info.rendering.added, info.rendering.fetched) == (rendered, rendered)
    settled = written(folder)
    assert not [page for page, times in settled.items() if times > 1], "settled twice"
    # What a killed worker settled and could not write down any more is missing here and counted above.
    assert set(settled) <= {f"https://{url(page)[0]}/{page}" for page in expected}
    assert len(settled) >= len(expected) - 16 * kills
    await stage.leave()

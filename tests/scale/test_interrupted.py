"""A crawl that is interrupted for a moment: nothing is lost. How fast it goes on is for the long runs to say."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.scale import troubles
from tests.scale.interrupted import Interrupted, Size, Trouble, interrupted
from tests.scale.lanes import FastLane, Lane, ScrapyLane
from tests.scale.stores import one_of_eight
from tests.scale.verdict import faults, lost, partial_faults
from tests.servers.small_disk import a_disk

SHORT = Size(
    hosts=20,
    pages=30,
    hits_a_second=10,
    trouble_seconds=1.5,
    before_seconds=0.5,
    after_seconds=0.0,
    dead_after_seconds=1.0,
    latency_ms=50.0,
)
PARTIAL = replace(SHORT, trouble_seconds=6.0, pages=60, dead_after_seconds=2.0, cross_host_share=0.02)
"""Longer than it takes to give up a server that does not answer, and longer than a heartbeat."""


@pytest.mark.parametrize("trouble", [troubles.frozen, troubles.killed])
async def test_a_server_that_is_away(trouble: Trouble) -> None:
    done = await interrupted(trouble, SHORT)
    assert lost(done) == [], done


@pytest.mark.parametrize("trouble", [troubles.frozen, troubles.killed])
async def test_one_of_eight_shards_that_is_away(trouble: Trouble) -> None:
    """How fast the others go on is for the long run to say; that they do, is said here."""
    done = await interrupted(trouble, PARTIAL, stores=one_of_eight)
    assert lost(done) == [], done
    assert done.taken_for_dead == 0, done
    assert done.during > PARTIAL.rate, done


@pytest.mark.parametrize("lane", [FastLane(), ScrapyLane()], ids=["fast", "scrapy"])
async def test_an_output_without_room(tmp_path: Path, lane: Lane) -> None:
    with a_disk(tmp_path / "disk", "16m") as disk:
        done = await interrupted(troubles.full, SHORT, lane=lane, outputs=disk)
    assert lost(done) == [], done


def test_faults_are_named() -> None:
    size = Size()
    good = Interrupted(
        1000,
        0,
        5,
        5,
        0,
        100,
        before=200.0,
        after=195.0,
        again_seconds=4.0,
        spared=80,
        spared_rate=159.0,
        taken_for_dead=0,
        said=[],
    )
    assert faults(good, size) == []
    bad = Interrupted(
        1000,
        1,
        30,
        30,
        1,
        9000,
        before=200.0,
        after=100.0,
        again_seconds=None,
        spared=80,
        spared_rate=100.0,
        taken_for_dead=1,
        said=[],
    )
    assert len(faults(bad, size)) == 6
    assert partial_faults(good, size) == []
    assert len(partial_faults(bad, size)) == 5

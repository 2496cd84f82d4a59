"""Two short runs of `make chaos`: one through files, one through services. The long ones are `make chaos`."""

from pathlib import Path

import pytest

from tests.chaos import stores
from tests.chaos.run import run
from tests.chaos.schedule import Lane

PAGES = 1000
TWICE_AT_MOST = 0.1
"""What is under way at a fault is a larger share of so short a run."""


@pytest.mark.parametrize(("seed", "lane"), [(5, Lane.FILES), (15, Lane.SERVICE)])
async def test_nothing_is_lost_and_the_end_is_told_once(tmp_path: Path, seed: int, lane: Lane) -> None:
    outcome = await run(
        seed,
        tmp_path,
        pages=PAGES,
        pages_a_second=200,
        opener=stores.single,
        kinds=stores.SingleStore.kinds,
        twice_at_most=TWICE_AT_MOST,
    )
    assert outcome.plan.lane is lane
    assert len(set(outcome.done)) >= 3
    assert outcome.verdict.faults == []

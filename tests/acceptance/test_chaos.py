"""A short run of `make chaos`: 1,000 pages under fire. The long ones, and those through services, are `make chaos`."""

from pathlib import Path

from tests.chaos import stores
from tests.chaos.run import run

SEED = 24
"""Workers on files that are killed, cut off and added, while the server is frozen, killed and its clock is set."""
PAGES = 1000
TWICE_AT_MOST = 0.1
"""What is under way at a fault is a larger share of so short a run."""


async def test_nothing_is_lost_and_the_end_is_told_once(tmp_path: Path) -> None:
    outcome = await run(
        SEED,
        tmp_path / "run",
        pages=PAGES,
        pages_a_second=200,
        opener=stores.single,
        kinds=stores.SingleStore.kinds,
        twice_at_most=TWICE_AT_MOST,
    )
    assert len(outcome.done) >= 6
    assert len(set(outcome.done)) >= 3
    assert outcome.verdict.faults == []

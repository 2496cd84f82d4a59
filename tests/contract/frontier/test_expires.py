"""When a spider's part of a crawl expires: at the latest time that was asked for, if all that was asked expires."""

import pytest

from .asking import a_crawl
from .pair import Pair


@pytest.mark.parametrize(
    ("asked", "ends"),
    [((100.0,), 100.0), ((100.0, 200.0), 200.0), ((200.0, 100.0), 200.0), ((100.0, 0.0), None), ((0.0, 100.0), None)],
)
async def test_a_part_expires_with_the_last_of_its_submissions(
    pair: Pair, asked: tuple[float, ...], ends: float | None
) -> None:
    crawl = a_crawl("other")
    for seconds in asked:
        await pair.frontier.open_crawl(crawl, expires={"link": pair.clock.now + seconds if seconds else 0.0})
    pair.clock.now += 99
    assert await pair.frontier.expire_due() == 0
    pair.clock.now += 102
    assert await pair.frontier.expire_due() == (0 if ends is None else 1)

"""The program that measures a worker's memory over many submissions."""

from tests.scale.submissions import GROWTH_BYTES, submissions


def test_every_submission_is_fetched_and_memory_is_measured() -> None:
    done = submissions(300)
    assert done.fetched == done.submissions == 300
    assert 0 <= done.growth < GROWTH_BYTES

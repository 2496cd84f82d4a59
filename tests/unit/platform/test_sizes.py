"""Numbers of bytes as people write them."""

import pytest

from gossamer.platform_client.sizes import exact_size, read_size


@pytest.mark.parametrize(("text", "count"), [("512MB", 512e6), ("1.5 GB", 1.5e9), ("7", 7.0), ("0", 0.0), ("2kB", 2e3)])
def test_a_size_is_read_with_or_without_a_unit(text: str, count: float) -> None:
    assert read_size(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1", "5 TB", "MB", "1e9"])
def test_what_is_no_size_is_none(text: str) -> None:
    assert read_size(text) is None


@pytest.mark.parametrize("count", [0, 7, 1000, 512_000_000, 1_500_000_000, 536_870_912, 10**15])
def test_a_size_that_is_written_is_read_as_it_was(count: int) -> None:
    assert read_size(exact_size(count)) == count

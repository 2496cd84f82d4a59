"""Ranges of users for projects, as operators write them."""

import pytest

from gossamer.errors import BadInput
from gossamer_platform.node.users import DEFAULT_RANGE, parse_project_users


def test_ranges_are_read() -> None:
    assert parse_project_users("on") == DEFAULT_RANGE
    assert parse_project_users("off") is None
    assert parse_project_users("30000-30009") == range(30000, 30010)


@pytest.mark.parametrize("text", ["", "yes", "5-10", "2000-2000", "3000-2000", "2000", "2000-", "-1-5", "1e3-9e9"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="neither on, off, nor a range of user numbers from 1000 on"):
        parse_project_users(text)

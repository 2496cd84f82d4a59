"""Paths of URLs that are made of names."""

import httpx
import pytest

from gossamer.net.paths import path_of


@pytest.mark.parametrize(
    ("name", "segment"),
    [("shop", "shop"), ("a/b", "a%2Fb"), (".", "%2E"), ("..", "%2E%2E"), ("..a", "..a"), ("%2e%2e", "%252e%252e")],
)
def test_each_name_is_one_segment_for_clients(name: str, segment: str) -> None:
    url = httpx.URL(f"http://host.test/v1/crawls/{path_of(name, 'prices')}")
    assert url.raw_path == f"/v1/crawls/{segment}/prices".encode()

"""What a redirect means for the next request."""

import pytest

from gossamer.fetch.exchange import first_header
from gossamer.worker.attempt import cookies_after, method_after


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "GET", "GET"), (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"), (301, "PUT", "PUT"), (307, "POST", "POST"), (308, "POST", "POST"), (302, "HEAD", "HEAD"),
    ],
)  # fmt: skip
def test_the_method_after_a_redirect(status: int, method: str, then: str) -> None:
    """As the Fetch standard has it."""
    assert method_after(status, method) == then


def test_the_location_is_found_in_any_letter_case() -> None:
    assert first_header([("Content-Type", "x"), ("LOCATION", "/y")], "location") == "/y"
    assert first_header([("Content-Type", "x")], "location") is None


def set_cookie(*values: str) -> list[tuple[str, str]]:
    return [("Set-Cookie", value) for value in values]


@pytest.mark.parametrize(
    ("cookie", "to", "sent"),
    [
        ("a=1; Path=/", "http://www.a.test/x", {"a": "1"}),
        ("a=1", "http://b.test/", {}),
        ("a=1", "http://a.test/", {}),
        ("a=1; Domain=a.test", "http://a.test/", {"a": "1"}),
        ("a=1; Domain=.a.test", "http://other.a.test/", {"a": "1"}),
        ("a=1; Domain=b.test", "http://b.test/", {}),
        ("a=1; Secure", "http://www.a.test/", {}),
        ("a=1; Secure", "https://www.a.test/", {"a": "1"}),
        ("a=1; Max-Age=0", "http://www.a.test/", {}),
        ("a=1; Max-Age=-60", "http://www.a.test/", {}),
        ("a=1; Max-Age=60", "http://www.a.test/", {"a": "1"}),
        ("=1", "http://www.a.test/", {}),
        ("nonsense", "http://www.a.test/", {}),
        ("a=b=c", "http://www.a.test/", {"a": "b=c"}),
    ],
)
def test_which_cookies_go_on(cookie: str, to: str, sent: dict[str, str]) -> None:
    """From www.a.test."""
    assert cookies_after("http://www.a.test/", set_cookie(cookie), to, {}) == sent


def test_cookies_of_the_chain_stay_with_their_host_and_can_be_removed() -> None:
    url, there = "http://a.test/", "http://a.test/2"
    assert cookies_after(url, set_cookie("b=2"), there, {"a": "1"}) == {"a": "1", "b": "2"}
    assert cookies_after(url, set_cookie("a=; Max-Age=0"), there, {"a": "1"}) == {}
    assert cookies_after(url, [], "http://b.test/", {"a": "1"}) == {}

"""Patterns of URLs, and paths that repeat themselves."""

import pytest

from gossamer.model.crawl import Terms
from gossamer.policy.patterns import DEFAULT_PATH_REPEATS, path_repeats, signs_of, url_pattern
from gossamer.policy.scope import covers


@pytest.mark.parametrize(
    ("urls", "pattern"),
    [
        (["http://a.test/cal/2031/05", "http://a.test/cal/2032/6"], "http://a.test/cal/N/N"),
        (["http://a.test/cal?month=5", "http://a.test/cal?month=may"], "http://a.test/cal?month=*"),
        (["http://a.test/p-12.html", "http://a.test/p-9.html"], "http://a.test/p-N.html"),
        (["http://a.test/x?b=1&a=2", "http://a.test/x?a=3&b=4"], "http://a.test/x?a=*&b=*"),
        (["http://a.test/x?a=1&b=2&c=3&d=4", "http://a.test/x?e=1&b=2&c=3&d=4&f"], "http://a.test/x?…"),
        (
            ["http://a.test/s/0a8f3c2b9d8e7f60/x", "http://a.test/s/550e8400-e29b-41d4-a716-446655440000/x"],
            "http://a.test/s/*/x",
        ),
        (["http://h1a2b3c4d5e6f.a.test/", "http://h9f8e7d6c5b4a.a.test/"], "http://*.a.test/"),
        (["http://a.test/a/b/a/b/a/", "http://a.test/a/c/a/a/a/x"], "http://a.test/…/a/…"),
        (["http://a.test/xxxxxx", "http://a.test/xxxxxxxxxxxx"], "http://a.test/x…"),
        (["http://a.test:8080/1", "http://a.test:8080/22"], "http://a.test:8080/N"),
        (["http://127.0.0.1/1"], "http://127.0.0.1/N"),
        (["http://[::1]:80/a1"], "http://[::1]:80/aN"),
    ],
)
def test_what_grows_is_no_part_of_a_pattern(urls: list[str], pattern: str) -> None:
    assert {url_pattern(url) for url in urls} == {pattern}


@pytest.mark.parametrize(
    "urls",
    [
        ["http://a.test/wiki/Cat", "http://a.test/wiki/Dog"],
        ["http://a.test/a", "http://b.test/a"],
        ["http://a.test/x?a=1", "http://a.test/x?b=1", "http://a.test/x"],
        ["http://a.test/a/1", "http://a.test/a/1/1"],
        ["http://a.test/how-to-walk-10-miles", "http://a.test/how-to-run-10-miles"],
    ],
)
def test_pages_that_differ_in_words_have_different_patterns(urls: list[str]) -> None:
    assert len({url_pattern(url) for url in urls}) == len(urls)


@pytest.mark.parametrize(
    ("path", "repeats"),
    [("", 0), ("a", 0), ("a/b/c", 0), ("a/b/a", 1), ("a/b/a/b/", 2), ("1/2/3", 2), ("a/a?b/b/b", 1), ("p1/p2/q", 1)],
)
def test_segments_that_repeat_earlier_ones_are_counted(path: str, repeats: int) -> None:
    assert path_repeats(f"http://a.test/{path}") == repeats


def test_a_token_is_found_by_the_name_of_its_parameter() -> None:
    assert signs_of("http://a.test/x?page=2&sid=0a8f3c2b9d8e7f60").token == "sid"
    assert signs_of("http://a.test/x?page=2&q=international-business").token == ""
    assert signs_of("http://a.test/x?a&b&c&d").has_many_parameters
    assert not signs_of("http://a.test/x?a&b&c").has_many_parameters


def test_terms_that_permit_fewer_repeats_do_not_cover_others() -> None:
    assert covers(Terms(), Terms(path_repeats=DEFAULT_PATH_REPEATS))
    assert covers(Terms(path_repeats=9), Terms())
    assert not covers(Terms(path_repeats=1), Terms())

"""Main text of a page: what does not count as a change of it."""

import pytest

from gossamer.fresh.main_text import ContentFacts, body_hash, content_of
from gossamer.fresh.page import short_hash
from gossamer.model.crawl import RevisitRule
from gossamer.policy.urls import fingerprint

PAGE = "<html><head><title>A</title></head><body>{}<main><h1>Title</h1><p>Some words.</p>{}</main>{}</body></html>"


def content(body: bytes, encoding: str = "utf-8", *, is_html: bool = True, drop: str = "") -> ContentFacts:
    rule = RevisitRule(match="", drop=drop)
    return content_of(
        body, encoding, "https://a.test/d/", rule=rule, is_html=is_html, key_of=lambda url: fingerprint(url, seed=0)
    )


def hash_of(*parts: str) -> int:
    return content(PAGE.format(*parts).encode()).text


@pytest.mark.parametrize(
    "parts",
    [
        ("<nav><a href=/x>New menu</a></nav>", "", ""),
        ("", "<script>token = 17</script>", ""),
        ("", "<time>yesterday</time>", ""),
        ("", "<form><input value=abc>Send</form>", ""),
        ("", "\n\n  ", "<footer>17 visitors</footer>"),
    ],
)
def test_menus_scripts_times_and_forms_do_not_count(parts: tuple[str, str, str]) -> None:
    assert hash_of(*parts) == hash_of("", "", "")


def test_words_count() -> None:
    assert hash_of("", "<p>More.</p>", "") != hash_of("", "", "")


@pytest.mark.parametrize("body", [b"", b"%PDF-1.7", "ä".encode()])
def test_what_is_no_html_is_compared_by_its_bytes(body: bytes) -> None:
    assert content(body, "", is_html=False) == ContentFacts(short_hash(body_hash(body)))
    assert body_hash(body) != 0


def test_encodings_that_say_the_same_are_the_same() -> None:
    text = PAGE.format("", "<p>Käse</p>", "")
    assert content(text.encode("latin-1"), "latin-1") == content(text.encode())


def links_of(*parts: str, drop: str = "") -> int:
    return content(PAGE.format(*parts).encode(), drop=drop).link_set


def test_links_are_a_set_of_urls_wherever_they_stand() -> None:
    both = links_of("", "<a href=x>1</a><a href=/y#top>2</a>", "")
    assert both == links_of("<nav><a href=https://a.test/y>2</a></nav>", "", "<a href=../d/x>3</a><a href=x#b>1</a>")
    assert both == links_of("", "<a href=x>1</a><a href=/y>2</a><a href='mailto:me@a.test'>me</a>", "", drop="a")
    assert both != links_of("", "<a href=x>1</a>", "")
    assert both != links_of("", "<a href=x>1</a><a href=y>2</a>", "")
    assert links_of("", "", "") != 0

"""Links of feeds to their hub and to themselves, in headers and bodies."""

import pytest

from gossamer.extract.hub_links import HubLinks, hub_links

URL = "https://a.test/blog/feed"
HUB, SELF = "https://hub.test/", "https://a.test/blog/self"
ATOM = b"""<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom">
<link href="https://hub.test/" rel="hub" /><link rel='self' type="x" href='self'></link>
<entry><link rel="hub" href="https://evil.test/"/></entry></feed>"""
RSS = b"""<rss xmlns:atom="http://www.w3.org/2005/Atom"><channel><link>https://a.test/</link>
<atom:link rel="hub" href="https://hub.test"/><atom:link href="/blog/self" rel="self"/></channel></rss>"""


@pytest.mark.parametrize("body", [ATOM, RSS])
def test_links_in_the_head_of_a_feed(body: bytes) -> None:
    assert hub_links([], body, URL) == HubLinks(HUB, SELF)


@pytest.mark.parametrize(
    "headers",
    [
        [("Link", '<https://hub.test/>; rel="hub", <self>; rel="self"')],
        [("link", "<self>;title=a;rel=self"), ("LINK", '<https://hub.test>; title="a, b"; rel="x HUB"')],
        [("Link", '<self>; rel="hub self"'), ("Link", "<https://hub.test>; rel=hub")],
    ],
)
def test_links_in_headers_count_before_those_of_the_body(headers: list[tuple[str, str]]) -> None:
    other = b'<feed><link rel="hub" href="https://other.test/"/><link rel="self" href="other"/></feed>'
    found = hub_links(headers, other, URL)
    assert found.topic == SELF
    assert found.hub in (HUB, SELF)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"<link" * 50_000, b'<link rel="' * 20_000, b'<link rel="hub" href="mailto:a@x"/>', b"\xff\x00"],
)
def test_what_names_no_hub(body: bytes) -> None:
    assert hub_links([("Link", "<" * 5000), ("Link", "<x>;a=" * 3000)], body, URL).hub == ""

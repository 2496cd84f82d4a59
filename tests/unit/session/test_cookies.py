"""Cookies by RFC 6265bis: what a Set-Cookie header sets, which requests get it, and the bounds of a jar."""

import time

import msgspec
import pytest

from gossamer.frontier.base import MOST_COOKIES
from gossamer.session.cookie import Cookie, parse_cookie_date, parse_set_cookie
from gossamer.session.jar import CookieJar
from gossamer.session.site_session import SiteSession

NOW = 1_800_000_000.0
HTTPS = "https://www.shop.test/a/b"


def header(url: str, *lines: str, to: str = "", site: str = "shop.test") -> str:
    """The Cookie header of a request for `to` (empty: the same URL) after a response with these Set-Cookie lines."""
    jar = CookieJar(site)
    jar.receive(url, [("Set-Cookie", line) for line in lines], now=NOW)
    return jar.header_for(to or url, now=NOW)


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("a=1", "a=1"),
        ("  a = 1 ; Path=/", "a=1"),
        ("a=1=2", "a=1=2"),
        ('a="1;2"', 'a="1'),
        ("just", "just"),
        ("=value", "value"),
        ("a=", "a="),
        ("", ""),
        ("=", ""),
        ("a=1\x07", ""),
        ("a=\t1", "a=1"),
        ("a=" + "x" * 4095, "a=" + "x" * 4095),
        ("a=" + "x" * 4096, ""),
        ("a=1; Path=" + "/y" * 600, "a=1"),  # an attribute that is too long is ignored
        ("a=1; Max-Age=0", ""),
        ("a=1; Max-Age=-9", ""),
        ("a=1; Max-Age=x", "a=1"),
        ("a=1; Max-Age=99999999999999999999", "a=1"),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", ""),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=60", "a=1"),
        ("a=1; Expires=soon", "a=1"),
        ("a=1; SameSite=Strict; HttpOnly; Partitioned", "a=1"),
        ("a=1; Path=/a/c; Path=/a", "a=1"),  # the last one counts
        ("a=1; Path=relative", "a=1"),
        ("__Secure-a=1", ""),
        ("__Secure-a=1; Secure", "__Secure-a=1"),
        ("__Host-a=1; Secure", ""),
        ("__Host-a=1; Secure; Path=/", "__Host-a=1"),
        ("__host-a=1; Secure; Path=/; Domain=shop.test", ""),
        ("__Host-a", ""),  # a value that looks like the prefix of a name
    ],
)
def test_what_a_header_sets(line: str, sent: str) -> None:
    assert header(HTTPS, line) == sent


@pytest.mark.parametrize(
    ("line", "to", "goes"),
    [
        ("a=1; Path=/", "https://www.shop.test/z", True),
        ("a=1; Path=/", "https://shop.test/z", False),
        ("a=1; Path=/", "https://x.www.shop.test/z", False),
        ("a=1; Path=/; Domain=shop.test", "https://shop.test/z", True),
        ("a=1; Path=/; Domain=.SHOP.test", "https://x.y.shop.test/z", True),
        ("a=1; Path=/; Domain=shop.test", "https://notshop.test/z", False),
        ("a=1; Path=/; Domain=other.test", HTTPS, False),
        ("a=1; Path=/; Domain=x.www.shop.test", HTTPS, False),
        ("a=1; Path=/; Domain=test", HTTPS, False),
        ("a=1; Path=/; Domain=", "https://x.www.shop.test/", False),
        ("a=1", "https://www.shop.test/a", True),
        ("a=1", "https://www.shop.test/a/", True),
        ("a=1", "https://www.shop.test/ab", False),
        ("a=1; Path=/a/", "https://www.shop.test/a", False),
        ("a=1; Path=/a/", "https://www.shop.test/a/x?q=/", True),
        ("a=1; Path=/", "http://www.shop.test/", True),
        ("a=1; Path=/; Secure", "http://www.shop.test/", False),
        ("a=1; Path=/", "https://www.shop.test:8443/", True),  # cookies know no ports
    ],
)
def test_where_a_cookie_goes(line: str, to: str, goes: bool) -> None:
    assert (header(HTTPS, line, to=to) == "a=1") is goes


@pytest.mark.parametrize(
    ("url", "domain", "kept"),
    [
        ("https://a.github.io/", "github.io", False),  # of the private section
        ("https://a.co.uk/", "co.uk", False),
        ("https://github.io/", "github.io", True),  # its own host: only that
        ("https://x.foo.ck/", "foo.ck", False),  # the rule *.ck
        ("https://www.ck/", "www.ck", True),  # its exception
    ],
)
def test_no_cookie_is_for_a_public_suffix(url: str, domain: str, kept: bool) -> None:
    cookie = parse_set_cookie(f"a=1; Domain={domain}", url, now=NOW)
    assert (cookie is not None) is kept
    if kept and cookie is not None and domain == "github.io":
        assert cookie.host_only


def test_no_cookie_crosses_sites() -> None:
    jar = CookieJar("shop.test")
    jar.receive("https://evil.test/", [("Set-Cookie", "a=1; Domain=shop.test")], now=NOW)
    assert len(jar) == 0
    jar.receive(HTTPS, [("Set-Cookie", "a=1; Path=/; Domain=shop.test")], now=NOW)
    assert jar.header_for("https://shop.test.evil.test/", now=NOW) == ""


def test_an_address_shares_no_cookies() -> None:
    assert header("http://127.0.0.1/", "a=1; Domain=127.0.0.1", site="127.0.0.1") == "a=1"
    assert header("http://127.0.0.1/", "a=1; Domain=0.0.1", site="127.0.0.1") == ""


def test_an_insecure_response_neither_sets_nor_overlays_a_secure_cookie() -> None:
    jar = CookieJar("shop.test")
    jar.receive(HTTPS, [("Set-Cookie", "sid=good; Secure; Path=/")], now=NOW)
    jar.receive("http://www.shop.test/", [("Set-Cookie", "sid=evil; Path=/")], now=NOW)
    jar.receive("http://www.shop.test/", [("Set-Cookie", "sid=evil; Path=/; Domain=shop.test")], now=NOW)
    jar.receive("http://www.shop.test/", [("Set-Cookie", "new=1; Secure; Path=/")], now=NOW)
    assert jar.header_for(HTTPS, now=NOW) == "sid=good"


def test_longer_paths_come_first_then_older_cookies_and_a_new_value_keeps_its_place() -> None:
    jar = CookieJar("shop.test")
    for at, line in enumerate(("b=1; Path=/", "a=1; Path=/", "c=1; Path=/a", "b=2; Path=/")):
        jar.receive(HTTPS, [("set-cookie", line)], now=NOW + at)
    assert jar.header_for(HTTPS, now=NOW) == "c=1; b=2; a=1"


def test_a_cookie_ends_at_its_time_and_no_later_than_in_400_days() -> None:
    jar = CookieJar("shop.test")
    jar.receive(HTTPS, [("Set-Cookie", "a=1; Max-Age=60"), ("Set-Cookie", "b=1; Max-Age=9999999999")], now=NOW)
    assert jar.header_for(HTTPS, now=NOW + 59) == "a=1; b=1"
    assert jar.header_for(HTTPS, now=NOW + 61) == "b=1"
    assert jar.header_for(HTTPS, now=NOW + 401 * 86400) == ""


def test_a_site_cannot_fill_the_jar() -> None:
    jar = CookieJar("shop.test")
    for number in range(3 * MOST_COOKIES):
        jar.receive(HTTPS, [("Set-Cookie", f"c{number}=1")], now=NOW + number)
    assert len(jar) == MOST_COOKIES
    assert jar.header_for(HTTPS, now=NOW).endswith(f"c{3 * MOST_COOKIES - 1}=1")


def test_cookies_of_a_login_outlive_a_flood_and_those_that_are_sent_outlive_others() -> None:
    """Also where pages set them anew, and where the jar has been stored."""
    jar, given = CookieJar("shop.test"), parse_set_cookie("given=1; Path=/", HTTPS, now=NOW)
    assert given is not None
    jar.receive(HTTPS, [("Set-Cookie", "sid=1; Path=/")], now=NOW, of_login=True)
    jar.put(given)
    jar.receive(HTTPS, [("Set-Cookie", "sid=2; Path=/")], now=NOW)
    jar.receive(HTTPS, [("Set-Cookie", "sent=1; Path=/")], now=NOW)
    jar.receive(HTTPS, [("Set-Cookie", f"idle{number}=1; Path=/idle") for number in range(10)], now=NOW + 1)
    jar.merge([msgspec.convert(msgspec.to_builtins(one), Cookie) for one in jar.take_changes().values() if one])
    jar.put(given)
    for number in range(MOST_COOKIES - 3):
        assert "sent=1" in jar.header_for(HTTPS, now=NOW + 2 + number)
        jar.receive(HTTPS, [("Set-Cookie", f"c{number}=1; Path=/x{number}")], now=NOW + 2 + number)
    for number in range(3 * MOST_COOKIES):
        jar.receive(HTTPS, [("Set-Cookie", f"d{number}=1; Path=/")], now=NOW + 100 + number)
    assert len(jar) == MOST_COOKIES
    sent = jar.header_for(HTTPS, now=NOW + 1000).split("; ")
    assert {"sid=2", "given=1"} <= set(sent)


def test_changes_are_those_that_matter_and_survive_a_merge() -> None:
    jar = CookieJar("shop.test")
    jar.receive(HTTPS, [("Set-Cookie", "a=1; Max-Age=1000"), ("Set-Cookie", "b=1")], now=NOW)
    assert sorted(one.text for one in jar.take_changes().values() if one) == ["a=1", "b=1"]
    assert not jar.receive(HTTPS, [("Set-Cookie", "a=1; Max-Age=1000")], now=NOW + 1)  # the same, a second later
    assert not jar.has_changes
    assert jar.receive(HTTPS, [("Set-Cookie", "b=; Max-Age=0")], now=NOW + 2)
    other = parse_set_cookie("d=4", HTTPS, now=NOW)
    gone = parse_set_cookie("b=1", HTTPS, now=NOW)
    assert other is not None
    assert gone is not None
    jar.merge([other, gone])
    assert jar.header_for(HTTPS, now=NOW + 2) == "d=4"
    assert list(jar.take_changes().values()) == [None]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("Wed, 09 Jun 2021 10:18:14 GMT", 1623233894),
        ("Wednesday, 09-Jun-21 10:18:14 GMT", 1623233894),
        ("Wed Jun  9 10:18:14 2021", 1623233894),
        ("10:18:14 9 june 2021", 1623233894),
        ("Thu, 01 Jan 70 00:00:00 GMT", 0),
        ("Thu, 01 Jan 1600 00:00:00 GMT", None),
        ("Thu, 31 Feb 2021 00:00:00 GMT", None),
        ("Thu, 01 Jan 2021 24:00:00 GMT", None),
        ("Thu, 01 2021 10:00:00 GMT", None),
        ("", None),
    ],
)
def test_dates_of_cookies(text: str, time: float | None) -> None:
    assert parse_cookie_date(text) == time


def of_browser(name: str, value: str, domain: str, **more: object) -> dict[str, object]:
    """A cookie as Chromium's Network.getCookies returns it."""
    known = {"name": name, "value": value, "domain": domain, "path": "/", "expires": -1, "secure": False}
    return known | more


def test_what_scripts_do_to_cookies_is_taken_over_but_not_to_those_that_they_cannot_read() -> None:
    session = SiteSession("shop.test", None)
    lines = ("hidden=1; Path=/; HttpOnly", "wide=1; Path=/; Domain=shop.test", "old=1; Path=/", "late=1; Path=/")
    jar = session._stored.jar
    jar.receive(HTTPS, [("Set-Cookie", line) for line in lines], now=time.time())
    given = session.script_cookies(HTTPS)
    jar.receive(HTTPS, [("Set-Cookie", "late=2; Path=/")], now=time.time())  # meanwhile, by another page
    found = [
        of_browser("hidden", "mine", "www.shop.test"),
        of_browser("wide", "2", ".shop.test", expires=time.time() + 60),
        of_browser("late", "1", "www.shop.test"),
        of_browser("new", "1", "www.shop.test", secure=True),
        of_browser("elsewhere", "1", ".other.test"),
    ]
    session.receive_from_scripts(given, HTTPS, found, number=0)
    sent = jar.header_for(HTTPS, now=time.time()).split("; ")
    assert sorted(sent) == ["hidden=1", "late=2", "new=1", "wide=2"]
    assert "wide=2" in jar.header_for("https://shop.test/", now=time.time())

"""Expressions of --allow and --deny, of services and of extraction rules: searched in a URL as it is sent and as it is
shown, and in which part of it."""

import pytest

from gossamer.errors import BadInput
from gossamer.model.crawl import Terms
from gossamer.policy.scope import UrlExpressions, check_regex, compile_scope, covers, scope_of
from gossamer.policy.urls import canonical, shown_url
from gossamer.settings import load
from gossamer.wiring.plan import make_plan

SHOWN = [
    ("http://a.test/каталог/", "http://a.test/каталог/"),
    ("http://a.test/with space/x?q=ü b", "http://a.test/with space/x?q=ü b"),
    ("http://bücher.test:81/", "http://bücher.test:81/"),
    ("http://straße.test/", "http://straße.test/"),
    ("http://a.test/%41%7E", "http://a.test/A~"),
    ("http://a.test/a%2Fb%3F%23%26%3D%25%2B", "http://a.test/a%2Fb%3F%23%26%3D%25%2B"),  # delimiters
    ("http://a.test/%00%0A%7F%C2%A0%E2%80%AE", "http://a.test/%00%0A%7F%C2%A0%E2%80%AE"),  # invisible
    ("http://a.test/%E9%d0%b0%d0", "http://a.test/%E9а%D0"),  # no UTF-8
    ("http://a.test/e%CC%81", "http://a.test/é"),  # composed
    ("http://a.test/100%", "http://a.test/100%"),
    ("http://xn--a.test/xn--b", "http://xn--a.test/xn--b"),
    ("http://[::1]/%20", "http://[::1]/ "),
]


@pytest.mark.parametrize(("url", "shown"), SHOWN)
def test_a_url_is_shown_as_in_a_browser(url: str, shown: str) -> None:
    assert shown_url(canonical(url)) == shown


def test_a_url_of_plain_letters_is_the_same_object() -> None:
    url = "http://a.test/b/c?d=e"
    assert shown_url(url) is url


def matches(text: str, url: str, *, from_host: bool = False) -> bool:
    return UrlExpressions([text], "deny", from_host=from_host).matches(canonical(url))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/каталог/", "http://a.test/каталог/1"),
        ("/КАТАЛОГ/", "http://a.test/%D0%9A%D0%90%D0%A2%D0%90%D0%9B%D0%9E%D0%93/"),
        ("(?i)/КАТАЛОГ/", "http://a.test/каталог/"),
        ("/with space/", "http://a.test/with space/x"),
        ("/with%20space/", "http://a.test/with space/x"),
        (r"/with\s+space", "http://a.test/with space/x"),
        ("каталог$", "http://a.test/?q=каталог"),
        ("/%D0%BA", "http://a.test/к"),  # as it is sent
        (r"bücher\.test", "http://bücher.test/"),
        (r"xn--bcher-kva\.test", "http://bücher.test/"),
        ("/[а-я]+/[0-9]+$", "http://a.test/товар/12"),
        (r"/товар/\w+$", "http://a.test/товар/обувь"),
        (r"/\w+/товар$", "http://a.test/обувь/товар"),
        (r"\bтовар\b", "http://a.test/товар/"),
        (r"/товар-\d+$", "http://a.test/товар-12"),
        ("/é", "http://a.test/e%CC%81"),
        ("/e\u0301", "http://a.test/é"),
        ("/日本", "http://a.test/日本語"),
        ("/Admin", "http://a.test/%41dmin"),
        (r'/"quoted"', "http://a.test/%22quoted%22"),
        (r"/a\|b", "http://a.test/a|b"),
    ],
)
def test_an_expression_is_found_in_the_url_that_a_person_sees_or_in_the_one_that_is_sent(text: str, url: str) -> None:
    for from_host in (False, True):
        assert matches(text, url, from_host=from_host)
        assert matches(f"(?={text})" if not text.startswith("(?i)") else text, url, from_host=from_host)  # by `re`
        assert not matches(text, "http://a.test/other/9", from_host=from_host)


@pytest.mark.parametrize(
    ("text", "url", "whole", "from_host"),
    [
        ("/shop", "http://shop.test/", True, False),
        ("/shop", "http://shop.test/shop", True, True),
        ("/shop", "http://a.test/x/shop", True, True),
        ("/shop.*", "https://shop.test/x", True, False),
        ("/shop/*", "http://shop.test/x", True, False),
        (r"\/shop", "http://shop.test/", True, False),
        ("(/shop|/cart)", "http://shop.test/", True, False),
        ("/cart|/shop", "http://shop.test/", True, False),
        ("(?i)/SHOP", "http://shop.test/", True, False),
        ("[/]shop", "http://shop.test/", True, False),
        ("/shop|other", "http://other.test/", True, True),
        ("/магазин", "http://магазин.test/", True, False),
        # Those that name the host on purpose.
        ("//shop", "http://shop.test/", True, True),
        (r"\/\/shop", "http://shop.test/", True, True),
        (r"^https?://shop\.test/", "http://shop.test/", True, True),
        ("^http:", "http://shop.test/", True, True),
        ("^https?[:/]+shop", "https://shop.test/", True, True),
        (r"shop\.test/a", "http://shop.test/a", True, True),
        ("/{2}shop", "http://shop.test/", True, True),
        # The start of the path.
        ("^/shop", "http://a.test/shop/1", True, True),
        ("^/shop", "http://shop.test/a/shop", False, False),
        ("^(/shop|/cart)", "http://a.test/cart", True, True),
        (r"\A/shop$", "http://a.test:81/shop", True, True),
        (r"^\/каталог", "http://a.test/каталог", True, True),
        ("[^/]a$", "http://b.test/xa", True, True),
    ],
)
def test_a_slash_is_one_of_the_path_unless_the_expression_names_the_host(
    text: str, url: str, whole: bool, from_host: bool
) -> None:
    assert matches(text, url) == whole
    assert matches(text, url, from_host=True) == from_host


def test_filters_of_a_command_are_searched_from_the_host_and_those_of_a_service_as_in_scrapy() -> None:
    settings = load({"crawl.deny": ("/shop",), "crawl.allow": (r"^/a", r"^/shop")})
    terms = make_plan(settings, ["http://shop.test/"], crawl_id=None, now=0.0).terms
    assert scope_of(terms).reason("http://shop.test/a") is None
    assert scope_of(terms).reason("http://shop.test/shop") == "deny_regex"
    assert scope_of(terms).reason("http://shop.test/b/a") == "allow_regex"
    assert scope_of(Terms(deny_regex=("/shop",))).reason("http://shop.test/a") == "deny_regex"
    assert compile_scope(deny_regex=["/shop"]).reason("http://shop.test/a") == "deny_regex"


def test_terms_whose_expressions_are_searched_differently_do_not_cover_each_other() -> None:
    whole, from_host = (Terms(deny_regex=("/shop",), regex_from_host=value) for value in (False, True))
    assert covers(whole, whole)
    assert not covers(whole, from_host)
    assert covers(Terms(), from_host)


@pytest.mark.parametrize("text", [r"товар\w", r"\bтовар", r"\\\Wя"])
def test_a_service_refuses_what_would_mean_ascii_beside_other_letters(text: str) -> None:
    check_regex(text, "deny", linear=False)
    with pytest.raises(BadInput, match="different things"):
        check_regex(text, "deny", linear=True)
    check_regex(r"/\w+/", "deny", linear=True)
    check_regex(r"товар-\d+", "deny", linear=True)


def test_the_first_rule_that_matches_is_named() -> None:
    together = UrlExpressions(["x", "/каталог/", "^/(?!b)", "//a", "t"], "deny", from_host=True)
    assert together.first_match(canonical("http://b.test/каталог/")) == "/каталог/"
    assert together.first_match("http://b.test/a") == "^/(?!b)"
    assert together.first_match("http://b.test/b") == "t"
    assert together.first_match("http://b.mil/b") == ""

"""Which domains get secret headers, and how records hide them."""

import pytest

from gossamer.errors import BadInput
from gossamer.model.crawl import Terms
from gossamer.policy.secrets import SecretHeaders, has_secrets, redacted_head, with_secrets_for


@pytest.mark.parametrize(
    ("listed", "url", "may"),
    [
        ("a.test", "https://a.test/", True),
        ("a.test", "http://deep.www.a.test.:8080/x", True),
        ("a.test", "http://nota.test/", False),
        ("a.test", "http://a.test.evil.test/", False),
        ("a.test", "http://a.test@evil.test/", False),
        ("api.a.test", "http://api.a.test/", True),
        ("api.a.test", "http://v1.api.a.test/", True),
        ("api.a.test", "http://www.a.test/", False),
        ("co.uk", "http://shop.co.uk/", False),
        ("test", "http://a.test/", False),
        ("intranet", "http://intranet/", True),
        ("intranet", "http://x.intranet/", False),
        ("127.0.0.1", "http://127.0.0.1:81/", True),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("0.0.1", "http://127.0.0.1/", False),
        ("[::1]", "http://[::1]:80/", True),
        ("[::1]", "http://[::2]/", False),
    ],
)
def test_secrets_go_to_listed_domains_and_no_further_than_a_registered_domain(listed: str, url: str, may: bool) -> None:
    assert SecretHeaders(Terms(secrets_for=(listed,))).may_go_to(url) is may


def test_without_a_list_secrets_go_nowhere() -> None:
    assert not SecretHeaders(Terms(cookie="a=1")).may_go_to("http://a.test/")


@pytest.mark.parametrize(
    ("terms", "has"),
    [
        (Terms(), False),
        (Terms(headers={"Accept-Language": "de"}), False),
        (Terms(headers={"X-Key": "1"}), False),
        (Terms(headers={"X-Key": "1"}, secret_headers=("x-key",)), True),
        (Terms(secret_headers=("x-key",)), False),
        (Terms(headers={"authorization": "Bearer x"}), True),
        (Terms(headers={"Cookie": "a=1"}), True),
        (Terms(cookie="a=1"), True),
    ],
)
def test_terms_name_domains_only_when_they_have_a_secret(terms: Terms, has: bool) -> None:
    """Terms without one are the same for all domains of a feed, which are stored once then."""
    assert has_secrets(terms) is has
    listed = with_secrets_for(terms, ["b.test", "a.test"], ["A.test", "*.c.test"]).secrets_for
    assert listed == (("a.test", "b.test", "c.test") if has else ())


@pytest.mark.parametrize("wrong", ["http://a.test/", "a.test/path", "a b", ""])
def test_what_is_no_domain_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput, match="domain"):
        with_secrets_for(Terms(), ["a.test"], [wrong])


def test_the_head_of_a_request_is_shown_without_the_values_of_secret_headers() -> None:
    head = b"GET /authorization: HTTP/1.1\r\nHost: a.test\r\ncookie: a=1; b=2\r\nX-Key:1\r\nX-Cookie: 3\r\n\r\n"
    names = SecretHeaders(Terms(secret_headers=("x-key",))).names
    assert redacted_head(head, names) == (
        b"GET /authorization: HTTP/1.1\r\nHost: a.test\r\ncookie: <redacted>\r\nX-Key: <redacted>\r\n"
        b"X-Cookie: 3\r\n\r\n"
    )
    assert redacted_head(head, frozenset()) is head

"""Neither web pages nor other machines can use an interface of this machine, by whatever header they try."""

import pytest
from starlette.datastructures import Headers

from gossamer.web.access import authorization, foreign_page_fault, is_secret, local_fault, own_origin

HERE = "127.0.0.1"


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in pairs])


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:6800", "LocalHost:6800", "localhost.:6800", "127.0.0.1", "127.0.0.2:1", "[::1]"),
        *("[::1]:6800", "[::ffff:127.0.0.1]:80", "localhost:"),
    ],
)
def test_a_request_to_this_machine_is_local(host: str) -> None:
    for client in (HERE, "127.0.0.2", "::1", "::ffff:127.0.0.1"):
        assert local_fault(headers(("host", host)), client=client) == ""
    assert local_fault(headers(("host", host), ("origin", f"http://{host}".lower())), client=HERE) == ""


@pytest.mark.parametrize(
    "client", ["192.0.2.7", "10.0.0.1", "172.17.0.1", "fd00::2", "fe80::1%eth0", "::ffff:10.0.0.1", "", "0.0.0.0", "::"]
)
def test_a_request_of_another_machine_is_refused_whatever_host_it_names(client: str) -> None:
    for host in ("localhost", "127.0.0.1:6800", "[::1]"):
        assert f"comes from {client}, and" in local_fault(headers(("host", host)), client=client)


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "evil.example", "evil.example:6800", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"),
        *("0.0.0.0", "[::]", "::1", "[::1", "::1]", "[127.0.0.1]", "[localhost]", "[fe80::1%25eth0]", "a.localhost"),
        *("evil.example@127.0.0.1", "evil.example@127.0.0.1:6800", "evil.example:1@localhost", "@localhost"),
        *("localhost/evil", "localhost?x", "localhost#x", "evil\\@localhost", "localhost:x", "localhost:123456"),
        *("localhost:80:80", "localhost, evil.example", "localhost evil.example", "http://localhost", "127.1"),
        *("2130706433", "0x7f.1", "localhost..", ".localhost", "localhost%00", "localh\u00f6st", "l\u00adocalhost"),
    ],
)
def test_a_request_to_any_other_host_is_refused(host: str) -> None:
    """Of these, a browser sends only names that a page has rebound to this machine; the others are no hosts."""
    assert "is addressed to" in local_fault(headers(("host", host)), client=HERE)
    assert "is addressed to" in local_fault(headers(("host", host), ("origin", f"http://{host}")), client=HERE)


def test_a_request_without_a_host_or_with_several_is_refused() -> None:
    assert "no host" in local_fault(headers(), client=HERE)
    assert "localhost and evil.example" in local_fault(
        headers(("host", "localhost"), ("host", "evil.example")), client=HERE
    )
    assert local_fault(headers(("host", "localhost"), ("host", "localhost")), client=HERE)
    assert local_fault(headers(), client=None) == ""
    assert local_fault(headers(("host", "anything")), client=None) == ""


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "https://evil.example", "http://localhost", "http://localhost:6801", "localhost:6800"),
        *("http://localhost:6800/", "http://x@localhost:6800", "http://localhost:6800@evil.example", "http://"),
        *("file://localhost:6800", "http://localhost:6800 http://evil.example", "http:localhost:6800"),
        *("chrome-extension://localhost:6800", "http://127.0.0.1:6800"),
    ],
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    sent = headers(("host", "localhost:6800"), ("origin", origin))
    assert "a page of" in local_fault(sent, client=HERE)
    assert "a page of" in local_fault(sent, client=None)
    assert foreign_page_fault("POST", sent)


@pytest.mark.parametrize(
    ("sent", "address"),
    [
        ([("origin", "http://10.0.0.7:5343"), ("host", "10.0.0.7:5343")], "http://10.0.0.7:5343"),
        # Behind a proxy with TLS, which gives the server another name.
        (
            [("origin", "https://crawl.example"), ("host", "inside:5343"), ("sec-fetch-site", "same-origin")],
            "https://crawl.example",
        ),
        ([("host", "evil.example")], ""),
        ([("origin", "http://evil.example"), ("host", "localhost:5343")], ""),
        ([("origin", "http://a.example"), ("host", "a.example"), ("sec-fetch-site", "cross-site")], ""),
        ([("origin", "null"), ("host", "a.example"), ("sec-fetch-site", "same-origin")], ""),
        ([("origin", "http://a.example"), ("origin", "http://a.example"), ("sec-fetch-site", "same-origin")], ""),
        ([("origin", "http://a.example/<b>"), ("sec-fetch-site", "same-origin")], ""),
    ],
)
def test_the_address_that_a_browser_uses_is_that_of_its_own_page(sent: list[tuple[str, str]], address: str) -> None:
    assert own_origin(headers(*sent)) == address


def test_a_page_of_this_origin_is_not_refused() -> None:
    for origin in ("http://localhost:6800", "https://localhost:6800", "http://LOCALHOST:6800"):
        sent = headers(("host", "localhost:6800"), ("origin", origin))
        assert local_fault(sent, client=HERE) == foreign_page_fault("POST", sent) == ""
    twice = headers(("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost"))
    assert local_fault(twice, client=HERE)
    assert foreign_page_fault("POST", twice)
    no_host = headers(("host", ""), ("origin", "null"))
    assert local_fault(no_host, client=None)
    assert foreign_page_fault("POST", no_host)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "ANY", "post"])
def test_a_change_by_a_foreign_page_is_refused_also_with_a_secret(method: str) -> None:
    for site in ("cross-site", "same-site", "", "Same-Origin", "none, cross-site"):
        assert foreign_page_fault(method, headers(("host", "a"), ("sec-fetch-site", site)))
    assert foreign_page_fault(method, headers(("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")))
    for site in ("same-origin", "none"):
        # A proxy may have changed Host.
        behind_proxy = headers(("host", "127.0.0.1"), ("sec-fetch-site", site), ("origin", "https://jobs.example"))
        assert foreign_page_fault(method, behind_proxy) == ""
    # A browser that does not send Sec-Fetch-Site.
    assert foreign_page_fault(method, headers(("host", "jobs.example"), ("origin", "https://evil.example")))
    assert foreign_page_fault(method, headers(("host", "jobs.example"), ("origin", "null")))
    assert foreign_page_fault(method, headers(("host", "jobs.example"), ("origin", "https://jobs.example"))) == ""
    assert foreign_page_fault(method, headers(("host", "jobs.example"))) == ""  # a program


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_link_of_a_foreign_page_may_be_followed(method: str) -> None:
    sent = headers(("host", "a"), ("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"))
    assert foreign_page_fault(method, sent) == ""


def test_secrets() -> None:
    assert is_secret("wörd".encode(), "wörd")
    assert not is_secret(b"word", "wörd")
    assert not is_secret(b"", "wörd")
    assert not is_secret(b"", "")
    assert not is_secret(b"x", "")


def test_the_header_authorization() -> None:
    assert authorization(headers(("authorization", "BEARER  a b "))) == ("bearer", "a b")
    assert authorization(headers(("authorization", "x"))) == ("x", "")
    assert authorization(headers()) == ("", "")
    assert authorization(headers(("authorization", "Bearer a"), ("authorization", "Bearer b"))) == ("", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-for", "127.0.0.1, 192.0.2.7"),
        ("x-forwarded-for", "192.0.2.7, 127.0.0.1"),
        ("x-forwarded-for", "unknown"),
        ("x-real-ip", "192.0.2.7"),
        ("forwarded", "for=192.0.2.7"),
        ("via", "1.1 proxy"),
    ],
)
def test_a_request_that_a_proxy_passes_on_is_not_local(name: str, value: str) -> None:
    """The proxy is a program of this machine, and may write its own address into Host."""
    for client in (HERE, None):
        assert f"({name}: {value})" in local_fault(headers(("host", "localhost"), (name, value)), client=client)
    assert local_fault(headers(("host", "localhost"), ("x-forwarded-for", "127.0.0.1")), client=HERE) == ""

"""Lists of proxies: URLs, headers, files."""

from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.fetch.proxies import parse_proxies, parse_proxy, pool_egress, read_proxies, split_proxies

LIST = """
# ours
http://one.example:3128   socks5://u:p@two.example

http://KEY:@api.example:8011
    X-Country: de
    X-Session: 7
http://one.example:3128
"""


def test_a_list_has_urls_headers_and_comments() -> None:
    one, two, api = parse_proxies(LIST)
    assert (one.address, two.address, two.user, two.password) == ("one.example:3128", "two.example:1080", b"u", b"p")
    assert (api.user, api.password) == (b"KEY", b"")
    assert api.header_lines == "Proxy-Authorization: Basic S0VZOg==\r\nX-Country: de\r\nX-Session: 7\r\n"
    assert one.header_lines == ""


def test_each_proxy_of_a_list_is_a_text_of_its_own() -> None:
    assert parse_proxy(split_proxies(LIST)[2]) == parse_proxies(LIST)[2]
    assert split_proxies("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://a:1 ftp://u:hidden@b", "proxy 2: cannot use ftp://b\\. Write http://, "),
        ("htp://host:1", "cannot use htp://host:1\\. "),
        ("htp://u:hidden@[::1]:3128/x", r"cannot use htp://\[::1\]:3128\. "),
        ("http://host:0", "cannot use http://host:0\\. "),
        ("127.0.0.1:8080", "cannot use a proxy without|cannot use 127"),
        ("X-Key: hidden", "before the first proxy"),
        ("http://a:1\nHost: hidden", "the header Host cannot be set"),
        ("socks5://a:1\nX-Key: hidden", "only an http:// or https:// proxy can have headers"),
        ("# nothing", "no proxy"),
        (" ".join(f"http://a:{port}" for port in range(1, 1002)), "limit of 1,000"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line_without_secrets(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        parse_proxies(text)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_names_urls_or_files(tmp_path: Path) -> None:
    (tmp_path / "proxies.txt").write_text(LIST)
    text = read_proxies([str(tmp_path / "proxies.txt"), "http://four.example"])
    assert isinstance(text, str)
    assert [proxy.host for proxy in parse_proxies(text)] == [
        "one.example",
        "two.example",
        "api.example",
        "four.example",
    ]
    assert read_proxies(text) == text
    assert read_proxies(7) == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("missing", None, "neither a file"), ("empty", b"# none", "no proxy"), ("latin", b"http://\xff", "not UTF-8"),
     ("wrong", b"http://a:1\nftp://x", "wrong: proxy 2")],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_its_name(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_proxies(str(tmp_path / name))


def test_an_address_without_a_scheme_shows_no_password() -> None:
    with pytest.raises(BadInput) as caught:
        read_proxies("user:hidden@proxy.example:3128")
    assert "hidden" not in str(caught.value)


def test_workers_with_the_same_addresses_have_one_egress() -> None:
    assert pool_egress("") == ""
    assert pool_egress("http://u:p@a:1") == "a:1"
    assert pool_egress("http://a:1 http://b:2") == pool_egress("http://u:p@b:2 http://a:1") != pool_egress("http://a:1")

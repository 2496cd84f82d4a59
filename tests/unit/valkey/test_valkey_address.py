"""Addresses: what they mean, and what is none."""

import msgspec
import pytest

from gossamer.errors import BadInput
from gossamer.valkey.address import Address, Endpoint, with_password


def test_a_socket() -> None:
    address = Address.parse("unix://:p%2Fw@/run/my%20frontier/s.sock?db=3")
    assert address.endpoints == (Endpoint(path="/run/my frontier/s.sock"),)
    assert (address.password, address.database, address.cluster) == ("p/w", 3, False)


def test_a_host_with_everything() -> None:
    address = Address.parse("rediss://crawler:se%40cret@cache.example:6380/2")
    assert address.endpoints == (Endpoint(host="cache.example", port=6380),)
    assert (address.user, address.password, address.database, address.tls) == ("crawler", "se@cret", 2, True)


def test_a_cluster_and_ipv6() -> None:
    address = Address.parse("redis+cluster://a:7000,[::1]:7001,c")
    assert [str(endpoint) for endpoint in address.endpoints] == ["a:7000", "[::1]:7001", "c:6379"]
    assert address.cluster


def test_valkeys_own_scheme_is_the_same() -> None:
    assert Address.parse("valkeys://h") == Address.parse("rediss://h")
    assert Address.parse("valkey+cluster://h") == Address.parse("redis+cluster://h")


def test_a_password_is_never_shown() -> None:
    address = Address.parse("redis://me:hunter2@h/1")
    assert "hunter2" not in f"{address} {address!r}"
    assert str(address) == "redis://me:***@h:6379/1"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no scheme"),
        ("localhost:6379", "no scheme, such as redis://"),
        ("http://h", "unknown scheme"),
        ("redis+sentinel://h", "unknown scheme"),
        ("redis://", "no host"),
        ("redis://h:port", "ort"),
        ("redis://h:99999", "ort"),
        ("redis://h/x", "no database number"),
        ("redis://a,b", "redis\\+cluster"),
        ("redis+cluster://a/1", "no databases"),
        ("unix://s.sock", "absolute"),
        ("unix:///s.sock?datbase=1", "unknown option datbase"),
        ("redis://:secret-word@h:6379/x", "no database number"),
        ("redis://[::1", "expected one of"),
        ("redis://h:0", "port 0"),
        ("redis+cluster://a:7000,b:0", "port 0"),
        ("redis://h?ssl_ca_certs=/ca.pem", "ssl_ca_certs needs TLS: rediss://"),
        ("redis+cluster://h?ssl_cert_reqs=none", "ssl_cert_reqs needs TLS"),
        ("unix:///s.sock?ssl_certfile=/c.pem", "ssl_certfile needs TLS"),
    ],
)
def test_what_is_no_address(text: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong) as refused:
        Address.parse(text)
    assert "secret-word" not in str(refused.value)


def test_a_ca_file_that_is_not_there() -> None:
    with pytest.raises(BadInput, match="certificate files"):
        Address.parse("rediss://h?ssl_ca_certs=/nowhere.pem").tls_context()


@pytest.mark.parametrize("password", ["a/b", "me@home", "a:b", "%41", "100%", "?#&=[]", "two words", "é", "\\"])
@pytest.mark.parametrize(
    "address",
    [
        "redis://h", "redis://me@h:1/2", "rediss://me:@[::1]:5?ssl_cert_reqs=none", "unix:///run/s.sock?db=3",
        "unix://me@/run/s.sock", "redis+cluster://me@h:1,[::2]:3,i",
    ],
)  # fmt: skip
def test_a_password_that_is_named_apart_may_have_any_characters(address: str, password: str) -> None:
    before, after = Address.parse(address), Address.parse(with_password(address, password))
    assert after.password == password
    assert msgspec.structs.replace(after, password="") == before


def test_a_password_in_the_address_and_apart_is_refused_and_not_shown() -> None:
    with pytest.raises(BadInput, match="has a password") as refused:
        with_password("redis://me:s3cret@h", "other")
    assert "s3cret" not in str(refused.value)

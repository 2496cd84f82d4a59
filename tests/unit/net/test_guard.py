"""The guard lets nothing through but the public internet, however an address is spelled or wrapped."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.net.guard import host_address, parse_networks, refusal_reason, within

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "2001:200::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2a00:1450::5efe:808:808",
]

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "carrier",
    "100.127.255.255": "carrier",
    "127.0.0.1": "loopback",
    "127.255.255.255": "loopback",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.1": "protocol",
    "192.0.0.9": "protocol",
    "192.0.0.170": "protocol",
    "192.0.0.192": "protocol",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4 relay",
    "192.168.0.1": "private",
    "192.168.255.255": "private",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.9": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.254": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "0:0:0:0:0:0:0:1": "loopback",
    "::127.0.0.1": "IPv4-compatible",
    "::8.8.8.8": "IPv4-compatible",
    "::ffff:127.0.0.1": "loopback (127.0.0.1)",
    "::ffff:10.0.0.1": "private (10.0.0.1)",
    "::ffff:a9fe:a9fe": "link-local (169.254.169.254)",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "::ffff:0:8.8.8.8": "IPv4-translated",
    "64:ff9b::127.0.0.1": "loopback (127.0.0.1)",
    "64:ff9b::a00:1": "private (10.0.0.1)",
    "64:ff9b:1::8.8.8.8": "NAT64",
    "64:ff9b:2::1": "not global",
    "2002:7f00:1::1": "loopback (127.0.0.1)",
    "2002:a00:1::": "private (10.0.0.1)",
    "2002:c058:6301::": "6to4 relay",
    "2002:808:808::1": "6to4",
    "2001:0:4136:e378:8000:63bf:f7f7:f7f7": "Teredo",
    "2001:0:7f00:1::": "loopback (127.0.0.1)",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "loopback (127.0.0.1)",
    "2001:0:4136:e378:8000:63bf:3f57:fffe": "private (192.168.0.1)",
    "2001:2::1": "protocol",
    "2001:10::1": "protocol",
    "2001:20::1": "protocol",
    "2001:1::1": "protocol",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "3ffe::1": "6bone",
    "100::1": "discard",
    "5f00::1": "not global",
    "4000::1": "not global",
    "fc00::1": "unique local",
    "fd12:3456:789a::1": "unique local",
    "fe80::1": "link-local",
    "febf::1": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "multicast",
    "fe80::1%eth0": "scoped",
    "2606:4700::1%1": "scoped",
    "2a00:1450::5efe:10.0.0.1": "private (10.0.0.1)",
    "2a00:1450::200:5efe:127.0.0.1": "loopback (127.0.0.1)",
    "localhost": "not an IP address",
    "": "not an IP address",
    "127.1": "not an IP address",
    "[::1]": "not an IP address",
    "8.8.8.8:80": "not an IP address",
    "8.8.8.8\x00": "not an IP address",
}

LOOPBACK_SPELLINGS = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0X7F.0.0.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.1",
    "0177.0.0.01",
    "127.0.0.0x1",
    "１２７.0.0.1",
    "127。0。0。1",
    "１２７．０．０．１",
    "①②⑦.0.0.1",
    "%31%32%37.1",
    "127%2E0%2E0%2E1",
    "[::ffff:127.0.0.1]",
    "::ffff:127.0.0.1",
    "[::FFFF:7F00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]",
]


@pytest.mark.parametrize("ip", PUBLIC)
def test_public_addresses_pass(ip: str) -> None:
    """The neighbours of every refused network, and what carries a public address."""
    assert refusal_reason(ip) is None


@pytest.mark.parametrize(("ip", "reason"), REFUSED.items())
def test_other_addresses_are_refused_with_the_reason(ip: str, reason: str) -> None:
    """Each special-purpose network, and every wrapping of a private IPv4 address."""
    assert reason in (refusal_reason(ip) or "")


@given(st.ip_addresses())
def test_nothing_passes_that_the_standard_library_calls_special(ip: ipaddress.IPv4Address) -> None:
    """Its categories are a second opinion that is the same in all Python versions."""
    if refusal_reason(str(ip)) is None and not isinstance(ip, ipaddress.IPv6Address):
        assert not any((ip.is_private, ip.is_multicast, ip.is_reserved, ip.is_loopback, ip.is_link_local))


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_judged_as_the_address_itself(ip: ipaddress.IPv4Address) -> None:
    """Mapped, NAT64 and ISATAP pass exactly where the IPv4 address passes; the tunnels that were given up never do."""
    high, low = int(ip) >> 16, int(ip) & 0xFFFF
    for wrapped in (f"::ffff:{ip}", f"64:ff9b::{ip}", f"2a00:1450::5efe:{ip}"):
        assert (refusal_reason(wrapped) is None) == (refusal_reason(str(ip)) is None)
    for tunnel in (f"2002:{high:x}:{low:x}::1", f"2001:0:{high:x}:{low:x}::1", f"2001:0:808:808:0:0:{high:x}:{low:x}"):
        assert refusal_reason(tunnel) is not None


@given(st.text(max_size=40))
def test_any_text_is_judged_without_an_exception(text: str) -> None:
    """What is no address is refused, and `host_address` gives addresses only."""
    assert refusal_reason(text) is None or refusal_reason(text)
    address = host_address(text)
    assert address is None or ipaddress.ip_address(address)


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
def test_every_spelling_of_loopback_is_seen_through(host: str) -> None:
    """The WHATWG URL host parser's spellings all mean one address."""
    assert host_address(host) == "127.0.0.1"
    assert refusal_reason(host_address(host) or "") == "loopback"


@pytest.mark.parametrize(
    ("host", "ip"),
    [("[::1]", "::1"), ("::1", "::1"), ("[2001:DB8:0::1]", "2001:db8::1"), ("0", "0.0.0.0"), ("0x", "0.0.0.0")],
)
def test_other_literals_get_their_shortest_form(host: str, ip: str) -> None:
    """With and without brackets."""
    assert host_address(host) == ip


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "example.com",
        "127.0.0.1.example.com",
        "1e3",
        "a b",
        "1.2.3.4.5",
        "256.256.256.256",
        "[::1",
        "[fe80::1%eth0]",
        "user@127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1/",
        "127.0.0.1#",
        "127.0.0.1\t",
        "\\127.1",
        "é",
    ],
)
def test_names_and_nonsense_are_no_addresses(host: str) -> None:
    """In particular not what would only become an address by being cut."""
    assert host_address(host) is None


def test_networks_hold_mapped_addresses_too() -> None:
    """The kernel connects to a mapped address by IPv4, so a permission for the network covers it."""
    networks = parse_networks(["10.0.0.0/8", "fd00::/8", " 192.168.1.1 "])
    assert within("10.1.2.3", networks)
    assert within("::ffff:10.1.2.3", networks)
    assert within("fd00::1", networks)
    assert within("192.168.1.1", networks)
    assert not within("192.168.1.2", networks)
    assert not within("nonsense", networks)


@pytest.mark.parametrize("network", ["10.0.0.1/8", "nonsense", "", "10.0.0.0/33", "::/129"])
def test_a_network_that_cannot_be_read_is_bad_input(network: str) -> None:
    """And the message says what would be right."""
    with pytest.raises(BadInput, match="write for example"):
        parse_networks([network])

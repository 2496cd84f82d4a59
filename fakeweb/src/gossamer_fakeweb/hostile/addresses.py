"""Spellings of addresses that a crawler of the public internet must not connect to, and pages that lead there.

Spellings may be added, at the end of `_BROKEN`: a spelling's place in FORMS is the number of its host
(`bad-private-redirect-7.test`), which reports of failures name. None may be removed: filters differ in those that they
miss.
"""

from gossamer.fakeweb.answer import Answer, redirect
from gossamer_fakeweb.hostile.case import Asked, Case, Cases, links

_LOOPBACK = (
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7F.1", "0177.0.0.1",
    "017700000001", "0x7f.0x0.0x0.0x1", "0x7f.0.0.01", "00000177.0.0.1", "127.0.0.1.", "127.1.", "2130706433.",
    "127.000.000.001", "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "１２７.０.０.１", "127。0。0。1", "127｡0｡0｡1",
    "①②⑦.⓪.⓪.①", "0x7f%2e1", "１２７.1", "127\u00ad.0.0.1",
)  # fmt: skip
"""127.0.0.0/8 as C libraries and browsers read it: octal, hexadecimal, in fewer parts, escaped, in other digits."""
_THIS = ("0", "0.0.0.0", "0x0", "00", "0.0.0.1", "0.", "0.1", "000.000.000.000")
"""0.0.0.0/8, which many systems take for this machine."""
_PRIVATE = (
    "10.0.0.1", "10.1", "167772161", "0xa.1", "012.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.254",
    "0xac.0x10.1", "192.168.0.1", "192.168.1", "0xc0a80001", "3232235521", "0300.0250.0.1", "192.168.0.1.",
)  # fmt: skip
# 169.254.0.0/16. Cloud providers serve the secrets of a machine there.
_LINK_LOCAL = (
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "169.254.43518",
    "169.16689662", "169.254.169.254.", "169。254。169。254", "169.254.170.2", "169.254.0.1",
)  # fmt: skip
# Reserved by IANA: shared, benchmarks, documentation, multicast, future use.
_OTHER_IPV4 = (
    "100.64.0.1", "100.100.100.200", "100.127.255.254", "1681915905", "192.0.0.1", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "198.18.0.1", "198.19.255.254", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255", "4294967295", "0xffffffff",
)  # fmt: skip
# With user and password before the host, which may look like another host.
_USERINFO = (
    "user:pw@127.0.0.1", "8.8.8.8@127.0.0.1", "8.8.8.8:80@127.0.0.1", "example.com%40127.0.0.1@127.0.0.1",
    "@127.0.0.1", ":@10.0.0.1", "a@b@169.254.169.254", "[::1]@127.0.0.1",
)  # fmt: skip
# Loopback, mapped and translated IPv4 (RFC 4291, 6052, 8215, 3056, 4380, 5214), local and reserved networks.
_IPV6 = (
    "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]", "[0:0:0:0:0:0:0:0]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[::FFFF:127.0.0.1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::ffff:a9fe:a9fe]",
    "[::ffff:169.254.169.254]", "[::ffff:100.64.0.1]", "[::ffff:0.0.0.0]", "[::ffff:0:127.0.0.1]", "[::127.0.0.1]",
    "[::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b::6440:1]",
    "[64:ff9b:1::1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a00:1::1]", "[2002:a9fe:a9fe::1]",
    "[2002:c0a8:1::1]", "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[2001:0:7f00:1:8000:63bf:f7f7:f7f7]",
    "[2001:0:4136:e378:8000:63bf:5601:5601]", "[fe80::1]", "[fe80::a9fe:a9fe]", "[febf::1]", "[fec0::1]", "[fc00::1]",
    "[fd00::1]", "[fd00:ec2::254]", "[fe80::5efe:127.0.0.1]", "[2a00:1450::5efe:10.0.0.1]",
    "[2a00:1450::200:5efe:127.0.0.1]", "[2001:db8::1]", "[3fff::1]", "[100::1]", "[2001:2::1]", "[2001:10::1]",
    "[2001:20::1]", "[3ffe::1]", "[4000::1]", "[5f00::1]", "[ff02::1]", "[ff0e::1]",
)  # fmt: skip
_ZONES = ("[fe80::1%25lo]", "[fe80::1%lo]", "[::1%25lo]", "[::1%lo]", "[fe80::1%251]")
_NAMES = ("localhost", "LOCALHOST", "localhost.", "ｌｏｃａｌｈｏｓｔ", "local%68ost", "loc\u00adalhost")
# Hosts that are none, or end earlier than they seem to.
_BROKEN = (
    "127.0.0.1%00.example.test", "127.0.0.1%0d%0aX-A:b", "127.0.0.1%20", "127.0.0.256", "127.0.0.1.1", "0x7g.1",
    "08.0.0.1", "[::1", "::1", "[::ffff:127.1]", "[::1].example.test", "[v1.127]", "127.0.0.1\\", "127.0.0.1#@8.8.8.8",
    "127.0.0.1?@8.8.8.8", "127.0.0.1\\@8.8.8.8", "127.0.0.1/@8.8.8.8", "99999999999", "0x100000000",
    "1.2.3.4.5.6", "-1", "..", "127..1",
)  # fmt: skip

FORMS: tuple[str, ...] = (
    *_LOOPBACK, *_THIS, *_PRIVATE, *_LINK_LOCAL, *_OTHER_IPV4, *_USERINFO, *_IPV6, *_ZONES, *_NAMES, *_BROKEN,
)  # fmt: skip
"""Hosts (some with user and password before them) as they stand in a URL. Each is an address that is not on the public
internet, a name of one, or no host at all."""


def form_url(form: str, port: int, path: str = "/") -> str:
    """Return a URL with this host. Where a form contains the end of the host (`\\`, `#`, `?`, `/`), the port stands
    before that."""
    for mark in "\\#?/":
        host, found, rest = form.partition(mark)
        if found:
            return f"http://{host}:{port}{mark}{rest}{path}"
    return f"http://{form}:{port}{path}"


def _links(asked: Asked) -> Answer:
    return links(*(form_url(form, asked.private_port, f"/link/{number}") for number, form in enumerate(FORMS)))


def _schemes(asked: Asked) -> Answer:
    """Forms of an address without the scheme, with another scheme, and oddly written."""
    port = asked.private_port
    return links(
        *(f"//{form}:{port}/bare" for form in _LOOPBACK),
        *(f"https://{form}:{port}/tls" for form in _LOOPBACK),
        *(f"http:\\\\{form}:{port}\\slashes" for form in _LOOPBACK),
        *(f"ht\ntp:///{form}:{port}/three" for form in _LOOPBACK),
        *(f"  HTTP:{form}:{port}/none" for form in _LOOPBACK),
        *(f"http://{form}/default" for form in _LOOPBACK),
    )


def _redirect(asked: Asked) -> Answer:
    url = form_url(FORMS[asked.copy % len(FORMS)], asked.private_port, f"/redirect/{asked.copy}")
    location = url.encode().decode("latin-1")  # as servers send it: the bytes of UTF-8
    return Answer(status=302, headers=(("Location", location),))


def _refresh(asked: Asked) -> Answer:
    tags = (
        f'<meta http-equiv=refresh content="0; url={form_url(form, asked.private_port, "/refresh")}">' for form in FORMS
    )
    return Answer(headers=(("Content-Type", "text/html; charset=utf-8"),), body="".join(tags).encode())


def _base(asked: Asked) -> Answer:
    body = f'<base href="http://127.0.0.1:{asked.private_port}/base/"><a href="a">a</a><a href="/b">b</a>'
    return Answer(headers=(("Content-Type", "text/html"),), body=body.encode())


def _hops(asked: Asked) -> Answer:
    """Redirect over two hosts of this web, and then to a private address."""
    if asked.copy < 2:
        return redirect(f"{asked.base(f'bad-private-hops-{asked.copy + 1}.test')}/")
    return redirect(f"http://169.254.169.254:{asked.private_port}/latest/meta-data/")


CASES: Cases = {
    "private-links": Case("links to private addresses, in every spelling", _links),
    "private-schemes": Case("the same, with the URL oddly written", _schemes),
    "private-refresh": Case("refreshes to private addresses", _refresh),
    "private-base": Case("a base at a private address", _base),
    "private-hops": Case("redirects to a metadata service by way of honest hosts", _hops),
    "private-redirect": Case("redirects to a private address, by its number", _redirect),
}

"""What is crawled: hostile hosts, private addresses in every spelling, and names that lead to them."""

from dataclasses import dataclass
from ipaddress import ip_address

from gossamer.errors import BadUrl
from gossamer.fakeweb import FakeWeb
from gossamer.policy.urls import canonical
from gossamer_fakeweb.hostile.addresses import FORMS, form_url
from gossamer_fakeweb.hostile.web import NUMBERED

PUBLIC = "93.184.215.14"
"""The one address on the public internet that is connected to; inside a network of one's own it is this machine."""

_BY_NAME = (
    "127.0.0.1", "0.0.0.0", "10.1.2.3", "100.64.9.9", "169.254.169.254", "172.16.5.5", "192.0.0.192", "192.168.1.1",
    "198.18.0.1", "203.0.113.1", "224.0.0.9", "240.1.1.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "fe80::1",
    "fc00::1", "fd00:ec2::254", "2001:db8::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "ff02::1", "::127.0.0.1",
)  # fmt: skip

VOLLEY = (
    "gzip-bomb",
    "endless-body",
    "page-long",
    "links-many",
    "deep-formatting",
    "brotli-bomb",
    "page-noise",
    "gzip-twice",
)
"""The cases that take the most memory; many at once fill every slot with them."""


@dataclass(frozen=True, slots=True)
class Target:
    """One seed."""

    case: str
    url: str
    """Canonical."""
    kind: str


_SHORT_EVERY = 12
_SHORT_SKIPS = ("open-", "links-", "charset-", "zstd-", "brotli-", "deflate-", "robots-to", "page-", "attributes-")


def hostile(web: FakeWeb, *, short: bool, copies: int) -> list[Target]:
    """Each case once, and `copies` more of the costly ones. `short`: some kinds are left out, as is most of those
    numbered by address."""
    targets = []
    count = 0
    for place in web.hostile_places():
        if short and (place.name.startswith(_SHORT_SKIPS) or (place.kind == "pages" and place.name != "comment-row")):
            continue
        if short and place.name in NUMBERED:
            count += 1
            if count % _SHORT_EVERY:
                continue
        targets.append(Target(place.name, place.url, place.kind))
    for number in range(1, copies + 1):
        targets += [Target(name, f"http://bad-{name}-{number}.test:{web.port}/", "volley") for name in VOLLEY]
    return targets


def spelt(port: int) -> tuple[list[Target], list[str]]:
    """What the page of links to private addresses leads to, and those links that are no URL at all. No seeds: the
    command refuses them at once."""
    targets, no_urls = [], []
    for number, form in enumerate(FORMS):
        try:
            url = canonical(form_url(form, port, f"/link/{number}"))
        except BadUrl:
            no_urls.append(form)
        else:
            if url.endswith(f"/link/{number}"):  # the others end before their path, and are one URL
                targets.append(Target(f"link {form}", url, "links"))
    return targets, no_urls


def named(port: int) -> list[Target]:
    """Names that a name server of an attacker's answers for; see `names`."""
    public = _hex(PUBLIC)
    hosts = {f"name of {address}": f"{_hex(address)}.ip.example" for address in _BY_NAME}
    for address in ("127.0.0.1", "169.254.169.254", "10.0.0.1"):
        hosts[f"{address} at second sight"] = f"{public}-{_hex(address)}.turn.example"
        hosts[f"{address} at first sight"] = f"{_hex(address)}-{public}.turn.example"
        hosts[f"{address} beside another"] = f"{_hex(address)}-{public}.both.example"
    hosts["another name of localhost"] = "alias.example"
    hosts["a name without an answer"] = "silent.example"
    hosts["an honest name"] = f"{public}.ip.example"
    return [Target(case, f"http://{host}:{port}/", "names") for case, host in hosts.items()]


def _hex(address: str) -> str:
    return ip_address(address).packed.hex()

"""The three sites that are crawled: their shape, and how large they are in a full and in a quick run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gossamer.fakeweb import WebSpec


@dataclass(frozen=True, slots=True)
class Website:
    """One site of the comparison."""

    name: str
    spec: WebSpec
    tls: bool = False

    @property
    def pages(self) -> int:
        """Number of pages of all hosts together. Every crawler has to fetch each of them once."""
        return self.spec.hosts * self.spec.pages

    def share(self, share: float) -> "Website":
        """Return the site with this share of the pages of each host, at least one."""
        return replace(self, spec=replace(self.spec, pages=max(1, round(self.spec.pages * share))))

    def describe(self) -> str:
        """For a heading."""
        spec = self.spec
        hosts = f" on {spec.hosts} hosts" if spec.hosts > 1 else ""
        ways = ("TLS, " if self.tls else "") + ("kept alive" if spec.keep_alive else "each on a new connection")
        return f"{self.pages:,} pages of {spec.page_bytes // 1000} KB with {spec.out_degree} links{hosts}, {ways}"


_FULL = (
    Website("A", WebSpec(hosts=1, pages=20_000, page_bytes=12_000, out_degree=20)),
    Website("B", WebSpec(hosts=1, pages=2_000, page_bytes=138_000, out_degree=226)),
    # Half of the links lead to other hosts: with fewer, the links of a page would all be the same few.
    Website(
        "C",
        WebSpec(hosts=50, pages=20, page_bytes=138_000, out_degree=226, cross_host_share=0.5, keep_alive=False),
        tls=True,
    ),
)
_QUICK_PAGES: Mapping[str, tuple[int, int]] = {"A": (1, 700), "B": (1, 100), "C": (10, 4)}
"""Hosts and pages of each host, so that all crawlers together take seconds."""


def websites(*, quick: bool) -> tuple[Website, ...]:
    """All three, by name: A, B, C."""
    if not quick:
        return _FULL
    return tuple(
        replace(site, spec=replace(site.spec, hosts=hosts, pages=pages))
        for site in _FULL
        for hosts, pages in [_QUICK_PAGES[site.name]]
    )


def durability_website(*, quick: bool) -> Website:
    """Site A, shorter: it is crawled several times."""
    return replace(_FULL[0], spec=replace(_FULL[0].spec, pages=800 if quick else 8_000))

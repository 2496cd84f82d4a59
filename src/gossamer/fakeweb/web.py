"""A running fake web as its visitors see it, whether it runs in this process or in another."""

from collections.abc import Collection, Iterable

from gossamer.fakeweb.expected import Expected, expected, graph
from gossamer.fakeweb.site import Site
from gossamer.fakeweb.spec import WebSpec

ADDRESS = "127.0.0.1"
"""Where a fake web listens: it is for one machine only."""


class Web:
    """Names, addresses and the expected outcome of one running fake web."""

    def __init__(self, spec: WebSpec, *, scheme: str, port: int) -> None:
        self.spec = spec
        self.scheme = scheme
        self.port = port
        self.site = Site(spec, scheme=scheme, port=port)

    def url(self, host: int | str = 0, page: int | str = 0) -> str:
        """The URL of a generated page (host's number, page's number), or of any path (text) on any host (name)."""
        return self.site.base(host) + (page if isinstance(page, str) else self.site.path(page))

    def seeds(self) -> list[str]:
        """The first page of every host."""
        return self.site.seeds()

    def resolve_overrides(self) -> list[str]:
        """`host:address` for each generated host, as `gossamer crawl --resolve` takes it. The port is in the URLs."""
        named = [f"{host}:{ADDRESS}" for host in self.site.hosts()]
        # Hostile hosts make up names as they go.
        return [*named, f"*.test:{ADDRESS}"] if self.spec.hostile else named

    def graph(self, *, seeds: Iterable[int] | None = None) -> set[str]:
        """See `gossamer.fakeweb.expected.graph`."""
        return graph(self.site, seeds=seeds)

    def expected(
        self,
        *,
        seeds: Iterable[int] | None = None,
        scope: Collection[int] | None = None,
        depth: int | None = None,
        obey_robots: bool = True,
    ) -> dict[str, Expected]:
        """See `gossamer.fakeweb.expected.expected`."""
        return expected(self.site, seeds=seeds, scope=scope, depth=depth, obey_robots=obey_robots)

"""The URLs of a crawl: those given, and those of --seeds, which may be a file, standard input or a URL."""

from collections.abc import Sequence

from gossamer.cli.inputs import SEEDS_BYTES, seed_lines, seed_text
from gossamer.errors import BadInput, FetchError
from gossamer.fetch.exchange import Exchange
from gossamer.fetch.resolve import Resolver
from gossamer.policy.locations import location_target
from gossamer.policy.urls import canonical, host
from gossamer.settings import Settings
from gossamer.wiring.parts import make_clients
from gossamer.worker.redirects import MAX_HOPS, REDIRECTS, location


async def gather_seeds(
    settings: Settings, resolver: Resolver, urls: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """All of them as written, in order. Raises BadInput for a source that cannot be had or names none."""
    found = list(urls)
    for source in sources:
        if source.startswith(("http://", "https://")):
            found += await _fetched(settings, resolver, source)
        else:
            found += seed_lines(source)
    return found


async def _fetched(settings: Settings, resolver: Resolver, source: str) -> list[str]:
    clients = make_clients(settings, resolver, body_bytes=SEEDS_BYTES)
    url = canonical(source)
    own = host(url) if settings.crawl.allow_private else ""
    headers = (("User-Agent", settings.fetch.user_agent), ("Accept", "text/plain,*/*;q=0.5"))
    try:
        for _ in range(MAX_HOPS + 1):
            fetched = await clients.fetch(
                Exchange(
                    url,
                    headers=headers,
                    proxy=settings.fetch.proxy or None,
                    insecure=settings.crawl.insecure,
                    allow_private=host(url) == own,  # as for a seed: its host, not where it leads
                )
            )
            where = location(fetched.headers)
            if fetched.status not in REDIRECTS or where is None:
                break
            target = location_target(url, where)
            if target is None:
                raise BadInput(f"the seeds {source} cannot be had: they lead to no web page")
            url = target
    except FetchError as error:
        raise BadInput(f"the seeds {source} cannot be had: {error}") from None
    finally:
        await clients.close()
    if fetched.status != 200 or fetched.truncated:
        why = (
            f"they are longer than {SEEDS_BYTES // 2**20} MiB"
            if fetched.truncated
            else f"the answer was {fetched.status} {fetched.reason}"
        )
        raise BadInput(f"the seeds {source} cannot be had: {why}")
    return seed_text(fetched.body, source)

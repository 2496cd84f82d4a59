"""Invented requests, as a worker would send them."""

import random
from collections.abc import Callable, Iterable, Iterator

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.request import Batch, Outcome, Settlement
from gossamer.policy.urls import fingerprint, spider_seed

SPIDER = "link"
URL_BYTES = 79
"""Length of every invented URL: about that of the web's URLs on average."""
LINKS_A_CALL = 1280
"""Links in one `add`: those of 64 pages with 20 links each."""
LEASES_A_CALL = 256


def domain_name(number: int) -> str:
    """A registered domain."""
    return f"domain{number:07}.test"


def url_of(domain: int, number: int) -> str:
    """A URL on it, URL_BYTES long."""
    return f"https://www.{domain_name(domain)}/articles/{number:010}/".ljust(URL_BYTES, "x")


_SYLLABLES = (
    "ba",
    "cor",
    "del",
    "fen",
    "gra",
    "hil",
    "jun",
    "kel",
    "lom",
    "mar",
    "nov",
    "pri",
    "ros",
    "sta",
    "tur",
    "ven",
)
_SECTIONS = ("news", "sport", "culture", "science", "travel", "business", "opinion", "local")


def article_url(domain: int, number: int) -> str:
    """A URL like those of a newspaper, 81 bytes long on average: its words are as hard to compress as real ones."""
    chance = random.Random(number * 1_000_003 + domain)
    section, year, month = chance.choice(_SECTIONS), chance.randrange(2005, 2027), chance.randrange(1, 13)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randrange(1, 4))) for _ in range(5)]
    return f"https://{domain_name(domain)}/{section}/{year}/{month:02}/{'-'.join(words)}-{number}"


class Load:
    """Makes batches under one frontier's secret."""

    def __init__(self, secret: int, url: Callable[[int, int], str] = url_of) -> None:
        """`url` makes the URL of a domain's number and a number."""
        self._seed = spider_seed(secret, SPIDER)
        self._url = url

    def batch(self, domain: int, numbers: Iterable[int], *, priority: int = 0) -> Batch:
        """One domain's URLs of these numbers."""
        urls = [self._url(domain, number) for number in numbers]
        marks = [fingerprint(url, seed=self._seed) for url in urls]
        return Batch(SPIDER, domain_name(domain), priority, 1, urls, marks)


def calls(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """The batches, as many together as one `add` takes."""
    together: list[Batch] = []
    size = 0
    for batch in batches:
        together.append(batch)
        size += len(batch.urls)
        if size >= LINKS_A_CALL:
            yield together
            together, size = [], 0
    if together:
        yield together


async def lease_and_settle(frontier: ValkeyFrontier, urls: int) -> int:
    """Lease and settle at least so many requests, in calls of LEASES_A_CALL; return how many they were."""
    holder = await frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
    try:
        done = 0
        while done < urls:
            leases = await holder.lease(limit=LEASES_A_CALL)
            if not leases:
                await holder.wait_for_work(timeout_seconds=1.0)
                continue
            await holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            done += len(leases)
        return done
    finally:
        await holder.close()

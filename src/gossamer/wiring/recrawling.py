"""Opens page indexes of crawls that are kept up to date."""

from collections.abc import Callable
from functools import partial

from gossamer.errors import BadInput, SinkError
from gossamer.fresh.index import PageIndex
from gossamer.fresh.store import IndexStore
from gossamer.fresh.visited import IndexedVisits
from gossamer.model.crawl import CrawlId, QueryOrder, Terms
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.urls import with_sorted_query
from gossamer.settings import Settings
from gossamer.sinks.base import SinkThread
from gossamer.sinks.stores.address import is_store
from gossamer.wiring.frontier import CrawlNote
from gossamer.wiring.plan import index_address, index_folder


def open_index(settings: Settings, crawl: CrawlId, terms: Terms) -> PageIndex:
    """Open or make the index of a crawl whose requests have these terms. Raises BadInput or SinkError."""
    address = index_address(settings, crawl)
    index = PageIndex.open(address, crawl.token, crawl_id=str(crawl), key_of=_key_of(terms))
    if terms.recrawl is not None:
        index.follow(terms.recrawl)
    return index


def index_store(settings: Settings) -> IndexStore | None:
    """Return the page indexes of a service. None: its crawls cannot be kept up to date, because its processes share no
    place for indexes. Raises BadInput."""
    place = settings.crawl.index
    if place and not is_store(place):
        raise BadInput(
            f"{place} is the index of a single crawl, and a service has many. Name a PostgreSQL database, or none.",
            option="index",
        )
    if not place and settings.frontier:
        return None
    return IndexStore(place or index_folder(settings))


def open_noted_index(note: CrawlNote) -> PageIndex:
    """Open the index of a crawl by the note of the command that started it. Raises BadInput or SinkError."""
    crawl = note.run.crawl.id
    return PageIndex.open(note.index, crawl.token, crawl_id=str(crawl), key_of=_key_of(note.terms))


def delete_index(note: CrawlNote) -> None:
    """Delete the page index of a crawl. Raises BadInput or SinkError."""
    index = open_noted_index(note)
    index.delete()


def open_visits(settings: Settings, *, secret: int, of_service: bool) -> IndexedVisits:
    """Return the indexes of the crawls that a worker fetches for. `secret`: the frontier's key for fingerprints.
    `of_service`: it is a worker of a service."""
    opened = partial(_open_shared_index if of_service else open_index, settings)
    return IndexedVisits(opened, SinkThread("page-index"), secret=secret)


def _open_shared_index(settings: Settings, crawl: CrawlId, terms: Terms) -> PageIndex:
    """Open the index of a crawl of a service. Raises SinkError where the worker and the service share no place for
    it: what the worker fetched would be in an index that no recrawler reads."""
    if settings.frontier and not is_store(settings.crawl.index):
        raise SinkError(
            f"the crawl {crawl} is kept up to date, and this worker has no database for its page index. Set "
            "crawl.index to that of the service"
        )
    return open_index(settings, crawl, terms)


def _key_of(terms: Terms) -> Callable[[str], str]:
    """Return a function that returns the form of a URL by which two are one page, as in the frontier."""
    dropped = dropped_parameters(terms.drop_parameters) if terms.drop_parameters else None
    ignores_order = terms.query_order is QueryOrder.IGNORED

    def key_of(url: str) -> str:
        url = dropped.remove(url) if dropped is not None else url
        return with_sorted_query(url) if ignores_order else url

    return key_of

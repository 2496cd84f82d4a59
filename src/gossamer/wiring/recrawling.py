"""Opens page indexes of crawls that are kept up to date."""

import time
from contextlib import closing
from functools import partial
from pathlib import Path

from gossamer.errors import BadInput, SinkError
from gossamer.fresh.index import PageIndex
from gossamer.fresh.store import IndexStore, page_identity
from gossamer.fresh.visited import IndexedVisits
from gossamer.model.crawl import CrawlId, Terms
from gossamer.settings import Settings
from gossamer.sinks.base import SinkThread
from gossamer.sinks.stores.address import is_store
from gossamer.wiring.frontier import CrawlNote
from gossamer.wiring.plan import index_address, index_folder

TURN_SECONDS = 30.0
"""Time for which an index belongs to the frontier of a command that has last said so. If that command is killed,
commands with other frontiers are refused for so long."""


def open_index(settings: Settings, crawl: CrawlId, terms: Terms) -> PageIndex:
    """Open or make the index of a crawl whose requests have these terms. Raises BadInput or SinkError."""
    address = index_address(settings, crawl)
    index = PageIndex.open(address, crawl.token, crawl_id=str(crawl), key_of=page_identity(terms))
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


def service_indexes(settings: Settings) -> IndexStore | None:
    """Return the page indexes of a service, as `index_store` does. None also: the settings name that of one crawl."""
    place = settings.crawl.index
    return None if place and not is_store(place) else index_store(settings)


def open_noted_index(note: CrawlNote) -> PageIndex:
    """Open the index of a crawl by the note of the command that started it. Raises BadInput or SinkError."""
    crawl = note.run.crawl.id
    index = PageIndex.open(note.index, crawl.token, crawl_id=str(crawl), key_of=page_identity(note.terms))
    if note.terms.recrawl is not None:
        index.follow(note.terms.recrawl)
    return index


def find_index(settings: Settings, crawl: CrawlId, note: CrawlNote | None) -> PageIndex | None:
    """Open the index of a crawl, of a command by its note or of a service. None: the crawl is not kept up to date, or
    its index is not known here. Raises BadInput or SinkError."""
    if note is not None:
        return open_noted_index(note) if note.index else None
    store = service_indexes(settings)
    return store.get(crawl) if store is not None else None


def is_in_use(note: CrawlNote) -> bool:
    """Return whether a command keeps a crawl up to date by the index of this note, or may do so, because the index
    cannot be read. One that was killed counts for TURN_SECONDS."""
    if not is_store(note.index) and not Path(note.index).exists():
        return False
    try:
        with closing(open_noted_index(note)) as index:
            return bool(index.other_owner("", now=time.time(), seconds=TURN_SECONDS))
    except (BadInput, SinkError):
        return True


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

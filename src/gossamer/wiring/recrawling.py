"""Opens the page index of a crawl that is kept up to date, from its settings."""

from collections.abc import Callable

from gossamer.errors import BadInput
from gossamer.fresh.index import PageIndex
from gossamer.fresh.outputs import IndexedPages, PageIndexSink
from gossamer.fresh.page import VisitSchedule
from gossamer.model.crawl import CrawlId, QueryOrder, Terms
from gossamer.option_names import label
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.revisits import IntervalLimits
from gossamer.policy.urls import with_sorted_query
from gossamer.settings import Settings
from gossamer.sinks.base import SinkThread
from gossamer.wiring.frontier import CrawlNote
from gossamer.wiring.plan import index_address, parse_span

_CONFIRM_SECONDS = 600.0
"""Time after which a page that was missing is tried again, to tell a mistake of the server from a page that is gone."""


def open_index(settings: Settings, crawl: CrawlId) -> PageIndex:
    """Open or make the index of a crawl. Raises BadInput or SinkError."""
    address = index_address(settings, crawl)
    dropped = tuple(sorted(set(settings.crawl.drop_parameter)))
    terms = Terms(drop_parameters=dropped, query_order=QueryOrder(settings.crawl.query_order))
    index = PageIndex.open(address, crawl.token, crawl_id=str(crawl), key_of=_key_of(terms))
    limits = interval_limits(settings)
    # One round after the other: the next one is when a person wants it.
    confirm = 0.0 if settings.crawl.recrawl_once else min(_CONFIRM_SECONDS, limits.longest)
    index.schedule = VisitSchedule(limits=limits, confirm_seconds=confirm)
    return index


def interval_limits(settings: Settings) -> IntervalLimits:
    """Return the shortest and the longest time between two visits of a page. Raises BadInput."""
    shortest = parse_span(settings.crawl.recrawl_min, option="recrawl_min")
    longest = parse_span(settings.crawl.recrawl_max, option="recrawl_max")
    if shortest > longest:
        raise BadInput(
            f"{settings.crawl.recrawl_min} is longer than {label('recrawl_max')}, {settings.crawl.recrawl_max}.",
            option="recrawl_min",
        )
    return IntervalLimits(shortest, longest)


def open_noted_index(note: CrawlNote) -> PageIndex:
    """Open the index of a crawl by the note of the command that started it. Raises BadInput or SinkError."""
    crawl = note.run.crawl.id
    return PageIndex.open(note.index, crawl.token, crawl_id=str(crawl), key_of=_key_of(note.terms))


def delete_index(note: CrawlNote) -> None:
    """Delete the page index of a crawl. Raises BadInput or SinkError."""
    index = open_noted_index(note)
    index.delete()


def open_index_output(settings: Settings, crawl: CrawlId) -> tuple[PageIndexSink, IndexedPages]:
    """Return a worker's output to the index of a crawl, and its filter of links. Closing the output closes both."""
    index, thread = open_index(settings, crawl), SinkThread("page-index")
    return PageIndexSink(index, thread), IndexedPages(index, thread)


def _key_of(terms: Terms) -> Callable[[str], str]:
    """Return a function that returns the form of a URL by which two are one page, as in the frontier."""
    dropped = dropped_parameters(terms.drop_parameters) if terms.drop_parameters else None
    ignores_order = terms.query_order is QueryOrder.IGNORED

    def key_of(url: str) -> str:
        url = dropped.remove(url) if dropped is not None else url
        return with_sorted_query(url) if ignores_order else url

    return key_of

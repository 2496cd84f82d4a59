"""Results of the work on leases, and the addition of their outlinks to the frontier.

The frontier is the store of the requests that wait, divided into shards by domain. A lease is its loan of a request to
this worker.

An addition is one call that gives the frontier some links. Fixed: the names of additions (`_call_id`), because links
would be added twice after a crash.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from gossamer.commit.retrier import Retrier
from gossamer.frontier.base import AddResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Run, Terms
from gossamer.model.record import Output
from gossamer.model.request import Batch, DropReason, Lease, Outcome, Settlement
from gossamer.policy.outbox import OUTBOX_LINKS, outbox_wait

_PAGE_BYTES = 2048
"""Estimate of the memory that a page without links takes after its records are written. Must stay above 0, and should
not be too low: `CommitLimits.waiting_bytes` would be exceeded."""
LINK_BYTES = 300
"""Estimate of the memory that one link takes besides its characters, in all places that hold it on its way to the
frontier. Too low a value makes a worker exceed its limits of memory, too high a one makes it wait early."""

LinksAddedCallback = Callable[[Collection[int]], None]
"""Called when the frontier has added the outlinks, with the fingerprints that it rejected. Rejected ones are not in the
frontier's seen-set; all others are."""


class FinishedLease(msgspec.Struct):
    """Result of the work on one lease.

    The outlinks are added under the lease's run (one life of a crawl, from its first request to its end) and terms (the
    options that its submission carried).
    """

    settlement: Settlement
    outputs: Sequence[Output] = ()
    batches: list[Batch] = []
    """Outlinks."""
    dates: dict[str, str] = {}
    """Times of the last changes of other pages, by URL, as a sitemap of a crawl that is kept up to date has them."""
    on_links_added: LinksAddedCallback | None = None
    size: int = 0
    """Approximate memory that the result takes, in bytes."""
    on_released: Callable[[], None] | None = None
    """Called once, when that memory is free again, even if the result is discarded."""

    def links_size(self) -> int:
        """Return an upper estimate of the memory in bytes that the result takes after its records are written."""
        size = _PAGE_BYTES
        for batch in self.batches:
            size += sum(LINK_BYTES + len(url) for url in batch.urls)
            size += sum(len(payload or b"") for payload in batch.payloads or ())
        return size

    def release_outputs(self) -> None:
        """Release the outputs, which are durable now or discarded. May be repeated."""
        self.outputs = ()
        self.release_memory()

    def release_memory(self) -> None:
        """Stop counting the memory of the outputs, which are released or counted otherwise. May be repeated."""
        on_released, self.on_released = self.on_released, None
        if on_released:
            on_released()


def returned(lease: Lease) -> FinishedLease:
    """Return the result of a lease that was not started: it goes back to its queue, and its hit (the charge for one
    request to the site's rate limit) counts as not used."""
    return FinishedLease(Settlement(lease, Outcome.RETURNED))


class _LinkGroup(msgspec.Struct, eq=False):
    """Outlinks on one shard, of one spider's pages under the same run and terms. They are added in one call."""

    run: Run
    terms: Terms
    shard: int
    page: FinishedLease
    """First of the pages. What the frontier rejects is counted in its settlement."""
    links: "_MergedLinks"
    batches: list[Batch] = []
    """The links, once the group is closed."""
    on_close: Callable[["_LinkGroup"], None] | None = None
    """Called when the group is closed."""
    closed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when no more links join the group, and it is to be added."""
    waits: bool = False
    """A timer will close the group."""
    on_failure: list[Callable[[], None]] = []
    """Called when a call that adds the links has failed."""
    data_epoch: int | None = None
    """Data epoch in which the frontier added the links; None: not yet. It increases when the frontier may have lost
    what it confirmed; the links are then added again."""
    rejected: Collection[int] = frozenset()
    """Fingerprints of links that are not in the frontier's seen-set."""
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def close(self) -> None:
        """Let no more links join. May be repeated."""
        if not self.closed.is_set():
            self.batches = self.links.batches()
            self.closed.set()
            if self.on_close is not None:
                self.on_close(self)

    def note_failure(self) -> None:
        """Report a call that failed."""
        for report in self.on_failure:
            report()


class Outbox:
    """Links that wait for those of later pages, so that one call adds both: an open group for each shard.

    They wait only where the shard is busy, at most OUTBOX_SECONDS, and as long as they fit into one call. What a page
    has for its own shard does not wait if nothing else of its domain was left.
    """

    def __init__(self, frontier: ValkeyFrontier) -> None:
        self._frontier = frontier
        self._open: dict[tuple[int, int, str, int], _LinkGroup] = {}
        """By the `id()` of run and terms, which the group keeps, and by spider and shard."""
        self.is_stopped = False
        """True: nothing waits any more."""
        self.expects_more = True
        """False: no other page is being fetched, so that there is nothing to wait for."""

    def wait_seconds(self, shard: int) -> float:
        """Return how long what is for a shard waits for more."""
        return outbox_wait(self._frontier.shard_load(shard)) if self.expects_more and not self.is_stopped else 0.0

    def put(self, page: FinishedLease) -> list[_LinkGroup]:
        """Add the links of a page to the groups of their shards, and return these. `release` must follow."""
        lease, shard_of = page.settlement.lease, self._frontier.shard_of
        groups: dict[int, _LinkGroup] = {}
        for number, batch in enumerate(page.batches):
            shard = shard_of(batch.domain)
            group = groups.get(shard)
            if group is None:
                key = (id(lease.run), id(lease.terms), lease.spider, shard)
                group = self._open.get(key)
                if group is None:
                    group = self._open[key] = _LinkGroup(lease.run, lease.terms, shard, page, _MergedLinks())
                    group.on_close = partial(self._forget, key)
                groups[shard] = group
            group.links.take(page, number, batch)
        return list(groups.values())

    def release(self, pages: Iterable[FinishedLease], groups: Iterable[_LinkGroup]) -> bool:
        """Close those groups, of these pages, that are not to wait. Return whether some wait."""
        urgent = {page.settlement.lease.shard for page in pages if page.settlement.lease.is_last}
        waiting = False
        for group in groups:
            seconds = self.wait_seconds(group.shard)
            if not seconds or group.shard in urgent or group.links.is_full:
                group.close()
            elif not group.closed.is_set():
                waiting = True
                if not group.waits:
                    group.waits = True
                    asyncio.get_running_loop().call_later(seconds, group.close)
        return waiting

    def flush(self) -> None:
        """Close all groups."""
        for group in list(self._open.values()):
            group.close()

    def _forget(self, key: tuple[int, int, str, int], group: _LinkGroup) -> None:
        """Remove a group that was closed."""
        if self._open.get(key) is group:
            del self._open[key]


class Outlinks:
    """Outlinks of a batch of pages, merged into as few calls to the frontier as possible.

    The caller keeps the pages in memory as long as this object: they are known by `id()`.
    """

    def __init__(
        self,
        pages: Iterable[FinishedLease],
        frontier: ValkeyFrontier,
        retrier: Retrier,
        outbox: Outbox | None = None,
        on_delay: Callable[[], None] | None = None,
    ) -> None:
        """`outbox`: where links wait for those of other batches, if there are several shards. `on_delay` is called when
        links wait there, and for each call to a shard that failed."""
        self._on_delay = on_delay
        self.may_wait = True
        """False: the pages' settlements are not to wait for others."""
        self._outbox = outbox or Outbox(frontier)
        self._frontier = frontier
        self._retrier = retrier
        self._groups: list[_LinkGroup] = []
        self._groups_of_page: dict[int, list[_LinkGroup]] = {}
        """By the page's id()."""
        pages = list(pages)
        if frontier.shard_count == 1:
            for run, terms, some_pages in _group_by_terms(pages):
                self._form_group(run, terms, some_pages)
        else:
            self._join_groups(pages)

    def _join_groups(self, pages: Sequence[FinishedLease]) -> None:
        """Put the links into the outbox: into one group for each shard that these pages link to."""
        groups: dict[int, _LinkGroup] = {}
        for page in pages:
            if page.batches:
                joined = self._groups_of_page[id(page)] = self._outbox.put(page)
                groups.update((id(group), group) for group in joined)
        self._groups = list(groups.values())
        for group in self._groups:
            group.on_failure.append(self.note_delay)
        if self._outbox.release(pages, self._groups):
            self.note_delay()

    def _form_group(self, run: Run, terms: Terms, pages: Sequence[FinishedLease]) -> None:
        """Form the only group of these pages, where all domains live on one shard."""
        group: _LinkGroup | None = None
        for page in pages:
            if page.batches:
                if group is None:
                    group = _LinkGroup(run, terms, 0, page, _MergedLinks())
                    group.on_failure.append(self.note_delay)
                    self._groups.append(group)
                for number, batch in enumerate(page.batches):
                    group.links.take(page, number, batch)
                self._groups_of_page[id(page)] = [group]
        if group is not None:
            group.close()

    def note_delay(self) -> None:
        """Report that pages wait for a shard."""
        if self._on_delay is not None:
            self._on_delay()

    def add_all(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start one task for each group of links. It ends when the group's shard has answered."""
        return [tasks.create_task(self._add(group)) for group in self._groups]

    def all_added(self, page: FinishedLease) -> bool:
        """Return whether the frontier has decided on all links of this page: queued, known or rejected."""
        return all(group.data_epoch is not None for group in self._groups_of_page.get(id(page), ()))

    async def ensure_added(self, pages: Iterable[FinishedLease]) -> None:
        """Return when the frontier has decided on all links of these pages, and each page's `on_links_added` was
        called.

        May be repeated: links that the frontier has added in its current data epoch are not sent again. Their counts
        are entered in the settlement of a page once.
        """
        data_epoch = self._frontier.data_epoch
        for page in pages:
            groups = self._groups_of_page.get(id(page), ())
            for group in groups:
                if group.data_epoch != data_epoch:
                    await self._add(group)
                    data_epoch = self._frontier.data_epoch
            on_links_added, page.on_links_added = page.on_links_added, None
            if on_links_added:
                if len(groups) <= 1:
                    on_links_added(groups[0].rejected if groups else frozenset())
                else:
                    on_links_added({fingerprint for group in groups for fingerprint in group.rejected})

    async def _add(self, group: _LinkGroup) -> None:
        if group.data_epoch != self._frontier.data_epoch:
            await group.closed.wait()
            async with group.lock:  # several tasks may need the same group
                await self._retrier.call_frontier(
                    partial(self._add_once, group), shard=group.shard, on_failure=group.note_failure
                )

    async def _add_once(self, group: _LinkGroup) -> None:
        """Add the links of a group, unless that has been done in the current data epoch."""
        # Read before the call: a loss during the call must make the links be added again.
        data_epoch = self._frontier.data_epoch
        if group.data_epoch == data_epoch:
            return
        added = await self._frontier.add(group.run, group.terms.of_links(), group.batches)
        if added.rejected:
            group.rejected = {group.batches[batch].fingerprints[position] for batch, position in added.rejected}
        if group.data_epoch is None:  # else the links may be duplicates of this page's own, from the first addition
            _count_rejected(group, added)
        group.data_epoch = data_epoch


def _count_rejected(group: _LinkGroup, added: AddResult) -> None:
    """Count links that were not added in the settlement of the group's page."""
    settlement = group.page.settlement
    drops = Counter(settlement.drops)
    drops.update(added.rejected_by_reason)
    drops["duplicate"] += added.duplicates
    if group.terms.max_assets is not None:
        # The frontier has one word for all limits; a person typed another option for this one.
        assets = sum(group.batches[batch].spider == ASSET_SPIDER for batch, _ in added.rejected)
        beyond = min(assets, drops[DropReason.BUDGET.value])
        drops[DropReason.BUDGET.value] -= beyond
        drops[DropReason.MAX_ASSETS.value] += beyond
    settlement.drops = +drops or None  # `+` removes the counts of 0


def _group_by_terms(pages: Iterable[FinishedLease]) -> list[tuple[Run, Terms, list[FinishedLease]]]:
    """Group the pages whose links may share a call.

    Run and terms are compared by identity: leases of one submission share these objects. Where they do not, the only
    cost is one more call.
    """
    groups: dict[tuple[int, int, str], tuple[Run, Terms, list[FinishedLease]]] = {}
    last: Lease | None = None
    for page in pages:
        if page.batches or page.on_links_added:
            lease = page.settlement.lease
            if (
                last is None
                or last.run is not lease.run
                or last.terms is not lease.terms
                or last.spider != lease.spider
            ):
                last, key = lease, (id(lease.run), id(lease.terms), lease.spider)
                _, _, members = groups.setdefault(key, (lease.run, lease.terms, []))
            members.append(page)
    return list(groups.values())


class _MergedLinks:
    """Links of several pages, merged by spider, domain, priority, depth and lane.

    A URL that several pages link to is sent once; its repeats count as duplicates of the later pages.
    """

    def __init__(self) -> None:
        self._merged: dict[tuple[str, str, int, int, bool], dict[int, str]] = {}
        """By the first four fields of Batch, and `render`."""
        self._unmergeable: list[Batch] = []
        self._count = 0

    def take(self, page: FinishedLease, number: int, batch: Batch) -> None:
        """Take the `number`th batch of a page."""
        if batch.unfiltered and not batch.call:
            batch.call = _call_id(page.settlement.lease, number, batch)
        self._count += len(batch.urls)
        if batch.payloads is not None or batch.unfiltered:
            self._unmergeable.append(batch)
            return
        known = self._merged.setdefault((batch.spider, batch.domain, batch.priority, batch.depth, batch.render), {})
        expected = len(known) + len(batch.urls)
        known.update(zip(batch.fingerprints, batch.urls, strict=True))
        if len(known) < expected:
            drops = page.settlement.drops = page.settlement.drops or {}
            drops["duplicate"] = drops.get("duplicate", 0) + expected - len(known)

    @property
    def is_full(self) -> bool:
        """True: these are as many links as one call adds."""
        return self._count >= OUTBOX_LINKS

    def batches(self) -> list[Batch]:
        """Return the links in as few batches as possible."""
        merged = [
            Batch(spider, domain, priority, depth, urls=list(known.values()), fingerprints=list(known), render=render)
            for (spider, domain, priority, depth, render), known in self._merged.items()
        ]
        return merged + self._unmergeable


def _call_id(lease: Lease, number: int, batch: Batch) -> str:
    """Return the name of the call that adds a page's `number`th batch.

    It must be the same when the page is read again after a crash, so that the frontier, which remembers it for an hour,
    adds the batch once. So it may depend only on the request and the links.
    """
    content = (lease.request_id, number, batch.spider, batch.depth, batch.priority, batch.urls, batch.payloads)
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).hexdigest()

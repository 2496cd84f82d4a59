"""Crawl requests on their way into the frontier: checked at the door, then added in batches."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gossamer.errors import BadInput, CrawlRefused, RequestRejected
from gossamer.fetch.guard import Network, host_address, verdict, within
from gossamer.fetch.proxy import parse_proxy
from gossamer.fetch.request import check_headers
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.messages.requests import CrawlRequest
from gossamer.model.payload import pack
from gossamer.model.request import Batch
from gossamer.policy.regex import check_regex
from gossamer.policy.scope import compile_scope
from gossamer.policy.urls import fingerprint, from_person, host, registered_domain, spider_seed

_FILTERS = ("allowed_domains", "allow_regex", "deny_regex", "deny_extensions")
_FILTERS_KNOWN = 1000
"""Sets of filters that were found to be sound; a producer sends the same again and again."""
_AT_ONCE = 64
"""Crawls, or sets of terms of one crawl, that are added to at the same time."""
DUPLICATE = "duplicate"

_packed = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Submission:
    """One admitted request."""

    crawl: Crawl
    terms: Terms
    spider: str
    domain: str
    priority: int
    url: str
    fingerprint: int
    payload: bytes | None


@dataclass(slots=True)
class Submitted:
    """What became of it: added, or not and why."""

    added: bool
    reason: str = ""
    """DUPLICATE (seen in this run), or a sentence why not."""


class Door:
    """Says which requests a service takes. What the schema can tell was told before."""

    def __init__(
        self,
        *,
        secret: int,
        now: Callable[[], float],
        networks: Sequence[Network] = (),
        ignore_robots: bool = False,
        domain_max_pending: int | None = None,
    ) -> None:
        """`secret`: the frontier's. `networks`: private ones that may be crawled. `ignore_robots`: whether a request
        may ask for that; the operator's choice. `domain_max_pending`: the operator's cap on every request's terms."""
        self._secret = secret
        self._now = now
        self._networks = networks
        self._ignore_robots = ignore_robots
        self._domain_max_pending = domain_max_pending
        self._filters: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def admit(self, request: CrawlRequest) -> Submission:
        """Raises RequestRejected with the field and the reason."""
        url = self._url(request.url)
        request.check_expires(now=self._now())
        if request.ignore_robots and not self._ignore_robots:
            raise RequestRejected("robots.txt is obeyed here; the operator allows no exception", field="ignore_robots")
        self._check_filters(request)
        self._check_exchange(request)
        payload = request.payload()
        mark = fingerprint(
            url,
            seed=spider_seed(self._secret, request.spiderid),
            method=payload.method,
            body=payload.body,
        )
        return Submission(
            crawl=request.crawl(),
            terms=request.terms(domain_max_pending=self._domain_max_pending),
            spider=request.spiderid,
            domain=registered_domain(host(url)),
            priority=request.priority,
            url=url,
            fingerprint=mark,
            payload=pack(payload),
        )

    def _check_filters(self, request: CrawlRequest) -> None:
        asked = {field: getattr(request, field) for field in _FILTERS}
        key = tuple(asked.values())
        if not any(key) or key in self._filters:
            return
        for field in ("allow_regex", "deny_regex"):
            for pattern in asked[field] or ():
                _refused(field, lambda: check_regex(pattern, field.partition("_")[0], linear=True))  # noqa: B023
        for field, value in asked.items():
            if value:
                _refused(field, lambda: compile_scope(**{field: value}))  # noqa: B023
        self._filters[key] = None
        if len(self._filters) > _FILTERS_KNOWN:
            self._filters.popitem(last=False)

    def _check_exchange(self, request: CrawlRequest) -> None:
        if agent := request.useragent:
            _refused("useragent", lambda: check_headers((("User-Agent", agent),)))
        if cookie := request.cookie:
            _refused("cookie", lambda: check_headers((("Cookie", cookie),)))
        if headers := request.headers:
            _refused("headers", lambda: check_headers(tuple(headers.items())))
        if proxy := request.proxy:
            _refused("proxy", lambda: parse_proxy(proxy))

    def _url(self, text: str) -> str:
        try:
            url = from_person(text)
        except BadInput as error:
            raise RequestRejected(error.detail, field="url") from None
        # A name is judged when it is fetched: what it resolves to may change until then.
        address = host_address(host(url))
        if address is not None and not within(address, self._networks) and (why := verdict(address)):
            raise RequestRejected(
                f"{host(url)} is not on the public internet ({why}); the operator may allow its network",
                field="url",
            )
        return url


def _refused(field: str, check: Callable[[], object]) -> None:
    try:
        check()
    except BadInput as error:
        raise RequestRejected(error.detail, field=field) from None


async def submit(frontier: Frontier, submissions: Sequence[Submission]) -> list[Submitted]:
    """Add them; an answer for each, in order. Raises FrontierUnavailable and FrontierFull: repeat it with the same
    objects, then what was added before counts as added, or as a duplicate of itself."""
    answers = [Submitted(True)] * len(submissions)
    by_crawl: dict[CrawlId, list[int]] = {}
    for at, submission in enumerate(submissions):
        by_crawl.setdefault(submission.crawl.id, []).append(at)
    gate = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for positions in by_crawl.values():
            await gate.acquire()
            task = group.create_task(_submit_to_one(frontier, submissions, positions, answers))
            task.add_done_callback(lambda _: gate.release())
    return answers


async def _submit_to_one(
    frontier: Frontier, submissions: Sequence[Submission], positions: Sequence[int], answers: list[Submitted]
) -> None:
    """One crawl's: what has the same terms travels together."""
    by_terms: dict[bytes, list[int]] = {}
    for at in positions:
        by_terms.setdefault(_packed(submissions[at].terms), []).append(at)
    groups = list(by_terms.values())
    try:
        expires: dict[str, float] = {}
        for at in positions:
            spider, moment = submissions[at].spider, submissions[at].terms.expires
            known = expires.get(spider, moment)
            expires[spider] = max(known, moment) if known and moment else 0.0
        run = await frontier.open_crawl(submissions[positions[0]].crawl, expires=expires)
        for first in range(0, len(groups), _AT_ONCE):
            part = groups[first : first + _AT_ONCE]
            await asyncio.gather(*(_add(frontier, run, submissions, group, answers) for group in part))
    except CrawlRefused as error:
        for at in positions:
            answers[at] = Submitted(False, str(error))


async def _add(
    frontier: Frontier, run: Run, submissions: Sequence[Submission], positions: Sequence[int], answers: list[Submitted]
) -> None:
    batches: dict[tuple[str, str, int, bool], tuple[Batch, list[int]]] = {}
    for at in positions:
        s = submissions[at]
        key = (s.spider, s.domain, s.priority, s.payload is None)
        if key not in batches:
            payloads: list[bytes | None] | None = None if s.payload is None else []
            batches[key] = (Batch(s.spider, s.domain, s.priority, 0, payloads=payloads), [])
        batch, places = batches[key]
        batch.urls.append(s.url)
        batch.fingerprints.append(s.fingerprint)
        if batch.payloads is not None:
            batch.payloads.append(s.payload)  # type: ignore[attr-defined]
        places.append(at)
    where = [places for _, places in batches.values()]
    added = await frontier.add(
        run, submissions[positions[0]].terms, [batch for batch, _ in batches.values()], seeds=True
    )
    for index, position in added.known:
        answers[where[index][position]] = Submitted(False, DUPLICATE)
    for index, position in added.rejected:
        answers[where[index][position]] = Submitted(
            False, "the domain's share of the queue is full (domain_max_pending)"
        )
    ended = {reason: count for reason, count in added.dropped.items() if reason != "budget"}
    if ended:  # a whole spider's part is over, or all that has these terms
        reason = next(iter(ended))
        for places in where:
            for at in places:
                if answers[at].added:
                    answers[at] = Submitted(False, f"this spider's part of the crawl is {reason}")

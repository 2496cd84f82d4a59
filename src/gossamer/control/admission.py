"""Crawl requests on their way into the frontier: checked at the door, then added in batches."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gossamer.errors import BadInput, BadUrl, CrawlRefused, RequestRejected
from gossamer.fetch.dial import parse_proxy
from gossamer.fetch.guard import Network, host_address, refusal_reason, within
from gossamer.fetch.request import check_headers
from gossamer.frontier import base
from gossamer.frontier.base import Frontier, SpiderRegistry
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.messages.requests import CrawlRequest
from gossamer.model.request import Batch, pack
from gossamer.policy.regex import check_regex
from gossamer.policy.scope import compile_scope
from gossamer.policy.secrets import with_secrets_for
from gossamer.policy.urls import from_person, host, registered_domain

_FILTERS = ("allowed_domains", "allow_regex", "deny_regex", "deny_extensions")
_FILTERS_KNOWN = 1000
"""Sets of filters that were found to be sound; a producer sends the same again and again."""
_HOSTS_KNOWN = 10_000
DUPLICATE = "duplicate"
JOINED = "the crawl is running: the request has joined its run"
"""Of an added request that asked for a fresh run."""
_FULL = "the domain's share of the queue is full"
BUILT_IN_SPIDERS = frozenset({"link", "wandering"})
"""Every worker of the fast lane has them."""
_WIDER = (
    "this run of the crawl has seen this URL already, with a smaller maxdepth or a narrower scope; nothing was added. "
    "Send the request again when the run has finished: it then begins a new one"
)
MOST_BODY_BYTES = 512 * 1024
"""Of the body that a request sends; it waits in the frontier's memory."""

Checked = TypeVar("Checked")

_pack = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class AdmittedRequest:
    """One admitted request."""

    crawl: Crawl
    terms: Terms
    spider: str
    domain: str
    priority: int
    url: str
    payload: bytes | None
    method: str = "GET"
    body: bytes = b""
    wait_for_spider: bool = False
    """Add it also when nobody has announced its spider."""
    fresh: bool = False
    """A finished crawl begins a run that has seen nothing."""
    name: str = ""
    """Of a fresh one: the same whenever it is repeated, so that it begins one run. Empty: none."""

    def has_expired(self, now: float) -> bool:
        """Whether its time is over. `now`: epoch seconds."""
        return 0 < self.terms.expires <= now


@dataclass(slots=True)
class SubmitResult:
    """What became of it: added, or not and why."""

    added: bool
    reason: str = ""
    """DUPLICATE (seen in this run), or a sentence why not. Of an added one: JOINED, or nothing."""
    field: str = ""
    """The faulty field, where one is the reason."""
    blacklisted: str = ""
    """`held` or `dropped`: it was added, and its domain is on the blacklist. Empty: it is not."""


class RequestValidator:
    """Says which requests a service takes. What the schema can tell was told before."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        networks: Sequence[Network] = (),
        ignore_robots: bool = False,
        domain_max_pending: int | None = None,
        idle_seconds: float = 0.0,
    ) -> None:
        """`networks`: private ones that may be crawled. `ignore_robots`: whether a request
        may ask for that; the operator's choice. `domain_max_pending`: the operator's cap on every request's terms.
        `idle_seconds`: how long a run has nothing to do before it is finished."""
        self._now = now
        self._networks = networks
        self._ignore_robots = ignore_robots
        self._domain_max_pending = domain_max_pending
        self._idle_seconds = idle_seconds
        self._hosts: dict[str, str] = {}
        """Why a host is refused; empty: it is not."""
        self._filters: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def admit(self, request: CrawlRequest, *, sent: float | None = None) -> AdmittedRequest:
        """Raises RequestRejected with the field and the reason. `sent`: epoch seconds when the request was sent, where
        it had to wait; `expires` is judged by that."""
        url = self._url(request.url)
        now = self._now()
        request.check_expires(now=now if sent is None else min(sent, now))
        if request.ignore_robots and not self._ignore_robots:
            raise RequestRejected("robots.txt is obeyed here; the operator allows no exception", field="ignore_robots")
        self._check_filters(request)
        self._check_exchange(request)
        domain = registered_domain(host(url))
        payload = request.payload()
        if len(payload.body) > MOST_BODY_BYTES:
            raise RequestRejected(
                f"has {len(payload.body):,} bytes; at most {MOST_BODY_BYTES:,} are taken", field="body"
            )
        return AdmittedRequest(
            crawl=request.crawl(idle_seconds=self._idle_seconds),
            terms=self._terms(request, domain),
            spider=request.spiderid,
            domain=domain,
            priority=request.priority,
            url=url,
            payload=pack(payload),
            method=payload.method,
            body=payload.body,
            wait_for_spider=request.wait_for_spider,
            fresh=request.fresh,
        )

    def _terms(self, request: CrawlRequest, domain: str) -> Terms:
        terms = request.terms(domain_max_pending=self._domain_max_pending)
        return _refused("headers_for", lambda: with_secrets_for(terms, [domain], request.headers_for or ()))

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
        if secret := request.secret_headers:
            _refused("secret_headers", lambda: check_headers(tuple((name, "") for name in secret)))
        if proxy := request.proxy:
            _refused("proxy", lambda: parse_proxy(proxy))

    def _url(self, text: str) -> str:
        try:
            url = from_person(text)
        except BadUrl as error:
            said = str(error)  # the detail is only the URL
            raise RequestRejected(said[0].lower() + said[1:], field="url") from None
        name = host(url)
        why = self._hosts.get(name)
        if why is None:
            # A name is judged when it is fetched: what it resolves to may change until then.
            address = host_address(name)
            why = "" if address is None or within(address, self._networks) else refusal_reason(address) or ""
            if len(self._hosts) >= _HOSTS_KNOWN:
                self._hosts.clear()
            self._hosts[name] = why
        if why:
            raise RequestRejected(
                f"{name} is not on the public internet ({why}); the operator may allow its network",
                field="url",
            )
        return url


def _refused(field: str, check: Callable[[], Checked]) -> Checked:
    try:
        return check()
    except BadInput as error:
        raise RequestRejected(error.detail, field=field) from None


async def unknown_spiders(frontier: Frontier, submissions: Sequence[AdmittedRequest]) -> list[RequestRejected | None]:
    """Why each request is refused for its spider, in order; None: it is not. A spider is known when it comes with
    Gossamer or some worker has announced it. Raises FrontierUnavailable."""
    asked = {s.spider for s in submissions if not s.wait_for_spider} - BUILT_IN_SPIDERS
    if not asked:
        return [None] * len(submissions)
    await frontier.spiders.refresh(asked)
    unknown = {spider for spider in asked if not frontier.spiders.lanes(spider)}
    known = ", ".join(sorted(BUILT_IN_SPIDERS | frontier.spiders.names()))
    return [
        RequestRejected(
            f"no worker has announced the spider {s.spider}; there are {known}. With wait_for_spider it is accepted",
            field="spiderid",
        )
        if s.spider in unknown and not s.wait_for_spider
        else None
        for s in submissions
    ]


async def submit(frontier: Frontier, submissions: Sequence[AdmittedRequest]) -> list[SubmitResult]:
    """Add them; an answer for each, in order. Raises FrontierUnavailable and FrontierFull: repeat it with the same
    objects, then what was added before counts as added, or as a duplicate of itself."""
    await frontier.spiders.refresh({s.spider for s in submissions})
    groups = list(_together(submissions, frontier.spiders))
    wholes = [
        base.Submission(first.crawl, terms, batches, terms.expires, first.fresh, first.name)
        for batches, places, terms in groups
        for first in [submissions[places[0][0]]]
    ]
    answers = [SubmitResult(True)] * len(submissions)
    for (_, places, _), whole, answer in zip(groups, wholes, await frontier.submit(wholes), strict=True):
        if isinstance(answer, Exception):
            for at in itertools.chain(*places):
                answers[at] = SubmitResult(False, str(answer))
            continue
        added = answer.added
        if answer.joined_running:
            for at in itertools.chain(*places):
                answers[at] = SubmitResult(True, JOINED)
        for index, position in added.duplicate_positions:
            marks = whole.batches[index].fingerprints
            again = position > marks.index(marks[position])  # it stands twice in the batch
            answers[places[index][position]] = SubmitResult(
                False, DUPLICATE if again or not answer.exceeds_earlier_terms else _WIDER
            )
        for (index, position), reason in added.rejected.items():
            over = str(CrawlRefused(f"this spider's part of {whole.crawl.id} is {reason}"))
            answers[places[index][position]] = SubmitResult(False, _FULL if reason == "budget" else over)
    return answers


def _together(
    submissions: Sequence[AdmittedRequest], spiders: SpiderRegistry
) -> Iterator[tuple[list[Batch], list[list[int]], Terms]]:
    """What has the same crawl, terms, spider, domain, `fresh` and name travels together: (batches, their requests'
    positions, the terms: one object for all that are equal)."""
    groups: dict[tuple[CrawlId, bytes, str, str, bool, str], dict[tuple[int, bool], tuple[Batch, list[int]]]] = {}
    packed: dict[int, bytes] = {}
    equal: dict[bytes, Terms] = {}
    for at, s in enumerate(submissions):
        terms = packed.get(id(s.terms))
        if terms is None:
            terms = packed[id(s.terms)] = _pack(s.terms)
            equal.setdefault(terms, s.terms)
        batches = groups.setdefault((s.crawl.id, terms, s.spider, s.domain, s.fresh, s.name), {})
        key = (s.priority, s.payload is None)
        if key not in batches:
            payloads: list[bytes | None] | None = None if s.payload is None else []
            batches[key] = (Batch(s.spider, s.domain, s.priority, 0, payloads=payloads), [])
        batch, places = batches[key]
        batch.urls.append(s.url)
        mark = spiders.fingerprint(s.spider, s.url, method=s.method, body=s.body, query_order=s.terms.query_order)
        batch.fingerprints.append(mark)
        if batch.payloads is not None:
            batch.payloads.append(s.payload)  # type: ignore[attr-defined]
        places.append(at)
    for (_, terms, *_), batches in groups.items():
        found = list(batches.values())
        yield [batch for batch, _ in found], [places for _, places in found], equal[terms]

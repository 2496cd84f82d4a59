"""Admission of crawl requests to the frontier, in three steps that `RequestDispatcher` calls in this order.

`RequestValidator.admit` checks each request by itself, `unknown_spiders` checks requests against the running workers,
and `submit` adds them in batches without further checks. A new rule for requests belongs in
`model/messages/schemas/crawl.json` if a JSON Schema can express it, otherwise in `RequestValidator.admit`.

Fixed: the reason DUPLICATE, and that the three steps may be repeated after a failure and add each request at most
once."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from gossamer.errors import BadExtraction, BadInput, BadUrl, CrawlRefused, RequestRejected
from gossamer.fetch.proxies import parse_proxies
from gossamer.fetch.request import check_headers
from gossamer.frontier import base
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.identity import ValkeySpiderRegistry
from gossamer.frontier.valkey.logins import StoredLogin
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Terms, login_of, workers_of
from gossamer.model.extraction import field_names, read_extraction
from gossamer.model.messages.requests import CrawlRequest, RecrawlRequest
from gossamer.model.request import Batch, pack
from gossamer.net.guard import Network, host_address, refusal_reason, within
from gossamer.net.names import domain_name
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.scope import check_regex, compile_scope
from gossamer.policy.secrets import other_site, with_secrets_for
from gossamer.policy.urls import from_user_input, host, registered_domain

_FILTER_FIELDS = ("allowed_domains", "allow_regex", "deny_regex", "deny_extensions")
"""Fields of CrawlRequest that filter links. Each must be a parameter of `policy.scope.compile_scope`. A filter that is
missing here is not checked on submission."""
_RENDER_FIELDS = (
    "render", "render_match", "render_step", "render_screenshot", "render_capture", "render_seconds", "render_quiet",
    "render_other_sites", "render_load",
)  # fmt: skip
"""Fields of CrawlRequest about rendered pages."""
_CACHED_FILTERS = 1000
"""Number of sets of filters, or of fields about rendered pages, that are remembered as valid. More need memory, fewer
are compiled more often, which is slow. Producers send the same set with many requests."""
_CACHED_RULES = 100
"""Number of extraction rules that are remembered as valid. Each takes up to 32 KiB, and those that are not remembered
are compiled again."""
_CACHED_HOSTS = 10_000
"""Number of hosts whose check is remembered. More need memory."""
DUPLICATE = "duplicate"
"""Reason of a request whose URL this run of the crawl has already seen. Clients test for it; must not change."""
JOINED = "the crawl is running: the request has joined its run"
"""Reason that is given with an added request that has `fresh` while its crawl is running: no fresh run (life of the
crawl with an empty set of seen URLs) was begun."""
MAX_BODY_BYTES = 512 * 1024
"""Size limit of a request's body. May be smaller. Larger: waiting requests with their bodies are in the memory of the
frontier (the store of waiting requests), which refuses more than `model.request.MAX_PAYLOAD_BYTES`; and the message
with the body must fit on the bus."""

T = TypeVar("T")

# Equal terms (options of a submission) are recognized by their packed form.
_pack = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class AdmittedRequest:
    """A valid crawl request, with its URL in canonical form."""

    crawl: Crawl
    terms: Terms
    spider: str
    domain: str
    priority: int
    url: str
    payload: bytes | None
    """Packed `Payload`: what the request has beyond URL and terms. None: nothing."""
    method: str = "GET"
    body: bytes = b""
    """Method and body are in the payload, too; here they serve to compute the fingerprint."""
    wait_for_spider: bool = False
    """Add the request even if no worker has announced its spider."""
    render: bool = False
    """Render the URL in a browser."""
    may_render: bool = False
    """Pages of the request are rendered, or may be."""
    wait_for_browser: bool = False
    """Add the request even if no worker with a browser is announced."""
    login: str = ""
    """Login by which the pages are fetched. Empty: none."""
    fresh: bool = False
    """If the crawl has finished, begin a run with an empty set of seen URLs."""
    idempotency_key: str = ""
    """Key that is equal in every repetition of a fresh request, so that it begins only one run. Empty: none."""

    def has_expired(self, now: float) -> bool:
        """Return whether the request has expired. `now`: epoch seconds."""
        return 0 < self.terms.expires <= now


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """Result of submitting one request."""

    added: bool
    reason: str = ""
    """If the request was not added: DUPLICATE or a sentence. If it was added: JOINED or empty."""
    field: str = ""
    """Field of the request that is invalid. Empty: the reason is not a field."""
    blacklisted: str = ""
    """`held` or `dropped`: the request was added, but its domain is blacklisted. Empty: the domain is not."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The operator's limits on requests."""

    domain_max_pages: int | None = None
    """Cap on the pages of one domain that a request gets, also one that asks for more or for no limit. None: no cap."""
    domain_max_pending: int | None = None
    """Such a cap on the URLs of a crawl that wait in the queue of one domain."""
    render_seconds: float = 30.0
    """Time in which a page is built of a request that names none."""
    max_render_seconds: float = 600.0
    """Longest such time that a request may name."""


class RequestValidator:
    """Checks requests against the rules that a JSON Schema cannot express, and the operator's limits."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        networks: Sequence[Network] = (),
        ignore_robots: bool = False,
        content: bool = False,
        recrawl: Mapping[str, RecrawlRequest] | None = None,
        limits: AdmissionLimits | None = None,
        idle_seconds: float = 0.0,
    ) -> None:
        """`now`: returns epoch seconds. `networks`: private networks that may be crawled. `ignore_robots`: requests are
        allowed to ignore robots.txt. `content`: they may ask for text and Markdown. `recrawl`: by application,
        options by which all of its crawls are kept up to date, as far as a request has none; None: no request may ask
        for that. `limits` None: there are none. `idle_seconds`: time without work after which a run is finished."""
        self._now = now
        self._networks = networks
        self._ignore_robots = ignore_robots
        self._content = content
        self._recrawl = recrawl
        self._limits = limits or AdmissionLimits()
        self._idle_seconds = idle_seconds
        self._host_faults: dict[str, str] = {}
        """Reason why each host is rejected; empty: the host is allowed."""
        self._valid_filters: OrderedDict[tuple[Any, ...], None] = OrderedDict()
        """Sets of filters, or of fields about rendered pages, that are valid, the oldest first."""
        self._valid_rules: OrderedDict[bytes, None] = OrderedDict()
        """Extraction rules that are valid, in packed form, the oldest first."""

    def admit(self, request: CrawlRequest, *, sent_at: float | None = None) -> AdmittedRequest:
        """Return the request if it is valid. Raises RequestRejected with the field and the reason.

        `sent_at`: epoch seconds at which the request was sent. A request whose `expires` has passed only since then is
        valid. None: it was sent now."""
        url = self._url(request.url)
        if self._recrawl and (defaults := self._recrawl.get(request.appid)) is not None:
            options = defaults if request.recrawl is None else request.recrawl.with_defaults(defaults)
            request = msgspec.structs.replace(request, recrawl=options)
        if request.drop_parameters:
            dropped = tuple(request.drop_parameters)
            url = _checked("drop_parameters", lambda: dropped_parameters(dropped)).remove(url)
        now = self._now()
        request.check_expires(now=now if sent_at is None else min(sent_at, now))
        if request.spiderid == ASSET_SPIDER:
            raise RequestRejected("is a name that Gossamer itself uses", field="spiderid")
        if request.ignore_robots and not self._ignore_robots:
            raise RequestRejected("the operator does not allow requests to ignore robots.txt", field="ignore_robots")
        self._check_recrawl(request)
        self._check_content(request)
        self._check_filters(request)
        self._check_rendering(request)
        self._check_http_options(request)
        self._check_extraction(request)
        if request.login and request.proxy:
            raise RequestRejected("cannot be chosen with login, whose secrets would go through it", field="proxy")
        domain = registered_domain(host(url))
        payload = request.payload()
        if len(payload.body) > MAX_BODY_BYTES:
            raise RequestRejected(
                f"has {len(payload.body):,} bytes; at most {MAX_BODY_BYTES:,} are allowed", field="body"
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
            render=request.renders_all,
            may_render=request.renders,
            wait_for_browser=request.wait_for_browser,
            fresh=request.fresh,
            login=request.login,
        )

    def _terms(self, request: CrawlRequest, domain: str) -> Terms:
        """Return the terms of the request, with domains as URLs spell them.

        They send secret headers to its own domain and to those that it names."""
        terms = request.terms(
            domain_max_pages=self._limits.domain_max_pages, domain_max_pending=self._limits.domain_max_pending
        )
        if terms.allowed_domains:
            domains = tuple(dict.fromkeys(map(domain_name, terms.allowed_domains)))
            if domains != terms.allowed_domains:
                terms = msgspec.structs.replace(terms, allowed_domains=domains)
        return _checked("headers_for", lambda: with_secrets_for(terms, [domain], request.headers_for or ()))

    def _check_recrawl(self, request: CrawlRequest) -> None:
        """Check the field by which the crawl is kept up to date."""
        if request.recrawl is None:
            return
        if self._recrawl is None:
            raise RequestRejected(
                "the operator has no database for page indexes that all processes share; the setting crawl.index "
                "names one",
                field="recrawl",
            )
        from gossamer.cron import check_cron, check_zone
        from gossamer.extract.selectors import compile_css  # imported late: few requests have rules

        if window := request.recrawl.window:
            _checked("recrawl.window", partial(check_cron, window))
        if zone := request.recrawl.time_zone:
            _checked("recrawl.time_zone", partial(check_zone, zone))
        for rule in request.recrawl.rules or ():
            _checked("recrawl.rules", partial(check_regex, rule.match, "rule", linear=True))
            if rule.window:
                _checked("recrawl.rules", partial(check_cron, rule.window))
            for selector in filter(None, (rule.keep, rule.drop)):
                _checked("recrawl.rules", partial(compile_css, selector))

    def _check_content(self, request: CrawlRequest) -> None:
        """Check the fields that ask for the main content of pages."""
        for field in ("text", "markdown"):
            if getattr(request, field) and not self._content:
                raise RequestRejected("the operator does not offer text and Markdown", field=field)
        for field in ("chunk", "text_in"):
            if getattr(request, field) is not None and not (request.text or request.markdown):
                raise RequestRejected("needs text or markdown", field=field)
        if request.chunk is not None and request.text and request.markdown:
            raise RequestRejected("splits either text or markdown, not both", field="chunk")

    def _check_filters(self, request: CrawlRequest) -> None:
        """Check the fields that filter links, unless the same filters were found valid before."""
        filters = {field: getattr(request, field) for field in _FILTER_FIELDS}
        key = tuple(filters.values())
        if not any(key) or key in self._valid_filters:
            return
        for field in ("allow_regex", "deny_regex"):
            for pattern in filters[field] or ():
                name = field.removesuffix("_regex")  # as the error message calls the pattern
                _checked(field, lambda: check_regex(pattern, name, linear=True))  # noqa: B023
        for field, value in filters.items():
            if value:
                _checked(field, lambda: compile_scope(**{field: value}))  # noqa: B023
        self._remember(key)

    def _remember(self, key: tuple[Any, ...]) -> None:
        """Remember that a set of fields is valid."""
        self._valid_filters[key] = None
        if len(self._valid_filters) > _CACHED_FILTERS:
            self._valid_filters.popitem(last=False)

    def _check_rendering(self, request: CrawlRequest) -> None:
        """Check the fields about rendered pages, unless the same ones were found valid before."""
        fields = {field: value for field in _RENDER_FIELDS if (value := getattr(request, field))}
        key = ("render", *fields.items())
        if not fields or key in self._valid_filters:
            return
        if not request.renders:
            field = next((field for field in fields if field != "render"), "")
            if field:
                raise RequestRejected('no page is rendered. Add "render": true, or "auto"', field=field)
            return
        if request.renders_all and request.render_match:
            raise RequestRejected(
                'every page is rendered already. Omit it, or write "render": "auto"', field="render_match"
            )
        seconds = request.render_seconds or self._limits.render_seconds
        if seconds > self._limits.max_render_seconds and request.render_seconds:
            raise RequestRejected(
                f"must be at most {self._limits.max_render_seconds:g}; the operator set this limit",
                field="render_seconds",
            )
        for field in ("render_match", "render_capture"):
            for pattern in fields.get(field, ()):
                _checked(field, partial(check_regex, pattern, field, linear=True))
        if steps := request.render_step:
            from gossamer.extract.render_steps import read_steps  # imported late: few requests have steps

            _checked("render_step", partial(read_steps, steps, page_seconds=seconds, limit="render_seconds"))
        if (place := request.render_screenshot) not in ("", "page"):
            from gossamer.extract.render_steps import check_browser_selector

            _checked("render_screenshot", partial(check_browser_selector, place))
        self._remember(key)

    def _check_extraction(self, request: CrawlRequest) -> None:
        """Compile the extraction rules, so that a selector that does not parse is rejected here."""
        if request.extract is None:
            has_items = request.spiderid not in BUILT_IN_SPIDERS or request.text or request.markdown
            if request.unique and not has_items:
                raise RequestRejected("needs items, which extract takes from the pages", field="unique")
            return
        from gossamer.extract.fields import check_rules  # imported late: most requests have no rules

        try:
            key = _pack(request.extract)
            if key not in self._valid_rules:
                check_rules(request.extract)
                self._valid_rules[key] = None
                if len(self._valid_rules) > _CACHED_RULES:
                    self._valid_rules.popitem(last=False)
            names = field_names(read_extraction(request.extract)) if request.unique else ()
        except BadExtraction as fault:
            place = ".".join(map(str, ("extract", *fault.path)))
            raise RequestRejected(fault.reason, field=place) from None
        if unknown := [field for field in request.unique or () if field not in names]:
            raise RequestRejected(f"names {unknown[0]:.100}, which extract does not have", field="unique")

    def _check_http_options(self, request: CrawlRequest) -> None:
        """Check the fields that become part of HTTP requests."""
        if agent := request.useragent:
            _checked("useragent", lambda: check_headers((("User-Agent", agent),)))
        if cookie := request.cookie:
            _checked("cookie", lambda: check_headers((("Cookie", cookie),)))
        if headers := request.headers:
            _checked("headers", lambda: check_headers(tuple(headers.items())))
        if secret := request.secret_headers:
            _checked("secret_headers", lambda: check_headers(tuple((name, "") for name in secret)))
        if proxy := request.proxy:
            _checked("proxy", lambda: parse_proxies(proxy))

    def _url(self, text: str) -> str:
        """Return the URL in canonical form. Raises RequestRejected, also for an address that may not be crawled."""
        try:
            url = from_user_input(text)
        except BadUrl as error:
            message = str(error)  # the detail alone would be only the URL
            raise RequestRejected(message[0].lower() + message[1:], field="url") from None
        name = host(url)
        fault = self._host_faults.get(name)
        if fault is None:
            # Only addresses are checked here. The worker checks host names when it fetches, because what they resolve
            # to may change until then.
            address = host_address(name)
            fault = "" if address is None or within(address, self._networks) else refusal_reason(address) or ""
            if len(self._host_faults) >= _CACHED_HOSTS:
                self._host_faults.clear()
            self._host_faults[name] = fault
        if fault:
            raise RequestRejected(
                f"{name} is not on the public internet ({fault}); the operator may allow its network",
                field="url",
            )
        return url


def _checked(field: str, check: Callable[[], T]) -> T:
    """Return the result of `check`, with its BadInput raised as a rejection of the field."""
    try:
        return check()
    except BadInput as error:
        raise RequestRejected(error.detail, field=field) from None


BUILT_IN_SPIDERS = frozenset({"link", "wandering"})
"""Spiders that every Gossamer worker runs. Change it together with `worker.spider`."""


async def unknown_spiders(
    frontier: ValkeyFrontier, requests: Sequence[AdmittedRequest]
) -> list[RequestRejected | None]:
    """Return for each request, in order, its rejection if no worker has announced its spider; None: the request may be
    submitted. Built-in spiders count as announced. Call this before `submit`. Raises FrontierUnavailable."""
    wanted = {request.spider for request in requests if not request.wait_for_spider} - BUILT_IN_SPIDERS
    if not wanted:
        return [None] * len(requests)
    await frontier.spiders.refresh(wanted)
    unknown = {spider for spider in wanted if not frontier.spiders.lanes(spider)}
    known = ", ".join(sorted(BUILT_IN_SPIDERS | frontier.spiders.names()))
    return [
        RequestRejected(
            f"no worker has announced the spider {request.spider}; the known ones are {known}. With wait_for_spider "
            "the request is accepted",
            field="spiderid",
        )
        if request.spider in unknown and not request.wait_for_spider
        else None
        for request in requests
    ]


_NO_BROWSER = RequestRejected(
    "no worker has a browser. Start one with: gossamer worker --render. With wait_for_browser the request is accepted",
    field="render",
)


async def without_browsers(
    frontier: ValkeyFrontier, requests: Sequence[AdmittedRequest]
) -> list[RequestRejected | None]:
    """Return for each request, in order, its rejection if its pages may be rendered and no worker of its pool has a
    browser; None: it may be submitted. Call this before `submit`. Raises FrontierUnavailable."""
    needs = [request.may_render and not request.wait_for_browser for request in requests]
    if not any(needs):
        return [None] * len(requests)
    pools = await frontier.browser_workers()
    return [
        _NO_BROWSER if need and workers_of(request.crawl.pool) not in pools else None
        for need, request in zip(needs, requests, strict=True)
    ]


async def with_logins(frontier: ValkeyFrontier, requests: Sequence[AdmittedRequest]) -> list[RequestRejected | None]:
    """Return for each request, in order, its rejection if there is no login of the name that it has, if that login is
    for another site, or if its crawl has begun with another login or with none; None: it may be submitted, and does not
    follow the links that its login forbids. Call this before `submit`. Raises FrontierUnavailable."""
    wanted = {request.login for request in requests if request.login}
    if not wanted and not await frontier.logins.exist():
        return [None] * len(requests)
    logins = await frontier.logins.some(wanted)
    unknown = ""
    if wanted - logins.keys():
        names = ", ".join(await frontier.logins.all())
        unknown = f"there are {names}" if names else "there is none"
    infos = await frontier.crawl_infos(list({request.crawl.id for request in requests}))
    pools = {info.crawl: info.pool for info in infos if info is not None and info.state is CrawlState.RUNNING}
    found: list[RequestRejected | None] = []
    for request in requests:
        login = logins.get(request.login)
        if request.login and login is None:
            fault = f"no such login is stored; {unknown}. Store one with: gossamer logins put {request.login} FILE"
        else:
            fault = _login_fault(request, login, login_of(pools.get(request.crawl.id, request.crawl.pool)))
            if not fault:  # a crawl that does not run begins with the first of these requests
                pools.setdefault(request.crawl.id, request.crawl.pool)
        if login is not None:
            _follow_never(request, login.never_follow)
        found.append(RequestRejected(fault, field="login") if fault else None)
    return found


def _login_fault(request: AdmittedRequest, login: StoredLogin | None, begun_with: str) -> str:
    """Return why a request may not be submitted with its login, or without one. `begun_with`: login of its crawl;
    empty: none. Empty: it may."""
    if login is not None and (fault := other_site(login.site, [request.url])):
        return fault
    if request.login == begun_with:
        return ""
    if request.login:
        return "the crawl runs without this login. Send the request when it has finished, or for another crawl"
    again = f'with "login": "{begun_with}"'
    return f"the crawl runs with the login {begun_with}. Send the request {again}, or for another crawl"


def _follow_never(request: AdmittedRequest, patterns: Sequence[str]) -> None:
    """Add expressions of links that a login forbids to the terms of a request."""
    known = request.terms.deny_regex or ()
    if added := [pattern for pattern in patterns if pattern not in known]:
        request.terms = msgspec.structs.replace(request.terms, deny_regex=(*known, *added))


_FULL = "the domain's share of the queue is full"
"""Reason of a request that exceeds `domain_max_pending`."""
_EXCEEDS_EARLIER = (
    "this run of the crawl has seen this URL already, with a smaller maxdepth or a narrower scope; nothing was added. "
    "Send the request again when the run has finished: it then begins a new one"
)
"""Reason of a duplicate that asks for more of the crawl than the request before it."""


async def submit(frontier: ValkeyFrontier, requests: Sequence[AdmittedRequest]) -> list[SubmitResult]:
    """Add requests to the frontier. Return the result of each, in order.

    The caller has checked the requests with `unknown_spiders`: a request for an unknown spider is added and waits for a
    worker that announces it. Raises FrontierUnavailable and FrontierFull. Then repeat the call with the same objects:
    what the first call added counts as added, or as a duplicate."""
    await frontier.spiders.refresh({request.spider for request in requests})
    groups = _group(requests, frontier.spiders)
    submissions = [
        base.Submission(
            group.first.crawl,
            group.terms,
            group.batches,
            expires=group.terms.expires,
            fresh=group.first.fresh,
            idempotency_key=group.first.idempotency_key,
        )
        for group in groups
    ]
    answers = await frontier.submit(submissions)
    results = [SubmitResult(added=True)] * len(requests)  # those that no answer mentions were added
    for group, answer in zip(groups, answers, strict=True):
        if isinstance(answer, Exception):  # the crawl refuses the whole group
            for index in itertools.chain(*group.indexes):
                results[index] = SubmitResult(added=False, reason=str(answer))
            continue
        if answer.joined_running:
            for index in itertools.chain(*group.indexes):
                results[index] = SubmitResult(added=True, reason=JOINED)
        # The answer names single requests by (index of the batch in the group, position in the batch).
        for batch, position in answer.added.duplicate_positions:
            exceeds = answer.exceeds_earlier_terms and not _repeats_within(group.batches[batch], position)
            reason = _EXCEEDS_EARLIER if exceeds else DUPLICATE
            results[group.indexes[batch][position]] = SubmitResult(added=False, reason=reason)
        for (batch, position), cause in answer.added.rejected.items():
            if cause == "budget":
                reason = _FULL
            else:
                reason = str(CrawlRefused(f"this spider's part of {group.first.crawl.id} is {cause}"))
            results[group.indexes[batch][position]] = SubmitResult(added=False, reason=reason)
    return results


def _repeats_within(batch: Batch, position: int) -> bool:
    """Return whether a request repeats an earlier one of its batch. It then has the same terms as that one and asks for
    nothing more, whatever the terms of requests before this batch were."""
    return batch.fingerprints.index(batch.fingerprints[position]) < position


class _RequestGroup(NamedTuple):
    """Requests that are submitted together: same crawl, terms, spider, domain, `fresh` and idempotency key."""

    first: AdmittedRequest
    terms: Terms
    """Groups with equal terms have the same object, which the frontier stores once."""
    batches: list[Batch]
    """The requests: one batch for each priority, and another for those of that priority that have a payload."""
    indexes: list[list[int]]
    """For each batch, the index of each of its requests in the call of `submit`."""
    batch_numbers: dict[tuple[int, bool], int]
    """Index in `batches` by (priority, whether the requests have a payload). Only `_add_to_group` uses it."""


def _group(requests: Sequence[AdmittedRequest], spiders: ValkeySpiderRegistry) -> list[_RequestGroup]:
    """Return the requests in groups that can be submitted together. `spiders` computes their fingerprints: requests of
    a spider with equal fingerprints count as the same request.

    Groups and batches keep the order of the requests, so of two equal ones the frontier adds the one sent first."""
    groups: dict[tuple[CrawlId, bytes, str, str, bool, str], _RequestGroup] = {}
    packed_terms: dict[int, bytes] = {}  # by the id of the object: many requests share one, and packing is slow
    unique_terms: dict[bytes, Terms] = {}  # the first of the equal objects, by their packed form
    for index, request in enumerate(requests):
        packed = packed_terms.get(id(request.terms))
        if packed is None:
            packed = packed_terms[id(request.terms)] = _pack(request.terms)
            unique_terms.setdefault(packed, request.terms)
        key = (request.crawl.id, packed, request.spider, request.domain, request.fresh, request.idempotency_key)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _RequestGroup(request, unique_terms[packed], [], [], {})
        fingerprint = spiders.fingerprint(
            request.spider,
            request.url,
            method=request.method,
            body=request.body,
            query_order=request.terms.query_order,
        )
        _add_to_group(group, request, index, fingerprint)
    return list(groups.values())


def _add_to_group(group: _RequestGroup, request: AdmittedRequest, index: int, fingerprint: int) -> None:
    """Add a request to the group's batch for its priority, which is made for the first request."""
    has_payload = request.payload is not None
    number = group.batch_numbers.setdefault((request.priority, has_payload), len(group.batches))
    if number == len(group.batches):  # the first of its kind
        payloads: list[bytes | None] | None = [] if has_payload else None
        group.batches.append(
            Batch(request.spider, request.domain, request.priority, 0, payloads=payloads, render=request.render)
        )
        group.indexes.append([])
    batch = group.batches[number]
    batch.urls.append(request.url)
    batch.fingerprints.append(fingerprint)
    if batch.payloads is not None:
        batch.payloads.append(request.payload)  # type: ignore[attr-defined]
    group.indexes[number].append(index)

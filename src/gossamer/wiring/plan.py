"""Turns the settings of `gossamer crawl` into a plan: the crawl's identity, pool, terms and seeds.

A pool is the name of the workers that fetch a crawl's requests, terms are the options that its requests carry, and
seeds are the URLs that it starts from. This module also checks everything that a person may have typed wrong, before
anything is started.

Fixed: everything that a crawl id is made of (APPID, `derived_id`, its limits), because a command finds the crawl that
it resumes by its id.
"""

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from gossamer.errors import BadInput
from gossamer.fetch.egress import AddressService
from gossamer.fetch.http_versions import check_wish
from gossamer.fetch.proxies import check_proxies, proxy_budgets, shared_proxies
from gossamer.fetch.request import check_headers
from gossamer.fetch.tls import TlsContexts
from gossamer.model.assets import read_kinds
from gossamer.model.content import ContentOptions, content_options_for
from gossamer.model.crawl import ChangeLevel, Crawl, CrawlId, QueryOrder, RevisitOptions, RevisitRule, Terms
from gossamer.model.extraction import Extraction, field_names
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.model.record import Destination
from gossamer.model.rendering import RenderStep, RenderTerms
from gossamer.model.request import Batch
from gossamer.net.guard import parse_networks
from gossamer.net.names import domain_name
from gossamer.net.resolve import Resolver
from gossamer.option_names import label, named
from gossamer.policy.parameters import DroppedParameters
from gossamer.policy.patterns import DEFAULT_PATH_REPEATS
from gossamer.policy.scope import check_regex, file_extension, scope_of
from gossamer.policy.secrets import other_site, with_secrets_for
from gossamer.policy.urls import (
    directory,
    fingerprint,
    from_user_input,
    host,
    registered_domain,
    spider_seed,
    with_sorted_query,
)
from gossamer.settings import Settings
from gossamer.settings.browser import BrowserSettings
from gossamer.settings.crawl import CrawlSettings, parse_rate
from gossamer.settings.fetch import DEFAULT_USER_AGENT
from gossamer.settings.options import MOST_NESTED
from gossamer.settings.ranges import CENTURY_SECONDS
from gossamer.sinks.assets import check_asset_folder
from gossamer.sinks.open import CSV, TABLES
from gossamer.wiring.extraction import load_extraction
from gossamer.wiring.refusals import load_refusals
from gossamer.worker.loading import LoadedSpider, find_spider, identity

# Range of the integers in attrs. Must not grow: MessagePack, the format of stored terms, has no larger integers.
_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**64 - 1

_PATHS = {"output", "ca_file", "extract", "assets_to", "index", "session", "refusal_rules"}
"""Settings of the groups `crawl` and `fetch` that name files, which need not be valid Unicode. Must be extended with
each new one."""


def check_settings(settings: Settings) -> None:
    """Check that requests can be made with these settings. Raises BadInput for the first that is not valid."""
    for group in (settings.crawl, settings.fetch):
        for name, value in group.items():
            if name not in _PATHS and name != "attrs":
                _check_text(name, value)
    check_attrs(settings.crawl.attrs)
    _check_headers(settings)
    check_proxies(settings.fetch.proxy, settings.fetch.app_proxies, only_one=bool(settings.fetch.egress_url))
    if settings.fetch.proxy_budget == "address":
        proxy_budgets(settings.fetch.proxy, settings.fetch.app_proxies)
    if settings.fetch.egress_url:
        address_service(settings)
    checks: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
        ("backend", settings.fetch.backend, _check_fetcher),
        ("http2", settings.fetch.http2, check_wish),
        ("ca_file", settings.fetch.ca_file, lambda path: TlsContexts(extra_ca=path)),
        ("resolve", settings.fetch.resolve, lambda overrides: Resolver(overrides=overrides)),
        ("allow_network", settings.allow_networks, parse_networks),
        ("allow_domain", settings.crawl.allow_domain, lambda names: list(map(domain_name, names))),
        ("headers_for", settings.crawl.headers_for, lambda names: list(map(domain_name, names))),
        ("drop_parameter", settings.crawl.drop_parameter, DroppedParameters),
        (
            "deny_extension",
            settings.crawl.deny_extension,
            lambda endings: list(map(file_extension, endings)),
        ),
    )
    load_refusals(settings)
    for option, value, check in checks:
        try:
            if value:
                check(value)
        except BadInput as error:
            raise BadInput(str(error), option=option) from None


def _check_fetcher(name: str) -> None:
    """Raise BadInput if no package has this fetcher."""
    from gossamer.fetch.foreign import find_fetcher  # imported late: most crawls have none

    find_fetcher(name)


def address_service(settings: Settings) -> AddressService:
    """Return the service that reports this machine's public address. Raises BadInput."""
    fetch = settings.fetch
    return AddressService(
        fetch.egress_url, pattern=fetch.egress_pattern, user_agent=fetch.full_user_agent, proxy=fetch.proxy
    )


def check_attrs(attrs: dict[str, Any] | None) -> None:
    """Check that attrs can be sent: JSON (RFC 8259) with 64-bit integers, finite numbers and valid Unicode.

    Raises BadInput.
    """
    # Level by level instead of by recursion, which deeply nested attrs could exhaust.
    containers: list[Any] = [attrs] if attrs else []  # the arrays and objects of one level
    depth = 0
    while containers:
        depth += 1
        if depth > MOST_NESTED:
            raise BadInput(f"nested more than {MOST_NESTED} levels deep. Make the object flatter.", option="attrs")
        values = [value for container in containers for value in _contents(container)]
        containers = [value for value in values if _check_value(value)]


def _contents(container: Any) -> Iterator[Any]:
    """Yield the elements of an array, or the names and the values of an object."""
    if isinstance(container, dict):
        yield from container
        yield from container.values()
    else:
        yield from container


def _check_value(value: object) -> bool:
    """Return whether the value is an array or object, whose contents remain to be checked.

    Raises BadInput for a value that cannot be sent.
    """
    match value:
        case dict() | list() | tuple():
            return True
        case None | bool():
            return False
        case int():
            if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
                raise BadInput(
                    f"an integer has more than 64 bits ({len(str(value))} digits). Write it as text.", option="attrs"
                )
        case float():
            if not math.isfinite(value):
                raise BadInput(f"JSON has no {value}. Write null or text.", option="attrs")
        case str():
            _check_text(label("attrs"), value)
        case _:
            raise BadInput(f"JSON has no value like {value!r}. Write it as text.", option="attrs")
    return False


def _check_text(name: str, value: object) -> None:
    """Check that all text in a setting (a text, a tuple or a dictionary of texts) is valid Unicode.

    Raises BadInput, which calls the setting `name`."""
    texts: Iterable[object] = value if isinstance(value, tuple) else (value,)
    if isinstance(value, dict):
        texts = value.items()  # names with their values, as tuples
    for text in texts:
        if isinstance(text, tuple):
            _check_text(name, text)
        elif isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadInput(f"{name}: {text!a} is not valid Unicode. Write it in UTF-8.") from None


def _check_headers(settings: Settings) -> None:
    """Raise BadInput for a header of the settings that cannot be sent."""
    crawl = settings.crawl
    check_headers((("User-Agent", settings.fetch.full_user_agent), ("Cookie", crawl.cookie), *crawl.header.items()))
    check_headers(tuple((name, "") for name in crawl.secret_header))


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds of each unit of --expires. Units may be added, here and in `_SPAN_TEXT`. None may be removed, because users'
scripts contain them."""
_SPAN_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
"""A number and one of _UNITS."""


def parse_expires(text: str, *, now: float) -> float:
    """Return the epoch seconds of a span from now (`90`, `90m`, `12h`, `3d`) or of an ISO 8601 time.

    A time without a zone is UTC. Raises BadInput, also for a time that has passed.
    """
    span = _SPAN_TEXT.fullmatch(text.strip())
    if span:
        moment = now + float(span[1]) * _UNITS[span[2]]
    else:
        try:
            stamp = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadInput(
                f"cannot read {text!r}. Write 90m, 12h, 3d, or 2030-01-31T12:00.", option="expires"
            ) from None
        moment = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if moment > now + CENTURY_SECONDS:
        raise BadInput(
            f"{text!r:.80} is more than a hundred years away. Omit the option if the crawl never expires.",
            option="expires",
        )
    if moment <= now:
        raise BadInput(f"the time {text!r} has passed. Write a time in the future.", option="expires")
    return moment


def parse_span(text: str, *, option: str) -> float:
    """Return the seconds of a time such as `90`, `90m`, `12h` or `3d`, above 0. Raises BadInput, which names the
    option."""
    span = _SPAN_TEXT.fullmatch(text.strip())
    seconds = float(span[1]) * _UNITS[span[2]] if span else 0.0
    if not 0 < seconds <= CENTURY_SECONDS:
        raise BadInput(f"cannot read {text!r:.80}. Write a time such as 90s, 30m, 12h or 7d.", option=option)
    return seconds


APPID = "cli"
"""Application of all crawls from the command line. Must not change: crawls are resumed and found by it."""
_NAME_CHARACTERS = 40
"""Maximum length of a crawl id, given or derived. Must not change: derived ids of seeds with long host names depend on
it."""
_DIGEST_BYTES = 4
"""Length of the digest at the end of a derived id, which has two characters for each. Must not change."""
_DEFAULT_AGENT_IN_ID = "gossamer/0.1.0 (+https://pypi.org/project/gossamer-crawl/)"
"""Stands in derived ids for the default user agent, which changes with each version. Must not change."""
_PATH_REPEATS_IN_ID = 5
"""Value of `path_repeats` that is not part of a derived id: the default when ids began to have it. Must not change."""
_BUILT_IN_SPIDERS = ("link", "wandering")
"""Spiders that yield no items of their own. Must be those of `worker/spider.py`."""
_PLACES_IN_SCOPE = 10_000
"""Maximum number of domains, hosts or directories in a scope, and of domains that get the cookie. Every link is
compared with all directories, and each request carries the terms, so more make a crawl slower."""
_BATCH = 1000
"""Number of seeds that are added to the frontier in one call. More make each call longer."""


class Plan(msgspec.Struct, frozen=True):
    """A crawl before its start: what will be opened in the frontier, and its seeds."""

    crawl: Crawl
    terms: Terms
    seeds: tuple[str, ...]
    """Canonical URLs, without repeats."""
    loaded_spider: LoadedSpider
    priority: int

    @property
    def spider(self) -> str:
        """Name of the spider of the seeds."""
        return self.loaded_spider.name

    def batches(self, secret: int) -> Iterator[list[Batch]]:
        """Yield the seeds by domain, _BATCH at a time. `secret`: the frontier's key for fingerprints."""
        fingerprint_seed = spider_seed(secret, self.spider)
        group: dict[str, Batch] = {}
        for count, url in enumerate(self.seeds, 1):
            domain = registered_domain(host(url))
            batch = group.get(domain)
            if batch is None:
                batch = group[domain] = Batch(self.spider, domain, self.priority, depth=0, render=self.terms.render)
            batch.urls.append(url)
            compared_url = with_sorted_query(url) if self.terms.query_order is QueryOrder.IGNORED else url
            batch.fingerprints.append(fingerprint(compared_url, seed=fingerprint_seed))
            if count % _BATCH == 0:
                yield list(group.values())
                group = {}
        if group:
            yield list(group.values())


def make_plan(
    settings: Settings, urls: Iterable[str], *, crawl_id: str | None, now: float, private_hosts: Sequence[str] = ()
) -> Plan:
    """Return the plan of a crawl. Asks no server. Raises BadInput for anything that is not valid.

    `crawl_id` None: the name is derived from the seeds and the settings.
    """
    seeds = tuple(dict.fromkeys(map(from_user_input, urls)))
    if not seeds:
        raise BadInput("no URL is given. Try gossamer crawl https://example.com")
    crawl = settings.crawl
    check_settings(settings)
    if crawl.drop_parameter:
        seeds = tuple(dict.fromkeys(map(DroppedParameters(crawl.drop_parameter).remove, seeds)))
    spider = find_spider(crawl.spider)
    extraction = load_extraction(crawl)
    _check_unique(crawl, extraction)
    terms = _terms(settings, seeds, now=now, private_hosts=private_hosts, extraction=extraction)
    for option in ("allow", "deny", "render_match", "render_capture"):
        for text in getattr(crawl, option):
            check_regex(text, label(option), linear=False)
    check_rendering(settings)
    scope_of(terms)  # raises BadInput for a filter that is not valid
    crawl_identity = CrawlId(
        APPID, _checked_id(crawl_id) if crawl_id is not None else derived_id(settings, seeds, spider, extraction)
    )
    return Plan(
        crawl=Crawl(
            id=crawl_identity,
            pool=f"crawl-{crawl_identity.token}",  # of its own: workers of other crawls and of services stay away
            max_pages=crawl.max_pages,
            rate=parse_rate(crawl.rate) if crawl.rate else None,
            concurrency=crawl.domain_concurrency,
            idle_seconds=crawl.idle_seconds or 0.0,
            keep_failed=True,
        ),
        terms=terms,
        seeds=seeds,
        loaded_spider=spider,
        priority=crawl.priority,
    )


def _check_unique(crawl: CrawlSettings, extraction: Extraction | None) -> None:
    """Check that there are items with the fields of --unique, as far as can be told. Raises BadInput."""
    if not crawl.unique or extraction is None:
        if crawl.unique and crawl.spider in _BUILT_IN_SPIDERS and not (crawl.text or crawl.markdown):
            raise BadInput(
                f"the crawl takes no items from the pages. Add {named('field', 'NAME=SELECTOR')}.", option="unique"
            )
        return
    names = field_names(extraction)
    for field in crawl.unique:
        if field not in names:
            raise BadInput(f"there is no field {field}. Name one of: {', '.join(names)}.", option="unique")


def derived_id(
    settings: Settings, seeds: Sequence[str], spider: LoadedSpider, extraction: Extraction | None = None
) -> str:
    """Return the crawl id for these seeds and settings: the first seed's host and a digest of all.

    The same command has to return the same id in every version, because that is how it resumes its crawl. So the order
    and the format of the digest's parts must not change; a new part is added as the last ones are. The order of seeds
    and of repeated options does not matter. Rate, concurrency and outputs are not part of the digest: they may change
    when a crawl is resumed.
    """
    crawl, user_agent = settings.crawl, settings.fetch.user_agent
    ordered = sorted(seeds)
    secrets = [sorted(name.lower() for name in crawl.secret_header), sorted(crawl.headers_for)]
    parts = (
        ordered,
        crawl.depth,
        crawl.max_pages,
        crawl.domain_max_pages,
        crawl.scope,
        sorted(crawl.allow_domain),
        sorted(crawl.allow),
        sorted(crawl.deny),
        None if crawl.deny_extension is None else sorted(crawl.deny_extension),
        crawl.sitemaps,
        crawl.follow_nofollow,
        identity(spider),
        crawl.attrs,
        crawl.ignore_robots,
        _DEFAULT_AGENT_IN_ID if user_agent == DEFAULT_USER_AGENT else user_agent,
        sorted(crawl.header.items()),
        crawl.cookie,
        # Added only where they are set, so that crawls of versions without these settings keep their ids.
        *([crawl.query_order] if crawl.query_order == "ignored" else []),
        *([secrets] if any(secrets) else []),
        *([["content", content]] if (content := _content_identity(settings)) else []),
        # As text, because the order of fields counts.
        *([{"extract": msgspec.json.encode(extraction).decode()}] if extraction is not None else []),
        *([{"pattern_max_pages": crawl.pattern_max_pages}] if crawl.pattern_max_pages else []),
        *([{"path_repeats": crawl.path_repeats}] if crawl.path_repeats != _PATH_REPEATS_IN_ID else []),
        *([{"drop_parameter": sorted(crawl.drop_parameter)}] if crawl.drop_parameter else []),
        *([{"unique": sorted(crawl.unique)}] if crawl.unique else []),
        *([{"assets": [read_kinds(crawl.assets), crawl.max_assets]}] if crawl.assets else []),
        *([{"render": [crawl.render, sorted(crawl.render_match), crawl.render_step]}] if renders(settings) else []),
        *([{"render_screenshot": crawl.render_screenshot}] if crawl.render_screenshot else []),
        *([{"render_capture": sorted(crawl.render_capture)}] if crawl.render_capture else []),
        *([{"session": Path(crawl.session).name}] if crawl.session else []),
    )
    identity_json = msgspec.json.encode(parts, order="deterministic")
    ending = f"-{hashlib.blake2b(identity_json, digest_size=_DIGEST_BYTES).hexdigest()}"
    return host(ordered[0]).strip("[]")[: _NAME_CHARACTERS - len(ending)] + ending


def _content_identity(settings: Settings) -> list[Any]:
    """Return what of the options for text is part of a derived id. Must not change, like `derived_id`."""
    crawl = settings.crawl
    return [crawl.text, crawl.markdown, crawl.chunk, crawl.text_in] if crawl.text or crawl.markdown else []


def content_options(settings: Settings) -> ContentOptions | None:
    """Return what is wanted of the main content of pages; None: nothing. Raises BadInput for options that contradict
    each other, and if the extra for text is not installed."""
    crawl = settings.crawl
    if not crawl.text and not crawl.markdown:
        for name, value in (("chunk", crawl.chunk), ("text_in", crawl.text_in)):
            if value is not None:
                raise BadInput(
                    f"there is no text to put there. Add {named('markdown', True)} or {named('text', True)}.",
                    option=name,
                )
        return None
    if crawl.text and crawl.markdown and crawl.chunk is not None:
        raise BadInput(
            f"it splits either Markdown or text. Omit {named('text', True)} or {named('markdown', True)}.",
            option="chunk",
        )
    from gossamer.extract.content_pool import require_trafilatura  # imported late: most crawls extract no text

    require_trafilatura()
    place = crawl.text_in
    if place is None and crawl.chunk is None:
        # An output that takes only items would get nothing.
        wants_items = [output.records == "items" or _is_table(output) for output in crawl.output]
        place = "items" if wants_items and all(wants_items) else "both" if any(wants_items) else "records"
    return content_options_for(text=crawl.text, markdown=crawl.markdown, chunk=crawl.chunk, text_in=place)


def asset_folder(settings: Settings) -> str:
    """Return the folder for assets, the files that pages embed or link. Empty: they go nowhere, or into WARC files."""
    crawl = settings.crawl
    if crawl.assets_to:
        return crawl.assets_to
    # A screenshot was not sent over a wire, so no WARC file takes it.
    needs_folder = crawl.render_screenshot or (crawl.assets and not _archives(settings))
    return _DEFAULT_ASSET_FOLDER if needs_folder else ""


def has_assets(settings: Settings) -> bool:
    """Return whether a crawl writes files beside its pages."""
    return bool(settings.crawl.assets or settings.crawl.render_screenshot)


def asset_places(settings: Settings) -> list[str]:
    """Return the folder and the WARC files that get the assets. Empty: none are asked for."""
    if not has_assets(settings):
        return []
    folder = asset_folder(settings)
    return [folder, *_archives(settings)] if folder else _archives(settings)


def _archives(settings: Settings) -> list[str]:
    """Return the outputs that are WARC files, which get the assets, too."""
    return [path for path in settings.crawl.output_paths if path.lower().endswith(_ARCHIVES)]


_ARCHIVES = (".warc", ".warc.gz")
_DEFAULT_ASSET_FOLDER = "assets"
"""Documented: must not change."""


def check_assets(settings: Settings) -> None:
    """Check the options for assets. Raises BadInput."""
    crawl = settings.crawl
    kinds = read_kinds(crawl.assets)
    for name, value in (("assets_to", crawl.assets_to), ("max_assets", crawl.max_assets)):
        if value and not kinds and not (name == "assets_to" and crawl.render_screenshot):
            raise BadInput(f"no assets are asked for. Add, for example, {named('assets', 'images,pdf')}.", option=name)
    folder = asset_folder(settings)
    if folder:
        check_asset_folder(folder)


def keeps_index(settings: Settings) -> bool:
    """Return whether the crawl has a page index, because it is kept up to date."""
    return settings.crawl.recrawl or settings.crawl.recrawl_once


def check_recrawl(settings: Settings, *, fresh: bool) -> None:
    """Check the options of a crawl that is kept up to date. `fresh`: a person wants all from the start. Raises
    BadInput."""
    crawl = settings.crawl
    if not keeps_index(settings):
        defaults = CrawlSettings()
        for name in (
            "budget",
            "recrawl_all",
            "recrawl_rule",
            "recrawl_window",
            "ignore_feeds",
            "tell_unchanged",
            "versions",
            "index",
            "recrawl_min",
            "recrawl_max",
            "recrawl_zone",
        ):
            if getattr(crawl, name) != getattr(defaults, name):
                raise BadInput(
                    f"the crawl is not kept up to date. Add {named('recrawl', True)} or {named('recrawl_once', True)}.",
                    option=name,
                )
        return
    if crawl.recrawl_all and not crawl.recrawl_once:
        raise BadInput(f"it is for single rounds. Add {named('recrawl_once', True)}, or omit it.", option="recrawl_all")
    if crawl.recrawl and crawl.recrawl_once:
        raise BadInput(f"it goes on for ever. Omit it or {named('recrawl_once', True)}.", option="recrawl")
    if crawl.recrawl_once and crawl.recrawl_window:
        raise BadInput(
            f"with {label('recrawl_once')}, the visits begin when the command does. Omit it, or write "
            f"{named('recrawl', True)}.",
            option="recrawl_window",
        )
    if fresh:
        raise no_new_beginning()


def no_new_beginning() -> BadInput:
    """Return why --fresh is refused for a crawl that has a page index: its pages would be in no output any more, nor
    be fetched again."""
    return BadInput(
        "a crawl that is kept up to date does not begin anew. Omit the option; or delete the crawl with gossamer "
        "crawls delete, and its outputs.",
        option="fresh",
    )


_CONFIRM_SECONDS = 600.0
"""Longest time after which a page that was missing is tried again."""
_BUDGET = re.compile(r"(\d{1,12})/(\d{0,6})([smhdw])")


def revisit_options(settings: Settings) -> RevisitOptions | None:
    """Return the options of a crawl that is kept up to date. None: it is not. Raises BadInput."""
    crawl = settings.crawl
    if not keeps_index(settings):
        return None
    shortest = parse_span(crawl.recrawl_min, option="recrawl_min")
    longest = parse_span(crawl.recrawl_max, option="recrawl_max")
    if shortest > longest:
        raise BadInput(
            f"{crawl.recrawl_min} is longer than {label('recrawl_max')}, {crawl.recrawl_max}.", option="recrawl_min"
        )
    visits, seconds = parse_budget(crawl.budget) if crawl.budget else (0, 0.0)
    if crawl.recrawl_window:
        _check_window(crawl.recrawl_window, option="recrawl_window")
    if crawl.recrawl_zone != "UTC":
        _check_zone(crawl.recrawl_zone)
    return RevisitOptions(
        shortest=shortest,
        longest=longest,
        budget_visits=visits,
        budget_seconds=seconds,
        # One round after the other: the next one is when a person wants it.
        confirm=0.0 if crawl.recrawl_once else min(_CONFIRM_SECONDS, longest),
        rules=tuple(map(parse_revisit_rule, crawl.recrawl_rule)),
        unchanged=crawl.tell_unchanged,
        versions=crawl.versions,
        window=crawl.recrawl_window,
        zone=crawl.recrawl_zone,
        ignore_feeds=crawl.ignore_feeds,
    )


def _check_window(text: str, *, option: str) -> None:
    """Check a cron line. Raises BadInput that names the option."""
    from gossamer.cron import check_cron  # imported late: few crawls have windows

    try:
        check_cron(text)
    except BadInput as error:
        raise BadInput(f"{error.detail}.", option=option) from None


def _check_zone(name: str) -> None:
    """Check the name of a time zone. Raises BadInput."""
    from gossamer.cron import check_zone  # imported late, as above

    try:
        check_zone(name)
    except BadInput as error:
        raise BadInput(f"{error.detail}.", option="recrawl_zone") from None


_RULE_PARTS = ("every", "min", "max", "level", "keep", "drop", "window")
_RULE_PART = re.compile(rf"\s+({'|'.join(_RULE_PARTS)})=")


def parse_revisit_rule(text: str) -> RevisitRule:
    """Parse `/news/ every=1h level=text drop=.teaser`. Raises BadInput."""
    match, *rest = _RULE_PART.split(text.strip())
    parts = {name: value.strip() for name, value in zip(rest[::2], rest[1::2], strict=True)}
    option = "recrawl_rule"
    if len(parts) < len(rest) // 2:
        twice = next(name for name in parts if rest[::2].count(name) > 1)
        raise BadInput(f"{twice} is in {text!r:.80} twice.", option=option)
    if not match or not parts or not all(parts.values()) or ("every" in parts and parts.keys() & {"min", "max"}):
        raise BadInput(
            f"cannot read {text!r:.80}. Write REGEX every=1h, or REGEX min=1h max=7d level=text keep=main.",
            option=option,
        )
    level = parts.get("level")
    if level not in (None, *get_args(ChangeLevel)):
        raise BadInput(f"{level!r:.80} is no level. Write bytes, text, items or links.", option=option)
    if "window" in parts:
        _check_window(parts["window"], option=option)
    from gossamer.extract.selectors import compile_css  # imported late: most crawls have no rules

    try:
        check_regex(match, "rule", linear=False)
        for selector in (parts.get("keep"), parts.get("drop")):
            if selector:
                compile_css(selector)
    except BadInput as error:
        raise BadInput(error.detail, option=option) from None
    spans = {name: parse_span(parts[name], option=option) for name in ("every", "min", "max") if name in parts}
    every = spans.get("every", 0.0)
    shortest, longest = every or spans.get("min", 0.0), every or spans.get("max", 0.0)
    if shortest and longest and shortest > longest:
        raise BadInput(f"min, {parts['min']}, is longer than max, {parts['max']}.", option=option)
    return RevisitRule(
        match=match,
        shortest=shortest,
        longest=longest,
        level=cast(ChangeLevel | None, level),
        keep=parts.get("keep", ""),
        drop=parts.get("drop", ""),
        window=parts.get("window", ""),
    )


def parse_budget(text: str) -> tuple[int, float]:
    """Return the visits and the seconds of `5000/1d`: at most 5,000 visits in any day. Raises BadInput."""
    read = _BUDGET.fullmatch(text.strip())
    if read is None or int(read[1]) < 1 or not (seconds := int(read[2] or 1) * _UNITS[read[3]]):
        raise BadInput(f"cannot read {text!r:.80}. Write VISITS/TIME, for example 5000/1d or 200/6h.", option="budget")
    return int(read[1]), float(seconds)


def index_address(settings: Settings, crawl: CrawlId) -> str:
    """Return the page index of a crawl that is kept up to date: a path, or the address of a database."""
    return settings.crawl.index or os.path.join(index_folder(settings), f"{crawl.token}.sqlite")


def index_folder(settings: Settings) -> str:
    """Return the folder of the page indexes that are in no database."""
    return str(settings.data_dir / _INDEX_FOLDER)


_INDEX_FOLDER = "fresh"
"""Folder of page indexes in the data directory. Must not change: the same command finds its index there."""


def renders(settings: Settings) -> bool:
    """Return whether a browser builds pages of the crawl."""
    return settings.crawl.render != "never" or bool(settings.crawl.render_match)


def render_steps(settings: Settings) -> tuple[RenderStep, ...]:
    """Return the steps of a browser. Raises BadInput for what is no step, for a selector that does not parse, and for
    waits that are too long."""
    if not settings.crawl.render_step:
        return ()
    from gossamer.extract.render_steps import read_steps  # imported late: most crawls have no steps

    try:
        return read_steps(
            settings.crawl.render_step, page_seconds=settings.browser.seconds, limit=named("render_seconds")
        )
    except BadInput as error:
        raise BadInput(error.detail, option="render_step") from None


def _rendering_terms(settings: Settings) -> dict[str, Any]:
    """Return the terms that concern rendering. Raises BadInput for what is no step."""
    crawl, browser, defaults = settings.crawl, settings.browser, BrowserSettings()
    own = RenderTerms(
        seconds=browser.seconds if browser.seconds != defaults.seconds else 0.0,
        quiet_seconds=browser.quiet if browser.quiet != defaults.quiet else 0.0,
        other_sites=browser.other_sites if browser.other_sites != defaults.other_sites else "",
        load=tuple(sorted(set(browser.load))),
    )
    return {
        "render": crawl.render == "always",
        "render_auto": crawl.render == "auto",
        "render_steps": render_steps(settings),
        "render_match": crawl.render_match,
        "render_capture": crawl.render_capture,
        "render_screenshot": crawl.render_screenshot,
        "render_terms": own if renders(settings) and own != RenderTerms() else None,
    }


def check_rendering(settings: Settings) -> None:
    """Check the options for rendering, and that there is a browser. Raises BadInput and BrowserMissing."""
    crawl = settings.crawl
    if crawl.render_match and crawl.render == "always":
        raise BadInput(
            f"every page is rendered already. Omit it, or {named('render', 'always')}.", option="render_match"
        )
    if crawl.render_step and not renders(settings):
        raise BadInput(f"no page is rendered. Add {named('render', 'always')}.", option="render_step")
    for name in ("render_capture", "render_screenshot"):
        if getattr(crawl, name) and not renders(settings):
            raise BadInput(f"no page is rendered. Add {named('render', 'always')}.", option=name)
    if crawl.render_screenshot not in ("", "page"):
        from gossamer.extract.render_steps import check_browser_selector  # imported late: most crawls take none

        try:
            check_browser_selector(crawl.render_screenshot)
        except BadInput as error:
            raise BadInput(error.detail, option="render_screenshot") from None
    if renders(settings):
        from gossamer.wiring.browser import launch_options  # imported late: most crawls need no browser

        launch_options(settings)


def never_followed(settings: Settings, seeds: Sequence[str]) -> tuple[str, ...]:
    """Return the expressions of links that a crawl with a session never follows, because they would end it. Raises
    BadInput for a session file that is not valid, or that logs in to a site to which none of the seeds belongs."""
    if not settings.crawl.session:
        return ()
    from gossamer.session.vault import open_vault_keys
    from gossamer.wiring.sessions import load_login  # imported late: most crawls have no session

    open_vault_keys(os.environ)
    login = load_login(settings)
    if login is None:
        return NEVER_FOLLOWED
    if fault := other_site(login.site, seeds):
        raise BadInput(f"{fault}.", option="session")
    for text in login.never_follow:
        check_regex(text, "never_follow", linear=False)
    return (*NEVER_FOLLOWED, *login.never_follow)


def check_csv_guard(settings: Settings) -> None:
    """Check that --csv-guard, which a person typed, has a file to guard. Raises BadInput."""
    if not any(path.lower().endswith(CSV) for path in settings.crawl.output_paths):
        raise BadInput(
            f"no output is a CSV file. Name one, for example {named('output', 'items.csv')}, or omit the option.",
            option="csv_guard",
        )


def _is_table(output: Destination) -> bool:
    return output.records == "auto" and output.path.lower().endswith(TABLES)


def _checked_id(text: str) -> str:
    """Return a given crawl id. Raises BadInput for one that could not be typed or shown as one word."""
    if (
        not 0 < len(text) <= _NAME_CHARACTERS
        or not text.isprintable()
        or any(character in text for character in " \t\"'")
    ):
        raise BadInput(
            f"cannot use {text!r}. Write 1 to {_NAME_CHARACTERS} characters, no spaces, no quotes.", option="crawl_id"
        )
    return text


def _terms(
    settings: Settings,
    seeds: Sequence[str],
    *,
    now: float,
    private_hosts: Sequence[str],
    extraction: Extraction | None,
) -> Terms:
    """Return the options that all requests of the crawl carry. Raises BadInput for those that contradict each other."""
    crawl, fetch = settings.crawl, settings.fetch
    _check_scope(crawl)
    domains, hosts, directories = _scope_places(crawl.scope, seeds)
    domains = tuple(sorted({*domains, *map(domain_name, crawl.allow_domain)}))
    terms = Terms(
        maxdepth=crawl.depth,
        domain_max_pages=crawl.domain_max_pages,
        domain_max_pending=crawl.domain_max_pending,
        allowed_domains=domains or None,
        allowed_hosts=hosts or None,
        allowed_prefixes=directories or None,
        allow_regex=crawl.allow or None,
        deny_regex=(*crawl.deny, *never_followed(settings, seeds)) or None,
        regex_from_host=bool(crawl.allow or crawl.deny or crawl.session),
        deny_extensions=crawl.deny_extension,
        expires=parse_expires(crawl.expires, now=now) if crawl.expires else 0.0,
        useragent=fetch.full_user_agent,
        cookie=crawl.cookie or None,
        headers=crawl.header or None,
        secret_headers=tuple(sorted({name.lower() for name in crawl.secret_header})),
        attrs=crawl.attrs,
        follow_nofollow=crawl.follow_nofollow,
        sitemaps=crawl.sitemaps,
        links=crawl.links,
        ignore_robots=crawl.ignore_robots,
        insecure=crawl.insecure,
        private_hosts=tuple(private_hosts),
        proxy=shared_proxies(fetch.proxy),
        timeout_seconds=fetch.timeout,
        retries=fetch.retries,
        query_order=QueryOrder(crawl.query_order),
        pattern_max_pages=crawl.pattern_max_pages,
        path_repeats=None if crawl.path_repeats == DEFAULT_PATH_REPEATS else crawl.path_repeats,
        drop_parameters=tuple(sorted(set(crawl.drop_parameter))),
        unique=tuple(sorted(set(crawl.unique))),
        content=content_options(settings),
        extract=extraction,
        assets=read_kinds(crawl.assets),
        max_assets=crawl.max_assets,
        recrawl=revisit_options(settings),
        session=crawl.session if crawl.session in ("", "cookies") else "login",
        **_rendering_terms(settings),
    )
    terms = with_secrets_for(terms, (registered_domain(host(url)) for url in seeds), crawl.headers_for)
    if len(terms.secrets_for) > _PLACES_IN_SCOPE:
        raise BadInput(
            f"the cookie or a secret header would go to {len(terms.secrets_for):,} domains, more than the limit of "
            f"{_PLACES_IN_SCOPE:,}. Split the seeds into several crawls."
        )
    return terms


def _check_scope(crawl: CrawlSettings) -> None:
    """Raise BadInput for options of the scope that contradict each other."""
    if crawl.scope == "any" and crawl.allow_domain:
        both = f"{label('scope')} any and {label('allow_domain')}"
        raise BadInput(f"{both} contradict each other: any host is in scope already. Omit one of them.")


def _scope_places(scope: str, seeds: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return (domains, hosts, directories) that links have to be in. All empty: links may lead anywhere."""
    if scope == "any":
        return (), (), ()
    if scope == "domain":
        names = {registered_domain(host(url)) for url in seeds}
    elif scope == "host":
        names = {host(url) for url in seeds}
    else:
        names = {directory(url) for url in seeds}
    if len(names) > _PLACES_IN_SCOPE:
        raise BadInput(
            f"{label('scope')} {scope}: the seeds lie in {len(names):,} places, more than the limit of "
            f"{_PLACES_IN_SCOPE:,}. Use {named('scope', 'any')} with {named('depth')}, or several crawls."
        )
    found = tuple(sorted(names))
    return {"domain": (found, (), ()), "host": ((), found, ()), "path": ((), (), found)}[scope]

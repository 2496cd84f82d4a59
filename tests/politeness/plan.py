"""What happens in a run: a pure function of its seed and size."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gossamer.control.domains import merge_policies
from gossamer.model.crawl import BudgetScope, DomainPolicy

SPIDERS = ("link", "wandering")
LATENCY_MS = 60.0
"""Of every answer: requests overlap, and a cap has something to hold back."""

_SLOWEST, _FASTEST = 0.4, 6.0
"""Requests a second of a domain, all its scopes together, before they are made to add up."""
_FACTORS = (0.7, 0.85, 1.2)
_MOST_FACTOR = 1.2
_REACHED = 0.84
"""Of what all budgets allow: pauses, deaths, budgets that were made smaller on the way."""
_DEFAULT_SHARE = 0.1
"""Of the domains, those that nobody set a policy for."""
_STRICT_SPACING_SECONDS = 0.5
"""Even spacing without catch-up loses what every request comes late; closer than this that alone would be much."""


class Style(StrEnum):
    """How a domain is fetched at the beginning."""

    EVEN = "even"
    """Moderated."""
    STRICT = "strict"
    """Moderated, and never caught up."""
    BURSTS = "bursts"
    DEFAULT = "default"
    """The operator's default policy."""


class Way(StrEnum):
    """How a change reaches the cluster."""

    REST = "REST"
    COMMAND = "command"
    BUS = "bus"


class Kind(StrEnum):
    """What is done to a worker."""

    KILL = "kill"
    FREEZE = "freeze"


@dataclass(frozen=True, slots=True)
class Site:
    """One domain."""

    name: str
    style: Style
    policy: DomainPolicy
    """Its own at the beginning; empty: the default's."""
    rate: float
    """Requests a second that it is meant to get, all its scopes together."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of policy."""

    at: float
    """Seconds after the beginning, as are all times here."""
    domain: str | None
    """None: the default."""
    way: Way
    changes: DomainPolicy
    """What the change names."""
    after: DomainPolicy
    """All of the policy then."""


@dataclass(frozen=True, slots=True)
class Blow:
    """What a worker gets."""

    at: float
    kind: Kind
    whom: int
    """Which place among the workers."""
    seconds: float
    """Of FREEZE: how long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    workers: int
    egresses: tuple[str, ...]
    """Workers take them in turn."""
    seconds: float
    sites: tuple[Site, ...]
    default: DomainPolicy
    turns: tuple[Turn, ...]
    blows: tuple[Blow, ...]

    def urls(self, site: Site) -> int:
        """How many each spider is to be fed of a domain, so that neither runs out of them."""
        return int(site.rate * _MOST_FACTOR * self.seconds) + 60


def make_plan(
    seed: int,
    *,
    requests: int,
    workers: int,
    domains: int,
    pages_a_second: float,
    dead_after_seconds: float,
    turn_seconds: float,
    blow_seconds: float,
    longest_window: float = 12.0,
) -> Plan:
    """`pages_a_second`: what all budgets together allow. `turn_seconds`, `blow_seconds`: from one to the next."""
    chance = random.Random(f"politeness {seed}")
    egresses = tuple(f"e{number}" for number in range(math.ceil(workers / 2)))
    seconds = requests / (pages_a_second * _REACHED)
    draw = _Draw(chance, len(egresses), longest_window)
    rates = [_SLOWEST * (_FASTEST / _SLOWEST) ** chance.random() for _ in range(domains)]
    level = pages_a_second / sum(rates)
    default = DomainPolicy(hits=2, window_seconds=2.0, moderated=True)
    sites = []
    for number, rate in enumerate(rates):
        name = f"site{number}.test"
        if number < max(1, domains * _DEFAULT_SHARE):
            sites.append(Site(name, Style.DEFAULT, DomainPolicy(), 1.0))
        else:
            scope = tuple(BudgetScope)[number % len(BudgetScope)]
            sites.append(draw.site(name, rate * level, scope))
    turns = _turns(draw, sites, default, seconds, turn_seconds)
    blows = tuple(
        Blow(
            at=(number + 0.2 + 0.6 * chance.random()) * blow_seconds,
            kind=(Kind.KILL, Kind.FREEZE)[number % 2],
            whom=chance.randrange(workers),
            seconds=dead_after_seconds * chance.uniform(1.3, 2.5),
        )
        for number in range(int(seconds / blow_seconds))
    )
    return Plan(seed, workers, egresses, seconds, tuple(sites), default, tuple(turns), blows)


class _Draw:
    def __init__(self, chance: random.Random, egresses: int, longest_window: float) -> None:
        self.chance = chance
        self._egresses = egresses
        self._windows = [window for window in (1.0, 2.0, 3.0, 5.0, 8.0, 12.0) if window <= longest_window]

    def site(self, name: str, rate: float, scope: BudgetScope) -> Site:
        style = self.chance.choice((Style.EVEN, Style.EVEN, Style.STRICT, Style.BURSTS, Style.BURSTS))
        return Site(name, style, self.policy(rate, scope, style), rate)

    def scopes(self, scope: BudgetScope) -> int:
        """How many budgets a domain has."""
        by_spider = len(SPIDERS) if scope in (BudgetScope.TYPE, BudgetScope.TYPE_IP) else 1
        by_egress = self._egresses if scope in (BudgetScope.IP, BudgetScope.TYPE_IP) else 1
        return by_spider * by_egress

    def policy(self, rate: float, scope: BudgetScope, style: Style) -> DomainPolicy:
        """So many requests a second, all scopes together, somehow."""
        each = rate / self.scopes(scope)
        if style is Style.STRICT:
            each = min(each, 1 / _STRICT_SPACING_SECONDS)
        window = self.chance.choice(self._windows)
        hits = math.floor(each * window)
        if hits < 1:
            hits, window = 1, round(1 / each, 3)
        scale = None
        if self.chance.random() < 0.3:  # the same, said otherwise
            scale = 0.5
            if hits == 1:
                window /= 2
            else:
                hits *= 2
        concurrency = None
        if self.chance.random() < 0.4:
            concurrency = max(1, math.ceil(each * self.chance.uniform(0.4, 1.5)))
        return DomainPolicy(
            hits=hits,
            window_seconds=window,
            moderated=style is not Style.BURSTS,
            elastic=False if style is Style.STRICT else None,
            scale=scale,
            scope=scope,
            concurrency=concurrency,
        )


def _turns(
    draw: _Draw, sites: Sequence[Site], default: DomainPolicy, seconds: float, every_seconds: float
) -> list[Turn]:
    chance = draw.chance
    own: dict[str | None, DomainPolicy] = {site.name: site.policy for site in sites}
    own[None] = default
    changeable = [site for site in sites if site.style is not Style.DEFAULT]
    free_from = dict.fromkeys(own, 0.0)
    turns: list[Turn] = []

    def add(at: float, domain: str | None, way: Way, changes: DomainPolicy, after: DomainPolicy) -> None:
        turns.append(Turn(round(at, 3), domain, way, changes, after))
        own[domain] = after

    for number in range(1, int(seconds / every_seconds)):
        at = (number + chance.uniform(-0.2, 0.2)) * every_seconds
        open_sites = [site for site in changeable if free_from[site.name] <= at]
        if number % 12 == 6 or not open_sites:
            changes = DomainPolicy(hits=chance.choice((1, 2, 3)), window_seconds=chance.choice((1.0, 2.0, 3.0)))
            add(at, None, chance.choice((Way.REST, Way.COMMAND)), changes, merge_policies(own[None], changes))
            continue
        site = chance.choice(open_sites)
        before = own[site.name]
        match number % 6:
            case 0 | 1:  # another budget
                each = replace_rate(draw, site, before, chance.choice(_FACTORS))
                add(at, site.name, chance.choice((Way.REST, Way.COMMAND)), each, merge_policies(before, each))
            case 2:  # another scope, and with it all else
                scope = chance.choice([scope for scope in BudgetScope if scope != before.scope])
                changed = draw.policy(site.rate, scope, chance.choice((Style.EVEN, Style.BURSTS)))
                changed = merge_policies(DomainPolicy(scale=1.0, concurrency=8, elastic=True), changed)
                add(at, site.name, Way.REST, changed, merge_policies(before, changed))
            case 3:  # as Scrapy Cluster's clients say it: what they cannot name stays as it is
                window = chance.choice((1, 2, 3))
                each = site.rate / draw.scopes(before.scope or BudgetScope.DOMAIN)
                if before.elastic is False:
                    each = min(each, 1 / _STRICT_SPACING_SECONDS)
                window = max(window, math.ceil(1 / each))
                hits = math.floor(each * window)
                changed = DomainPolicy(hits=hits, window_seconds=float(window), scale=1.0)
                add(at, site.name, Way.BUS, changed, merge_policies(before, changed))
            case 4:  # a pause
                rest = chance.uniform(2.0, 4.0)
                scale = before.scale or 1.0
                way = chance.choice((Way.REST, Way.COMMAND))
                stopped, going = DomainPolicy(scale=0.0), DomainPolicy(scale=scale)
                add(at, site.name, way, stopped, merge_policies(before, stopped))
                add(at + rest, site.name, way, going, merge_policies(before, going))
                free_from[site.name] = at + rest + 5.0
            case _:  # the blacklist
                rest = chance.uniform(2.0, 4.0)
                black, white = DomainPolicy(blacklisted=True), DomainPolicy(blacklisted=False)
                add(at, site.name, Way.BUS, black, merge_policies(before, black))
                add(at + rest, site.name, Way.BUS, white, merge_policies(before, white))
                free_from[site.name] = at + rest + 5.0
    return sorted(turns, key=lambda turn: turn.at)


def replace_rate(draw: _Draw, site: Site, before: DomainPolicy, factor: float) -> DomainPolicy:
    """Other hits in another window, by this factor of what the domain is meant to get."""
    assert before.scope is not None or before.hits is not None
    scope = before.scope or BudgetScope.DOMAIN
    style = Style.STRICT if before.elastic is False else Style.EVEN if before.moderated is not False else Style.BURSTS
    drawn = draw.policy(site.rate * factor, scope, style)
    scale = drawn.scale if drawn.scale is not None else 1.0
    concurrency = None if before.concurrency is None else drawn.concurrency or 8
    return DomainPolicy(
        hits=drawn.hits, window_seconds=drawn.window_seconds, scale=scale, moderated=drawn.moderated,
        concurrency=concurrency,
    )  # fmt: skip


def slower(plan: Plan) -> Plan:
    """The same without changes and blows: what is then not used is the crawler's own doing."""
    return replace(plan, turns=(), blows=())

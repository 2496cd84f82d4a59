"""The model's half that counts hits: what a domain's budget allows, as upper bounds and never as a prediction."""

import math
from dataclasses import dataclass, field

from gossamer.model.crawl import BUILT_IN_POLICY, BudgetScope, Crawl, DomainPolicy, Rate

AHEAD_SECONDS = 0.02
"""A request may be handed out so long before it is to start."""
CATCH_UP = 0.9
BLUR_SECONDS = 0.002
"""Stores round times to a millisecond or so; a hit that is early by less is not one."""

ScopeKey = tuple[str, ...]


@dataclass(frozen=True)
class Hit:
    """A hit, and the gap that its crawl asked for."""

    at: float
    gap_seconds: float


@dataclass(frozen=True)
class Flight:
    """A request in flight, and how many its crawl asked for."""

    key: ScopeKey
    most: int


@dataclass(frozen=True)
class Allowance:
    """At most `hits` in any rolling `window_seconds`; hits at least `gap_seconds` apart."""

    hits: int
    window_seconds: float
    gap_seconds: float

    def fault(self, before: list[float], now: float) -> str:
        """What is wrong with a hit at this moment, after these. Empty: nothing."""
        recent = [at for at in before if at > now - self.window_seconds + BLUR_SECONDS]
        if len(recent) >= self.hits:
            return f"{len(recent) + 1} hits within {self}: {recent} and {now}"
        if before and self.gap_seconds and now - before[-1] < self.gap_seconds - BLUR_SECONDS:
            return f"only {now - before[-1]} s after the last: {self}"
        return ""


def scaled(hits: float, window: float, scale: float, *, spaced: bool, elastic: bool) -> Allowance:
    """Below one hit the window is stretched instead. `elastic`: to make up for missed hits the gap may shrink."""
    allowed = hits * scale
    if allowed < 1:
        window, allowed = window / allowed, 1
    return Allowance(math.floor(allowed), window, window / allowed * (CATCH_UP if elastic else 1.0) if spaced else 0.0)


@dataclass
class Politeness:
    """Policies, blocks and every hit that was charged."""

    default: DomainPolicy = field(default_factory=DomainPolicy)
    policies: dict[str, DomainPolicy] = field(default_factory=dict)
    blocked_until: dict[str, float] = field(default_factory=dict)
    crawl_delay: dict[str, float] = field(default_factory=dict)
    hits: dict[ScopeKey, list[Hit]] = field(default_factory=dict)
    sharing: dict[ScopeKey, dict[object, Crawl]] = field(default_factory=dict)
    """Crawls that ever had a hit of the scope."""
    in_flight: dict[object, Flight] = field(default_factory=dict)
    """Lease key -> the scope it was charged to."""
    charged: dict[object, float] = field(default_factory=dict)
    """Lease key -> when; of requests that were not redirected."""
    longest_window: float = 1.0
    """That was ever tested: no hit matters longer."""

    def explicit(self, domain: str, name: str) -> object:
        """The operator's word on one field: the domain's, else the default's; None: neither."""
        own = getattr(self.policies.get(domain, DomainPolicy()), name)
        return own if own is not None else getattr(self.default, name)

    def in_force(self, domain: str, name: str) -> object:
        """Like `explicit`, the built-in last."""
        value = self.explicit(domain, name)
        return value if value is not None else getattr(BUILT_IN_POLICY, name)

    def closed(self, domain: str, now: float) -> bool:
        """Nothing of this domain may be handed out now."""
        return (
            bool(self.in_force(domain, "blacklisted"))
            or self.in_force(domain, "scale") == 0
            or self.blocked_until.get(domain, 0.0) > now + BLUR_SECONDS
        )

    def own_allowance(self, domain: str, crawl: Crawl) -> Allowance | None:
        """What a crawl asks for itself: its rate, else the built-in one. None: the operator's is its only one."""
        scale = self.in_force(domain, "scale")
        assert isinstance(scale, float | int)
        if crawl.rate is None and self.is_said(domain):
            return None
        rate = crawl.rate or BUILT_IN_RATE
        spaced = rate.moderated if crawl.rate is not None else bool(self.in_force(domain, "moderated"))
        elastic = bool(self.in_force(domain, "elastic"))
        return scaled(rate.hits, rate.window_seconds, scale, spaced=spaced, elastic=elastic)

    def is_said(self, domain: str) -> bool:
        """The operator has set a rate."""
        return self.explicit(domain, "hits") is not None or self.explicit(domain, "window_seconds") is not None

    def allowances(self, domain: str, crawl: Crawl) -> list[Allowance]:
        """Every bound that a hit of this crawl must fit into where no other crawl asks for more."""
        own = self.own_allowance(domain, crawl)
        bounds = [own] if own is not None else []
        if self.is_said(domain):
            scale = self.in_force(domain, "scale")
            hits, window = self.in_force(domain, "hits"), self.in_force(domain, "window_seconds")
            assert isinstance(scale, float | int)
            assert isinstance(hits, int)
            assert isinstance(window, float | int)
            spaced, elastic = bool(self.in_force(domain, "moderated")), bool(self.in_force(domain, "elastic"))
            bounds.append(scaled(hits, window, scale, spaced=spaced, elastic=elastic))
        return bounds

    def gap(self, domain: str, crawl: Crawl) -> float:
        """Seconds between two hits that a crawl asks for."""
        own = self.own_allowance(domain, crawl)
        return own.window_seconds / own.hits if own is not None else 0.0

    def concurrency(self, domain: str, crawl: Crawl) -> int:
        """How many requests of the scope may be in flight when one more of this crawl is handed out."""
        said = self.explicit(domain, "concurrency")
        if said is not None:
            assert isinstance(said, int)
            return said
        if crawl.concurrency is not None:
            return crawl.concurrency
        rate = min(bound.hits / bound.window_seconds for bound in self.allowances(domain, crawl))
        return 1 if rate <= 1 else min(16, math.ceil(2 * rate))

    def key(self, domain: str, spider: str, egress: str) -> ScopeKey:
        """What shares a budget, under the scope in force."""
        scope = self.in_force(domain, "scope")
        return (
            str(scope),
            domain,
            spider if scope in (BudgetScope.TYPE, BudgetScope.TYPE_IP) else "",
            egress if scope in (BudgetScope.IP, BudgetScope.TYPE_IP) else "",
        )

    def charge(self, key: ScopeKey, domain: str, crawl: Crawl, now: float) -> None:
        """Record a hit; AssertionError where the frontier should not have granted it. A hop is charged where its
        request was, also when the operator chose another scope meanwhile."""
        hits, sharing = self.hits.setdefault(key, []), self.sharing.setdefault(key, {})
        before = [hit.at for hit in hits]
        gap, own = self.gap(domain, crawl), self.own_allowance(domain, crawl)
        # All crawls of the scope together stay within what one of them may have, and each within its own of those that
        # ask for no more.
        sharing[crawl.id] = crawl
        faults = []
        for other in sharing.values():
            bounds = self.allowances(domain, other)
            self.longest_window = max([self.longest_window, *(bound.window_seconds for bound in bounds)])
            faults.append([fault for bound in bounds if (fault := bound.fault(before, now))])
        assert not all(faults), f"hits of {key}: {faults}"
        fault = own.fault([hit.at for hit in hits if hit.gap_seconds >= gap], now) if own is not None else ""
        assert not fault, f"hits of {key} for {crawl.id}: {fault}"
        delay = self.crawl_delay.get(domain, 0.0)
        if before and delay:
            since = now - before[-1]
            assert since >= delay - BLUR_SECONDS, f"hits of {key} only {since} s apart, robots.txt asks for {delay}"
        hits.append(Hit(now, gap))

    def begin(
        self, lease: object, domain: str, spider: str, egress: str, crawl: Crawl, now: float, *, start: float
    ) -> None:
        """A request is handed out that is to start at `start`: a hit then, and one more in flight."""
        assert now <= start <= now + AHEAD_SECONDS + BLUR_SECONDS, f"handed out {start - now} s before it starts"
        key = self.key(domain, spider, egress)
        self.charge(key, domain, crawl, start)
        flying = [other.most for other in self.in_flight.values() if other.key == key]
        cap = self.concurrency(domain, crawl)
        own = sum(1 for most in flying if most <= cap)
        assert own < cap, f"{own + 1} requests of {key} in flight, {cap} are allowed"
        most = max(self.concurrency(domain, other) for other in self.sharing[key].values())
        assert len(flying) < most, f"{len(flying) + 1} requests of {key} in flight, {most} are allowed to all crawls"
        self.in_flight[lease] = Flight(key, cap)
        self.charged[lease] = start

    def redirected(self, lease: object) -> None:
        """Its request was sent, and led on."""
        self.charged.pop(lease, None)

    def end(self, lease: object, *, unused: bool = False) -> None:
        """It is in flight no more. `unused`: it never was; its hit is free again, unless it was redirected."""
        key, at = self.in_flight.pop(lease).key, self.charged.pop(lease, None)
        if unused and at is not None:
            self.hits[key].remove(next(hit for hit in self.hits[key] if hit.at == at))

    def surely_free(self, domain: str, now: float) -> bool:
        """Nothing whatsoever holds this domain back, under no reading of the rules."""
        if self.closed(domain, now):
            return False
        windows = [self.longest_window, self.crawl_delay.get(domain, 0.0)]
        windows += [bound.window_seconds for bound in self.allowances(domain, _PLAIN)]
        last = max((hits[-1].at for key, hits in self.hits.items() if key[1] == domain and hits), default=-math.inf)
        return (
            now > self.blocked_until.get(domain, 0.0) + BLUR_SECONDS
            and now - last > max(windows) + 1
            and all(flight.key[1] != domain for flight in self.in_flight.values())
        )


BUILT_IN_RATE = Rate(1, 1.0)
_PLAIN = Crawl(id=None)  # type: ignore[arg-type]

"""The model's half that counts hits: what a domain's budget allows, as upper bounds and never as a prediction."""

import math
from dataclasses import dataclass, field

from gossamer.model.crawl import BUILT_IN_POLICY, BudgetScope, Crawl, DomainPolicy

AHEAD_SECONDS = 0.02
"""A request may be handed out so long before it is to start."""
CATCH_UP = 0.9
BLUR_SECONDS = 0.002
"""Stores round times to a millisecond or so; a hit that is early by less is not one."""

ScopeKey = tuple[str, ...]


@dataclass(frozen=True)
class Allowance:
    """At most `hits` in any rolling `window_seconds`; hits at least `gap_seconds` apart."""

    hits: int
    window_seconds: float
    gap_seconds: float


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
    hits: dict[ScopeKey, list[float]] = field(default_factory=dict)
    in_flight: dict[object, ScopeKey] = field(default_factory=dict)
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

    def allowances(self, domain: str, crawl: Crawl) -> list[Allowance]:
        """Every bound that a hit of this crawl must fit into."""
        scale = self.in_force(domain, "scale")
        elastic = bool(self.in_force(domain, "elastic"))
        assert isinstance(scale, float | int)
        hits, window = self.explicit(domain, "hits"), self.explicit(domain, "window_seconds")
        moderated = bool(self.in_force(domain, "moderated"))
        bounds = []
        said = hits is not None or window is not None
        if said or crawl.rate is None:
            hits, window = self.in_force(domain, "hits"), self.in_force(domain, "window_seconds")
            assert isinstance(hits, int)
            assert isinstance(window, float | int)
            bounds.append(scaled(hits, window, scale, spaced=moderated, elastic=elastic))
        if crawl.rate is not None:
            wish = crawl.rate
            slower = not bounds or wish.hits / wish.window_seconds < bounds[0].hits / bounds[0].window_seconds
            if slower:
                bounds.append(scaled(wish.hits, wish.window_seconds, scale, spaced=wish.moderated, elastic=elastic))
        return bounds

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
        before = self.hits.setdefault(key, [])
        for bound in self.allowances(domain, crawl):
            self.longest_window = max(self.longest_window, bound.window_seconds)
            recent = [at for at in before if at > now - bound.window_seconds + BLUR_SECONDS]
            assert len(recent) < bound.hits, f"{len(recent) + 1} hits of {key} within {bound}: {recent} and {now}"
            if before and bound.gap_seconds:
                gap = now - before[-1]
                assert gap >= bound.gap_seconds - BLUR_SECONDS, f"hits of {key} only {gap} s apart: {bound}"
        delay = self.crawl_delay.get(domain, 0.0)
        if before and delay:
            gap = now - before[-1]
            assert gap >= delay - BLUR_SECONDS, f"hits of {key} only {gap} s apart, robots.txt asks for {delay}"
        before.append(now)

    def begin(
        self, lease: object, domain: str, spider: str, egress: str, crawl: Crawl, now: float, *, start: float
    ) -> None:
        """A request is handed out that is to start at `start`: a hit then, and one more in flight."""
        assert now <= start <= now + AHEAD_SECONDS + BLUR_SECONDS, f"handed out {start - now} s before it starts"
        key = self.key(domain, spider, egress)
        self.charge(key, domain, crawl, start)
        flying = sum(1 for other in self.in_flight.values() if other == key)
        cap = self.concurrency(domain, crawl)
        assert flying < cap, f"{flying + 1} requests of {key} in flight, {cap} are allowed"
        self.in_flight[lease] = key
        self.charged[lease] = start

    def redirected(self, lease: object) -> None:
        """Its request was sent, and led on."""
        self.charged.pop(lease, None)

    def end(self, lease: object, *, unused: bool = False) -> None:
        """It is in flight no more. `unused`: it never was; its hit is free again, unless it was redirected."""
        key, at = self.in_flight.pop(lease), self.charged.pop(lease, None)
        if unused and at is not None:
            self.hits[key].remove(at)

    def surely_free(self, domain: str, now: float) -> bool:
        """Nothing whatsoever holds this domain back, under no reading of the rules."""
        if self.closed(domain, now):
            return False
        windows = [self.longest_window, self.crawl_delay.get(domain, 0.0)]
        windows += [bound.window_seconds for bound in self.allowances(domain, _PLAIN)]
        last = max((at[-1] for key, at in self.hits.items() if key[1] == domain and at), default=-math.inf)
        return (
            now > self.blocked_until.get(domain, 0.0) + BLUR_SECONDS
            and now - last > max(windows) + 1
            and all(key[1] != domain for key in self.in_flight.values())
        )


_PLAIN = Crawl(id=None)  # type: ignore[arg-type]

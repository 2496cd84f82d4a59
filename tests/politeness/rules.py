"""What a policy comes to: the rule that a site's owner could hold a crawler to. From the manual, not from the code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.model.crawl import BUILT_IN_POLICY, BudgetScope, DomainPolicy

MOST_IN_FLIGHT = 16
"""Of a domain whose policy names no concurrency."""


@dataclass(frozen=True, slots=True)
class Rule:
    """At most `hits` in any rolling `window` seconds for each scope, `spacing` seconds apart, `cap` at once."""

    hits: int
    window: float
    spacing: float
    """0: none is promised. A policy with elastic catch-up promises none."""
    cap: int
    by_spider: bool
    by_egress: bool
    off: bool
    """Paused or blacklisted: no hit at all."""

    @property
    def rate(self) -> float:
        """Hits a second of one scope."""
        return 0.0 if self.off else self.hits / self.window

    def key(self, spider: str, egress: str) -> tuple[str, str]:
        """The scope that a request belongs to; equal keys share one budget."""
        return (spider if self.by_spider else "", egress if self.by_egress else "")

    def keys(self, spiders: Sequence[str], egresses: Sequence[str]) -> list[tuple[str, str]]:
        """All scopes there are."""
        return [
            (spider, egress)
            for spider in (spiders if self.by_spider else ("",))
            for egress in (egresses if self.by_egress else ("",))
        ]

    def same_scope(self, other: "Rule") -> bool:
        """A change between the two leaves what was counted where it is."""
        return (self.by_spider, self.by_egress) == (other.by_spider, other.by_egress)


def in_force(own: DomainPolicy, default: DomainPolicy) -> DomainPolicy:
    """A domain's policy over the default over the built-in, field by field."""
    fields = {}
    for name in DomainPolicy.__struct_fields__:
        levels = (getattr(level, name) for level in (own, default, BUILT_IN_POLICY))
        fields[name] = next((value for value in levels if value is not None), None)
    return DomainPolicy(**fields)


def rule_of(own: DomainPolicy, default: DomainPolicy) -> Rule:
    """The rule that the domain is under."""
    policy = in_force(own, default)
    assert policy.hits is not None
    assert policy.window_seconds is not None
    assert policy.scale is not None
    hits, window = policy.hits, policy.window_seconds
    allowed = hits * policy.scale
    off = bool(policy.blacklisted) or policy.scale == 0
    if not off:
        hits, window = (math.floor(allowed), window) if allowed >= 1 else (1, window / allowed)
    rate = hits / window
    default_cap = 1 if rate <= 1 else min(MOST_IN_FLIGHT, math.ceil(2 * rate))
    return Rule(
        hits=hits,
        window=window,
        spacing=window / hits if policy.moderated and not policy.elastic else 0.0,
        cap=policy.concurrency or default_cap,
        by_spider=policy.scope in (BudgetScope.TYPE, BudgetScope.TYPE_IP),
        by_egress=policy.scope in (BudgetScope.IP, BudgetScope.TYPE_IP),
        off=off,
    )

"""Rules for pages of a crawl that is kept up to date, by their URLs."""

from collections.abc import Sequence
from typing import Final

from gossamer.fresh.page import Change, ChangeKind
from gossamer.model.crawl import RevisitRule
from gossamer.policy.revisits import IntervalLimits
from gossamer.policy.scope import UrlExpressions

_LEVELS: Final = {"bytes": frozenset[str](), "text": frozenset(("bytes",)), "items": frozenset(("bytes", "text"))}
"""By level: differences that do not count."""
_EVERY_PAGE: Final = RevisitRule(match="")


class RevisitRules:
    """Compiled rules. Raises BadInput for an expression that cannot be used."""

    def __init__(self, rules: Sequence[RevisitRule]) -> None:
        self._rules = [(UrlExpressions([rule.match], "rule", from_host=True), rule) for rule in rules]

    def of(self, url: str) -> RevisitRule:
        """Return the rule of a URL. One without a rule has the rule that changes nothing."""
        return next((rule for expressions, rule in self._rules if expressions.matches(url)), _EVERY_PAGE)


def limits_of(rule: RevisitRule, limits: IntervalLimits) -> IntervalLimits:
    """Return the limits of the pages of a rule. `limits`: those of the crawl."""
    longest = rule.longest or max(limits.longest, rule.shortest)
    return IntervalLimits(rule.shortest or min(limits.shortest, longest), longest)


def is_told(change: Change, rule: RevisitRule, *, tell_unchanged: bool) -> bool:
    """Return whether readers get a change. One that is below the level of its rule counts as unchanged."""
    if change.change is ChangeKind.CHANGED and set(change.what) <= _LEVELS[rule.level or "bytes"]:
        change.change, change.what = ChangeKind.UNCHANGED, ()
    return tell_unchanged or change.change is not ChangeKind.UNCHANGED

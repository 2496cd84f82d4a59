"""Rules for pages of a crawl that is kept up to date, by their URLs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from gossamer.fresh.page import Change, ChangeKind
from gossamer.model.crawl import RevisitRule
from gossamer.policy.revisits import IntervalLimits
from gossamer.policy.scope import UrlExpressions

if TYPE_CHECKING:
    from gossamer.cron import CronWindow

LEVELS: Final[dict[str, frozenset[str]]] = {
    "bytes": frozenset(),
    "text": frozenset(("bytes", "links")),
    "items": frozenset(("bytes", "text", "links")),
    "links": frozenset(("bytes", "text", "items")),
}
"""By level: differences that do not count."""
_EVERY_PAGE: Final = RevisitRule(match="")


class RevisitRules:
    """Compiled rules, and the windows of the crawl's pages. Raises BadInput for an expression that cannot be used."""

    def __init__(self, rules: Sequence[RevisitRule], *, window: str = "", zone: str = "UTC") -> None:
        """`window`, `zone`: as in RevisitOptions."""
        self._rules = [(UrlExpressions([rule.match], "rule", from_host=True), rule) for rule in rules]
        self._window = window
        self._windows = _compiled(filter(None, (window, *(rule.window for rule in rules))), zone)

    @property
    def has_windows(self) -> bool:
        """True if some pages are visited in windows only."""
        return bool(self._windows)

    def opening(self, url: str, moment: float) -> float:
        """Return the first moment, this one or a later one, at which a visit of the page may begin."""
        window = self._window_of(url)
        return moment if window is None else window.opening(moment)

    def closing(self, url: str, moment: float) -> float:
        """Return the first moment, this one or a later one, at which a visit of the page may not begin. 0: there is
        none."""
        window = self._window_of(url)
        return 0.0 if window is None else window.closing(moment)

    def _window_of(self, url: str) -> "CronWindow | None":
        """Return the window of a page. None: it may always be visited."""
        return self._windows.get(self.of(url).window or self._window) if self._windows else None

    def of(self, url: str) -> RevisitRule:
        """Return the rule of a URL. One without a rule has the rule that changes nothing."""
        return next((rule for expressions, rule in self._rules if expressions.matches(url)), _EVERY_PAGE)


def _compiled(lines: Iterable[str], zone: str) -> "dict[str, CronWindow]":
    """Return windows by their cron lines."""
    if not (found := set(lines)):
        return {}
    from gossamer.cron import CronWindow  # imported late: few crawls have windows

    return {line: CronWindow(line, zone) for line in found}


def limits_of(rule: RevisitRule, limits: IntervalLimits) -> IntervalLimits:
    """Return the limits of the pages of a rule. `limits`: those of the crawl."""
    longest = rule.longest or max(limits.longest, rule.shortest)
    return IntervalLimits(rule.shortest or min(limits.shortest, longest), longest)


def is_told(change: Change, rule: RevisitRule, *, tell_unchanged: bool) -> bool:
    """Return whether readers get a change. One that is below the level of its rule counts as unchanged."""
    if change.change is ChangeKind.CHANGED and set(change.what) <= LEVELS[rule.level or "bytes"]:
        change.change, change.what, change.share = ChangeKind.UNCHANGED, (), None
    return tell_unchanged or change.change is not ChangeKind.UNCHANGED

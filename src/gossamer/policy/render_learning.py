"""Learns for each URL pattern of a crawl whether rendering changes links or main text of its pages.

The first pages of a pattern are rendered, and compared with what the server has sent. Patterns whose pages gain nothing
are fetched plainly from then on, except one page now and then, because sites change. Worker processes tell each other
the verdict on a pattern, not each page.
"""

from typing import Literal, NamedTuple

from gossamer.policy.cache import BoundedCache

_SAMPLES = 2
"""Pages of a new pattern that are rendered before one is fetched plainly. More find more of the patterns of which only
some pages need it, and cost renderings."""
_DOUBTS = 5
"""Rendered pages in a row that gained nothing, after which those of their pattern are fetched plainly."""
_FIRST_CHECK, _LAST_CHECK = 20, 640
"""Plain pages of a pattern after which one is rendered again: at first, and at most. The number doubles each time that
nothing was gained."""
_BYTES = 4 * 1024 * 1024
_PATTERN_BYTES = 400

Why = Literal["sample", "change", "check", "no_change", "no_browser"]
"""Reason of a choice. sample: little is known of the pattern yet; change: rendering has changed its pages; check: one
page, to see whether that is still so; no_change: rendering has not changed its pages; no_browser: no worker has a
browser. Fixed: records have them."""


class RenderKey(NamedTuple):
    """Pages that are taken to be alike."""

    crawl: str
    pattern: str
    """Pattern of their URLs."""
    is_empty: bool
    """True: the server sends them without anything to read."""


class RenderChoice(NamedTuple):
    """Decision on one page."""

    render: bool
    why: Why


class RenderVerdict(NamedTuple):
    """Result of what one process has learnt of a key, for the others."""

    renders: bool
    """True: rendering changes the pages."""
    interval: int
    """Plain pages after which one is rendered again."""


class _Knowledge:
    """State of the pages of one key."""

    def __init__(self) -> None:
        self.sampling = 0
        """Pages in the browser from which something will be learnt."""
        self.compared = 0
        self.unchanged = 0
        """Compared pages in a row that had gained nothing."""
        self.renders = False
        self.plain = 0
        """Pages that were fetched plainly since the last check."""
        self.interval = _FIRST_CHECK
        self.is_compared_with_others = False
        """True: it was looked up what others have learnt."""
        self.told: RenderVerdict | None = None
        """Verdict that others know."""

    @property
    def is_check_due(self) -> bool:
        return not self.renders and self.compared >= _SAMPLES and self.plain >= self.interval and not self.sampling


class RenderLearner:
    """Knowledge of one worker process. It is bounded; the patterns used least recently are forgotten first."""

    def __init__(self, max_bytes: int = _BYTES) -> None:
        self._known: BoundedCache[RenderKey, _Knowledge] = BoundedCache(max_bytes)

    def choose(self, key: RenderKey) -> RenderChoice | None:
        """Decide on a page. None: ask again when `learn` or `give_up` was called for another page of the key, whose
        result decides. After a choice to render, call one of them for this page, too."""
        known = self._of(key)
        if known.renders:
            known.sampling += 1
            return RenderChoice(True, "change")
        if known.compared < _SAMPLES:
            if known.compared + known.sampling >= _SAMPLES:
                return None
            known.sampling += 1
            return RenderChoice(True, "sample")
        known.plain += 1
        if known.plain <= known.interval or known.sampling:
            return RenderChoice(False, "no_change")
        known.plain, known.interval = 0, min(2 * known.interval, _LAST_CHECK)
        known.sampling += 1
        return RenderChoice(True, "check")

    def asks_others(self, key: RenderKey) -> bool:
        """Return whether it matters for the next page what others have learnt: nothing was looked up, or one is to be
        rendered again. Then look it up, and call `adopt`."""
        known = self._known.get(key)
        return known is None or not known.is_compared_with_others or known.is_check_due

    def adopt(self, key: RenderKey, verdict: RenderVerdict | None) -> None:
        """Take over what others have learnt. None: nothing, or it is not known."""
        known = self._of(key)
        known.is_compared_with_others = True
        if verdict is None or verdict == known.told:
            return
        known.told = verdict
        interval = min(max(verdict.interval, _FIRST_CHECK), _LAST_CHECK)  # a wrong one would end all checks
        if known.compared < _SAMPLES or verdict.renders is not known.renders:
            known.renders, known.unchanged, known.plain = verdict.renders, 0, 0
            known.interval = interval
            known.compared = max(known.compared, _SAMPLES)
        elif interval > known.interval:  # another process has rendered one again
            known.interval, known.plain = interval, 0

    def is_known(self, key: RenderKey) -> bool:
        """Return whether there is a verdict on a key."""
        known = self._known.get(key)
        return known is not None and (known.renders or known.compared >= _SAMPLES)

    def forget(self, key: RenderKey) -> None:
        """Look up again what others have learnt when the next page comes."""
        self._of(key).is_compared_with_others = False

    def begin(self, key: RenderKey) -> None:
        """Note that a page is rendered in any case, and will be compared. Then `learn` or `give_up` must be called."""
        self._of(key).sampling += 1

    def learn(self, key: RenderKey, *, changed: bool) -> RenderVerdict | None:
        """Note whether rendering has changed a page. Returns the verdict if others do not know it."""
        known = self._of(key)
        known.sampling = max(0, known.sampling - 1)
        known.compared += 1
        if changed:
            known.unchanged, known.renders = 0, True
        else:
            known.unchanged += 1
            if known.renders and known.unchanged >= _DOUBTS:
                known.renders, known.plain, known.interval = False, 0, _FIRST_CHECK
        verdict = RenderVerdict(known.renders, known.interval)
        if verdict == known.told or not (known.renders or known.compared >= _SAMPLES):
            return None
        known.told = verdict
        return verdict

    def give_up(self, key: RenderKey) -> None:
        """Note that nothing will be learnt from a page that was to be rendered."""
        known = self._of(key)
        known.sampling = max(0, known.sampling - 1)

    def _of(self, key: RenderKey) -> _Knowledge:
        known = self._known.get(key)
        if known is None:
            known = _Knowledge()
            self._known.put(key, known, _PATTERN_BYTES + 2 * len(key.pattern))
        return known

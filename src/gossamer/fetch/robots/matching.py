"""Which of an agent's rules decides on a path: the longest that matches (RFC 9309, section 2.2.2)."""

from collections.abc import Iterable, Sequence

from gossamer.fetch.robots.lines import Rule
from gossamer.fetch.robots.patterns import normal_pattern


class Matcher:
    """The rules for one agent, made ready to be asked often.

    Rules without wildcards are looked up by their length, however many they are; those with a wildcard are gone
    through, the longest first. Nothing backtracks: the time is in proportion to the rules with wildcards, whatever
    they say.
    """

    def __init__(self, rules: Iterable[Rule], crawl_delay: float | None) -> None:
        """`crawl_delay`: seconds, or None; only kept here."""
        self.crawl_delay = crawl_delay
        plain: dict[str, Rule] = {}
        special: dict[str, Rule] = {}
        for rule in rules:
            pattern = normal_pattern(rule.pattern)
            patterns = special if "*" in pattern or pattern.endswith("$") else plain
            if rule.allow or pattern not in patterns:  # of Allow and Disallow with one pattern, Allow decides
                patterns[pattern] = rule
        self._plain = plain
        self._lengths = sorted({len(pattern) for pattern in plain}, reverse=True)
        self._special = [(_weight(pattern, rule), _Wildcard(pattern), rule) for pattern, rule in special.items()]
        self._special.sort(key=lambda entry: entry[0], reverse=True)

    def __len__(self) -> int:
        """How many rules are kept."""
        return len(self._plain) + len(self._special)

    def deciding(self, targets: Sequence[str]) -> Rule | None:
        """The rule that decides on a path that has these normal spellings; None where none matches."""
        best, best_weight = None, (0, False)
        for target in targets:
            pattern = self._longest_prefix(target)
            if pattern is not None and len(pattern) > best_weight[0]:
                best = self._plain[pattern]
                best_weight = _weight(pattern, best)
        for weight, wildcard, rule in self._special:
            if weight <= best_weight:
                break
            if any(map(wildcard.matches, targets)):
                return rule
        return best

    def _longest_prefix(self, target: str) -> str | None:
        for length in self._lengths:
            if length <= len(target) and target[:length] in self._plain:
                return target[:length]
        return None


class _Wildcard:
    """A pattern with `*` in it or `$` at its end."""

    __slots__ = ("_anchored", "_first", "_last", "_middle")

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$")
        self._first, *rest = pattern.removesuffix("$").split("*")
        self._last = rest[-1] if rest else None
        self._middle = tuple(filter(None, rest[:-1]))

    def matches(self, target: str) -> bool:
        if not target.startswith(self._first):
            return False
        at = len(self._first)
        if self._last is None:
            return at == len(target)
        for part in self._middle:
            found = target.find(part, at)
            if found == -1:
                return False
            at = found + len(part)
        if self._anchored:
            return len(target) - len(self._last) >= at and target.endswith(self._last)
        return target.find(self._last, at) != -1


def _weight(pattern: str, rule: Rule) -> tuple[int, bool]:
    return len(pattern), rule.allow

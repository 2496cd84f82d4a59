"""The deciding rule, compared with trying every rule by a regular expression; the one spelling of paths."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.fetch.robots_rules import Matcher, Rule, normal_pattern, normal_targets

_PIECES = [*"ab/*$?=~", "%2F", "%2f", "%2A", "%24", "%61", "%7E", "%", "%C3%A9", "%25", "%3F"]
_TEXT = st.lists(st.sampled_from(_PIECES), max_size=6).map("".join)
_PATTERNS = st.just("*") | st.tuples(st.sampled_from("/*"), _TEXT).map("".join)
_RULES = st.lists(st.builds(Rule, st.booleans(), _PATTERNS), max_size=6)


def _matches(pattern: str, targets: tuple[str, ...]) -> bool:
    anchored = pattern.endswith("$")
    parts = map(re.escape, pattern.removesuffix("$").split("*"))
    expression = re.compile(".*".join(parts) + (r"\Z" if anchored else ""), re.DOTALL)
    return any(expression.match(target) for target in targets)


@given(_RULES, _TEXT.map("/".__add__))
@settings(max_examples=200, deadline=None)
def test_the_longest_rule_that_matches_decides_and_allow_of_two(rules: list[Rule], path: str) -> None:
    targets = normal_targets(path)
    weights = [
        (len(pattern), rule.allow) for rule in rules if _matches(pattern := normal_pattern(rule.pattern), targets)
    ]
    found = Matcher(rules, None).match(targets)
    assert (found is None) is (not weights)
    if found is not None:
        assert (len(normal_pattern(found.pattern)), found.allow) == max(weights)


@given(_TEXT.map("/".__add__))
def test_a_normal_spelling_stays_as_it_is(text: str) -> None:
    """Normal again; and a pattern without wildcards matches the path it is written like."""
    for target in normal_targets(text):
        assert target in normal_targets(target)
        assert target.isascii()
    pattern = normal_pattern(text)
    assert normal_pattern(pattern) == pattern
    if "*" not in text and "$" not in text:
        assert Matcher([Rule(False, text)], None).match(normal_targets(text)) is not None


@given(st.text(max_size=30).map("/".__add__))
def test_any_text_has_a_spelling(text: str) -> None:
    assert all(target.isascii() and " " not in target for target in normal_targets(text))

"""Notice of pages that may have no end."""

from gossamer.telemetry import patterns
from gossamer.telemetry.patterns import Growth, PatternCounts, growth_sentence, leading_patterns
from gossamer.telemetry.tally import Tally


def test_a_chain_of_pages_is_named_when_it_is_long_and_far_from_the_start() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(f"http://a.test/cal?month={number}", depth=number)
    ((pattern, count),) = counts.shown().items()
    assert (pattern, count.growth, count.depth) == ("http://a.test/cal?month=*", Growth.DEEP, 299)
    assert count.pages == 300 - patterns._DEEP
    assert "--pattern-max-pages" in growth_sentence(pattern, count)


def test_a_large_site_is_not_named() -> None:
    """Pages near the start, however many are alike."""
    counts = PatternCounts()
    for number in range(20_000):
        counts.count(f"http://a.test/product/{number}", depth=4)
        counts.count(f"http://a.test/list?page={number}&sort=price", depth=20)
        counts.count(f"http://a.test/docs/en/{number}/guide/part/{number}/index.html", depth=6)
    assert counts.shown() == {}


def test_paths_that_repeat_themselves_sessions_and_combinations_are_named_near_the_start() -> None:
    counts = PatternCounts()
    for number in range(1200):
        counts.count("http://a.test/" + "news/shop/" * (3 + number % 2), depth=3)
        counts.count(f"http://a.test/p?sid={number:032x}a", depth=2)
        counts.count(f"http://a.test/l?a=1&b=2&c=3&x{number}=4", depth=2)
    named = {count.growth: growth_sentence(pattern, count) for pattern, count in counts.shown().items()}
    assert "--path-repeats" in named[Growth.REPEATS]
    assert "--drop-parameter sid" in named[Growth.SESSIONS]
    assert "--deny" in named[Growth.PARAMETERS]


def test_two_processes_count_together_and_a_site_is_named_once_for_each_kind() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(f"http://a.test/cal/{number}", depth=40)
        counts.count(f"http://a.test/day/{number}", depth=40)
        counts.count(f"http://a.test/day/{number}", depth=41)
    both = Tally(growing=counts.shown()).plus(Tally(growing=counts.shown())).plus(Tally()).growing
    assert {pattern: count.pages for pattern, count in both.items()} == {
        "http://a.test/cal/N": 600,
        "http://a.test/day/N": 1200,
    }
    assert list(leading_patterns(both)) == ["http://a.test/day/N"]


def test_what_is_counted_is_bounded_and_the_largest_stay() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(f"http://a.test/cal/{number}", depth=40)
    for number in range(3 * patterns._PATTERNS_COUNTED):
        counts.count(
            f"http://a.test/{'x' * (number % 4)}{'abcdefghij'[number % 10]}/{chr(97 + number % 26)}{number}y", 40
        )
        counts.count("http://a.test/" + "/".join("abcdefghijklmnop"[int(digit)] for digit in str(number)), depth=40)
    assert len(counts._counts) <= patterns._PATTERNS_COUNTED
    assert "http://a.test/cal/N" in counts.shown()

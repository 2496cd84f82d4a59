"""Notice of pages that may have no end."""

from gossamer.model.crawl import SHARED_POOL, Crawl, CrawlId, Run
from gossamer.model.growth import Growth
from gossamer.telemetry import patterns
from gossamer.telemetry.patterns import PatternCounts, growth_sentence, leading_patterns
from gossamer.telemetry.tally import Tally

RUN = Run(Crawl(id=CrawlId("app", "c")), number=1, generation=0)


def test_a_chain_of_pages_is_named_when_it_is_long_and_far_from_the_start() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(RUN, f"http://a.test/cal?month={number}", depth=number)
    ((pattern, count),) = counts.shown().items()
    assert (pattern, count.growth, count.depth) == ("http://a.test/cal?month=*", Growth.DEEP, 299)
    assert count.pages == 300 - patterns._DEEP
    assert "--pattern-max-pages" in growth_sentence(pattern, count)


def test_a_large_site_is_not_named() -> None:
    """Pages near the start, however many are alike."""
    counts = PatternCounts()
    for number in range(20_000):
        counts.count(RUN, f"http://a.test/product/{number}", depth=4)
        counts.count(RUN, f"http://a.test/list?page={number}&sort=price", depth=20)
        counts.count(RUN, f"http://a.test/docs/en/{number}/guide/part/{number}/index.html", depth=6)
    assert counts.shown() == {}


def test_paths_that_repeat_themselves_sessions_and_combinations_are_named_near_the_start() -> None:
    counts = PatternCounts()
    for number in range(1200):
        counts.count(RUN, "http://a.test/" + "news/shop/" * (3 + number % 2), depth=3)
        counts.count(RUN, f"http://a.test/p?sid={number:032x}a", depth=2)
        counts.count(RUN, f"http://a.test/l?a=1&b=2&c=3&x{number}=4", depth=2)
    named = {count.growth: growth_sentence(pattern, count) for pattern, count in counts.shown().items()}
    assert "--path-repeats" in named[Growth.REPEATS]
    assert "--drop-parameter sid" in named[Growth.SESSIONS]
    assert "--deny" in named[Growth.PARAMETERS]


def test_two_processes_count_together_and_a_site_is_named_once_for_each_kind() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(RUN, f"http://a.test/cal/{number}", depth=40)
        counts.count(RUN, f"http://a.test/day/{number}", depth=40)
        counts.count(RUN, f"http://a.test/day/{number}", depth=41)
    both = Tally(growing=counts.shown()).plus(Tally(growing=counts.shown())).plus(Tally()).growing
    assert {pattern: count.pages for pattern, count in both.items()} == {
        "http://a.test/cal/N": 600,
        "http://a.test/day/N": 1200,
    }
    assert list(leading_patterns(both)) == ["http://a.test/day/N"]


def test_what_is_counted_is_bounded_and_the_largest_stay() -> None:
    counts = PatternCounts()
    for number in range(300):
        counts.count(RUN, f"http://a.test/cal/{number}", depth=40)
    for number in range(3 * patterns._PATTERNS_COUNTED):
        counts.count(
            RUN, f"http://a.test/{'x' * (number % 4)}{'abcdefghij'[number % 10]}/{chr(97 + number % 26)}{number}y", 40
        )
        counts.count(
            RUN, "http://a.test/" + "/".join("abcdefghijklmnop"[int(digit)] for digit in str(number)), depth=40
        )
    assert len(counts._counts) <= patterns._PATTERNS_COUNTED
    assert "http://a.test/cal/N" in counts.shown()


def test_crawls_of_a_service_are_counted_apart_and_each_run_anew() -> None:
    counts = PatternCounts()
    other = Run(Crawl(id=CrawlId("app", "other")), number=1, generation=0)
    again = Run(RUN.crawl, number=2, generation=0)
    for number in range(300):
        counts.count(RUN, f"http://a.test/cal/{number}", depth=40)
        counts.count(other, f"http://a.test/cal/{number % 2}", depth=40)
    assert [(found.run, found.count.pages) for found in counts.unreported()] == [(RUN, 300), (other, 300)]
    for found in counts.unreported():
        found.reported = found.count.pages
    assert counts.unreported() == []
    for number in range(250):
        counts.count(again, f"http://a.test/cal/{number}", depth=40)
    assert [(found.run, found.count.pages) for found in counts.unreported()] == [(again, 250)]


def test_users_of_a_service_are_told_the_fields_of_requests() -> None:
    counts = PatternCounts()
    for number in range(1200):
        counts.count(RUN, f"http://a.test/cal/{number}", depth=40)
        counts.count(RUN, "http://a.test/" + "news/shop/" * (3 + number % 2), depth=3)
        counts.count(RUN, f"http://a.test/p?sid={number:032x}a", depth=2)
    said = {count.growth: growth_sentence(name, count, pool=SHARED_POOL) for name, count in counts.shown().items()}
    assert '"pattern_max_pages": N' in said[Growth.DEEP]
    assert "deny_regex" in said[Growth.DEEP]
    assert '"path_repeats": 1' in said[Growth.REPEATS]
    assert '"drop_parameters": ["sid"]' in said[Growth.SESSIONS]
    assert "--" not in "".join(said.values())

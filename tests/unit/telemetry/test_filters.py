"""Counts of what the expressions of a crawl refuse."""

from gossamer.policy.scope import compile_scope
from gossamer.telemetry import filters
from gossamer.telemetry.filters import FilterCount, FilterCounts, filter_sentences
from gossamer.telemetry.tally import Tally


def counts_of(urls: list[str], *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> dict[str, FilterCount]:
    counts = FilterCounts()
    counts.begin(allow, deny)
    scope = compile_scope(allow_regex=allow, deny_regex=deny, regex_from_host=True)
    scope.on_expression = counts.count
    for url in urls:
        scope.reason(url)
    return counts.shown()


URLS = [f"http://a.test/{path}" for path in ("shop/1", "shop/2", "shop/1", "blog/1", "x", "shop/blog")]


def test_each_expression_counts_different_urls_and_names_one() -> None:
    found = counts_of(URLS, deny=("/shop", "/blog", "/never"))
    assert {name: (count.urls, count.example) for name, count in found.items()} == {
        "deny /shop": (3, URLS[0]),
        "deny /blog": (1, URLS[3]),
        "deny /never": (0, ""),
    }
    assert filter_sentences(found, are_all=True) == [
        f"--deny /shop: 3 different URLs, for example {URLS[0]}",
        f"--deny /blog: 1 different URL, for example {URLS[3]}",
        "--deny /never matched no link",
    ]
    assert len(filter_sentences(found, are_all=False)) == 2


def test_urls_that_no_expression_allows_and_those_that_allow_nothing() -> None:
    found = counts_of(URLS, allow=("^/blog", "^/never"), deny=("/x",))
    assert filter_sentences(found, are_all=True) == [
        f"matched by no --allow: 3 different URLs, for example {URLS[0]}",
        f"--deny /x: 1 different URL, for example {URLS[4]}",
        "--allow ^/never matched no link",
    ]


def test_two_processes_together_have_refused_at_least_what_one_has() -> None:
    first = counts_of(URLS[:3], allow=("^/shop", "^/blog"), deny=("2", "9"))
    second = counts_of(URLS[3:], allow=("^/shop", "^/blog"), deny=("2", "9"))
    both = Tally(filters=first).plus(Tally(filters=second)).plus(Tally()).filters
    assert filter_sentences(both, are_all=True) == [
        f"matched by no --allow: 1 different URL, for example {URLS[4]}",
        f"--deny 2: 1 different URL, for example {URLS[1]}",
        "--deny 9 matched no link",
    ]
    assert Tally().plus(Tally(filters=first)).filters == first
    twice = Tally(filters=first).plus(Tally(filters=first)).filters
    assert "--deny 2: at least 1 different URL" in filter_sentences(twice, are_all=True)[0]


def test_what_is_remembered_is_bounded() -> None:
    counts = FilterCounts()
    for number in range(filters._URLS_KNOWN + 10):
        counts.count("deny", "x", f"http://a.test/{number}")
    (count,) = counts.shown().values()
    assert (count.urls, count.is_exact) == (filters._URLS_KNOWN, False)


def test_many_expressions_are_not_all_named() -> None:
    found = counts_of([f"http://a.test/{n}x" for n in range(9)], deny=tuple(f"/{n}x" for n in range(9)))
    assert filter_sentences(found, are_all=True)[-1] == "and 4 expressions more"

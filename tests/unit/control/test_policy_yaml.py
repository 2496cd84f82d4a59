"""Policies as YAML: the original's text is taken, ours goes both ways, faults are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.control.domains import MAX_YAML_BYTES, dump_policies, load_policies, merge_policies, parse_domain
from gossamer.errors import BadInput
from gossamer.model.crawl import BudgetScope, DomainPolicy

policies = st.builds(
    DomainPolicy,
    hits=st.none() | st.integers(1, 1_000_000),
    window_seconds=st.none() | st.floats(0.001, 604800),
    moderated=st.none() | st.booleans(),
    elastic=st.none() | st.booleans(),
    scale=st.none() | st.floats(0, 1),
    scope=st.none() | st.sampled_from(BudgetScope),
    concurrency=st.none() | st.integers(1, 10_000),
)


def test_scrapy_clusters_text_is_understood() -> None:
    text = """
        blacklist: [domain3.com]
        domains:
          domain1.com: {window: 60, hits: 60}
          domain2.org: {window: 60, hits: 30, scale: 0.5}
    """
    assert load_policies(text) == (
        DomainPolicy(),
        {
            "domain1.com": DomainPolicy(hits=60, window_seconds=60.0),
            "domain2.org": DomainPolicy(hits=30, window_seconds=60.0, scale=0.5),
            "domain3.com": DomainPolicy(blacklisted=True),
        },
    )


@given(
    default=policies,
    domains=st.dictionaries(st.from_regex(r"[a-z]{1,9}\.(com|org|test)", fullmatch=True), policies, max_size=5),
    black=st.sets(st.sampled_from(["one.com", "two.com"])),
)
def test_what_is_dumped_loads_as_it_was(
    default: DomainPolicy, domains: dict[str, DomainPolicy], black: set[str]
) -> None:
    domains = domains | {
        name: merge_policies(domains.get(name, DomainPolicy()), DomainPolicy(blacklisted=True)) for name in black
    }
    assert load_policies(dump_policies(default, domains)) == (default, domains)


def test_a_domain_exempt_from_a_blacklisting_default_stays_exempt() -> None:
    default, exempt = DomainPolicy(blacklisted=True), {"one.com": DomainPolicy(blacklisted=False)}
    assert load_policies(dump_policies(default, exempt), whole=True) == (default, exempt)


def test_the_size_limit_counts_bytes_of_a_text_too() -> None:
    with pytest.raises(BadInput, match="longer than 16 MiB"):
        load_policies("# " + "ü" * (MAX_YAML_BYTES // 2))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("domains: {a.com: {hits: 1}, a.com: {hits: 2}}", "the key a.com stands twice"),
        ("domains: {a.com: {hits: 0}}", "hits: must be a whole number"),
        ("domains: {a.com: {hits: true}}", "hits: must be a whole number"),
        ("domains: {a.com: {hits: '5'}}", "hits: must be a whole number"),
        ("domains: {a.com: {scale: 1.5}}", "scale: must be a number from 0 to 1"),
        ("domains: {a.com: {scale: .nan}}", "scale: must be a number from 0 to 1"),
        ("domains: {a.com: {colour: red}}", "colour: unknown"),
        ("domains: {www.a.com: {hits: 1}}", "www.a.com is a part of a.com"),
        ("domains: {'a b': {hits: 1}}", "is not a domain"),
        ("domains: [a.com]", "domains: must be a mapping"),
        ("blacklist: a.com", "blacklist: must be a list"),
        ("colours: {}", "colours: unknown"),
        ("- a", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("[" * 5000, "nested too deep"),
    ],
)
def test_a_fault_is_named(text: str, word: str) -> None:
    with pytest.raises(BadInput, match=word.replace("(", r"\(")):
        load_policies(text)


def test_no_text_is_no_policy() -> None:
    assert load_policies("") == (DomainPolicy(), {})
    assert load_policies(dump_policies(DomainPolicy(), {}), whole=True) == (DomainPolicy(), {})


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "# all gone\n", "---\n", "{}", "domains:", "blacklist:\n", "domains: {}\nblacklist:",
        "domains:\n  one.example: {hits: 1}\n  two.example:\n", "default:\n  hits:",
        "domains:\n  one.example:\n    hits:",
    ],
)  # fmt: skip
def test_a_text_that_may_have_been_cut_off_is_not_whole(text: str) -> None:
    load_policies(text)
    with pytest.raises(BadInput, match=r"empty|has no value"):
        load_policies(text, whole=True)


def test_an_intended_reset_is_whole() -> None:
    assert load_policies("domains: {}", whole=True) == (DomainPolicy(), {})


def test_a_domain_has_one_spelling() -> None:
    assert parse_domain("Example.COM.") == "example.com"
    assert parse_domain("bücher.example") == "xn--bcher-kva.example"
    assert parse_domain("127.0.0.1") == "127.0.0.1"

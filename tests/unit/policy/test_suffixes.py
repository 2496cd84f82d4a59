"""Public suffixes, against the package that the list is from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tldextract import TLDExtract

from gossamer.policy import urls as suffixes
from gossamer.policy.urls import suffix_label_count

THEIRS = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=False)


def theirs(name: str) -> int:
    suffix = THEIRS(name).suffix
    return suffix.count(".") + 1 if suffix else 1


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("a.com", 1),
        ("a.b.co.uk", 2),
        ("co.uk", 2),
        ("uk", 1),
        ("a.b.ck", 2),
        ("www.ck", 1),
        ("a.www.ck", 1),
        ("b.ck", 2),
        ("ck", 1),
        ("a.city.kawasaki.jp", 2),
        ("a.b.kawasaki.jp", 3),
        ("x.github.io", 1),
        ("a.xn--55qx5d.cn", 2),
        ("a.nowhere", 1),
    ],
)
def test_suffixes(name: str, count: int) -> None:
    assert suffix_label_count(name.split(".")) == count


def test_every_rule_means_what_the_package_makes_of_it() -> None:
    for rule in suffixes._rules():
        name = rule.lstrip("!").replace("*", "any")
        for host in (name, f"a.{name}", f"b.a.{name}"):
            assert suffix_label_count(host.split(".")) == theirs(host), host


_LABELS = st.sampled_from(["a", "com", "uk", "co", "ck", "www", "jp", "kawasaki", "city", "xn--55qx5d", "cn", "io"])


@given(st.lists(_LABELS, min_size=1, max_size=5))
def test_any_name_has_the_suffix_that_the_package_says(labels: list[str]) -> None:
    assert suffix_label_count(labels) == theirs(".".join(labels))


def test_without_the_file_the_package_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = suffixes._rules()
    monkeypatch.setattr(suffixes, "_LIST", "gone")
    suffixes._rules.cache_clear()
    try:
        assert suffixes._rules() == expected
    finally:
        suffixes._rules.cache_clear()

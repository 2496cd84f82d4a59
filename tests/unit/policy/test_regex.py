"""Filters' expressions: bounded in time, and the same as Python's."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.policy.scope import RegexSet, check_regex

ATOMS = ["a", "b", ".", "/", r"\d", r"\w", r"\.", "[a-c]", "[^/]", "(a|b)", "(?:a|)", "[[:alpha:]]", "^", "$", r"\b"]
ATOMS += ["(?i:A)", r"\A", r"\B", "(?P<n>b)?", "[]/]", "[:/]", r"\/"]
OFTEN = ["", "*", "+?", "{1,3}", "{2}", "{,2}", "??"]
expressions = st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(OFTEN)), max_size=6)
flags = st.sampled_from(["", "(?i)", "(?s)", "(?m)"])
UNREPEATED = ("^", "$", r"\b", r"\A", r"\B", "(?P<n>b)?")
# A URL is never empty; of an empty text Python says since 3.14 only that `\B` is in it.
urls = st.text("ab1/.A?=", min_size=1, max_size=12)


def joined(parts: list[tuple[str, str]]) -> str:
    return "".join(atom + ("" if atom in UNREPEATED else often) for atom, often in parts)


@pytest.mark.filterwarnings("ignore:Possible nested set")
@given(flags, expressions, urls)
def test_it_finds_what_python_finds(flag: str, parts: list[tuple[str, str]], url: str) -> None:
    text = flag + joined(parts)
    try:
        expected = bool(re.search(text, url))
    except re.error:  # a group's name twice
        return
    assert RegexSet((text,), "allow").matches(url) == expected


@pytest.mark.filterwarnings("ignore:Possible nested set")
@given(st.lists(expressions, max_size=4), urls)
def test_several_find_what_one_of_them_finds(several: list[list[tuple[str, str]]], url: str) -> None:
    texts = [joined(parts) for parts in several]
    try:
        found = [text for text in texts if re.search(text, url)]
    except re.error:
        return
    together = RegexSet(texts, "deny")
    assert together.matches(url) == bool(found)
    assert together.first_match(url) == (found[0] if found else "")


def test_what_is_too_large_together_is_found_all_the_same() -> None:
    large = [f"(?:[ab]{{100}}){{5}}{number}" for number in range(100)]
    together = RegexSet([*large, "needle", r"(?<=hay)stack"], "allow")
    assert together._set is None
    for url, found in (
        ("http://a.test/needle", True),
        ("http://a.test/haystack", True),
        ("http://a.test/stack", False),
    ):
        assert together.matches(url) == found


@pytest.mark.parametrize(
    ("text", "url", "found"),
    [
        (r"^http://a\.test/x{,2}y$", "http://a.test/xxy", True),
        (r"/[[:alpha:]]+$", "http://a.test/abc", False),
        (r"/(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10$", "http://a.test/abcdefghijj", True),
        (r"(?i)/PRODUCT/\d+$", "http://a.test/product/12", True),
        (r"a\Z", "http://a.test/a", True),
        (r"/a++b", "http://a.test/aab", True),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_what_the_two_read_differently_means_what_it_means_in_python(text: str, url: str, found: bool) -> None:
    assert bool(re.search(text, url)) == found
    assert RegexSet((text,), "allow").matches(url) == found


@pytest.mark.parametrize("text", ["x{,2}", "[[:alpha:]]", r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10"])
def test_what_is_read_differently_is_refused_where_it_must_be_linear(text: str) -> None:
    with pytest.raises(BadInput, match="different things"):
        check_regex(text, "allow", linear=True)


@pytest.mark.parametrize("text", [r"^https?[:/]+", r"\{,2\}", r"(?i)\.html?$", "x{0,2}", r"/\d{4}/"])
def test_ordinary_expressions_are_taken(text: str) -> None:
    check_regex(text, "allow", linear=True)


def test_an_exploding_expression_is_bounded() -> None:
    began = time.process_time()
    assert not RegexSet((r"^https?://(a+)+$",), "allow").matches("http://" + "a" * 5000 + "!")
    assert time.process_time() - began < 5  # Python's own would take longer than the universe


@pytest.mark.parametrize("text", [r"(?=x)y", r"(?<!x)y", r"(a)\1"])
def test_what_has_no_bound_is_refused_where_it_must_be_linear(text: str) -> None:
    check_regex(text, "allow", linear=False)
    with pytest.raises(BadInput, match="linear time"):
        check_regex(text, "allow", linear=True)


@pytest.mark.parametrize("text", ["(", "x" * 1001, "a{99999999999999999999}", "*"])
@pytest.mark.parametrize("linear", [True, False])
def test_what_is_none_is_refused_anyway(text: str, linear: bool) -> None:
    with pytest.raises(BadInput):
        check_regex(text, "allow", linear=linear)

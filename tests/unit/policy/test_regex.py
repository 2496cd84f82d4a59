"""Filters' expressions: bounded in time, and the same as Python's."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.policy.regex import check_regex, searcher

ATOMS = ["a", "b", ".", "/", r"\d", r"\w", r"\.", "[a-c]", "[^/]", "(a|b)", "^", "$", r"\b", "(?i:A)"]
expressions = st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "*", "+?", "{1,3}"])), max_size=6)
urls = st.text("ab1/.A?=", max_size=12)


@given(expressions, urls)
def test_it_finds_what_python_finds(parts: list[tuple[str, str]], url: str) -> None:
    text = "".join(atom + ("" if atom in ("^", "$", r"\b") else often) for atom, often in parts)
    assert bool(searcher(text, "allow")(url)) == bool(re.search(text, url))


def test_an_exploding_expression_is_bounded() -> None:
    began = time.process_time()
    assert not searcher(r"^https?://(a+)+$", "allow")("http://" + "a" * 5000 + "!")
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

"""Selectors and steps of rendered pages are checked where they enter, without a browser."""

import pytest

from gossamer.errors import BadInput
from gossamer.extract.render_steps import check_browser_selector, read_steps


@pytest.mark.parametrize(
    "selector",
    [
        "..x", "", ".", "a::text", "a::attr(href)", 'p:lexbor-contains("x")', "p:contains(x)", "#1a", "svg|a", "[x|y]",
        "td || td", "p:blank", "p:current(a)",
        "[a=b s]", "a b(", "a,", "x" * 1001,
    ],
)  # fmt: skip
def test_a_selector_that_no_browser_reads_is_refused(selector: str) -> None:
    with pytest.raises(BadInput):
        check_browser_selector(selector)


@pytest.mark.parametrize("selector", ['a[href="#1"]', "[lang|=de]", "[a=s]", r"#\31 a", "ul > li:not(.old) a"])
def test_others_are_accepted(selector: str) -> None:
    check_browser_selector(selector)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (["jump"], "there is no step 'jump'"),
        (["click ..x"], "cannot parse"),
        (["wait 61"], "at most 60"),
        (["wait .x 0"], "more than 0"),
        (["wait 6", "scroll", "wait 4"], "the steps wait 10 s, but a page has only 10 s. Increase render_seconds."),
        (["wait .x 10"], "a page has only 10 s"),
        (["scroll"] * 21, "at most 20"),
        (["consent"], "consent needs the selector"),
    ],
)
def test_a_step_that_cannot_be_taken_is_refused(steps: list[str], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_steps(steps, page_seconds=10, limit="render_seconds")
    assert said in str(refused.value)

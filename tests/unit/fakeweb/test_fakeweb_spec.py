"""The options: what cannot be built is refused, and the command line says the same as the value."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput
from gossamer.fakeweb.spec import SPEC_FIELDS, Robots, Sitemap, WebSpec, add_spec_arguments, spec_arguments, spec_from


def parse(arguments: list[str]) -> WebSpec:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_spec_arguments(parser)
    return spec_from(parser.parse_args(arguments))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": 0},
        {"pages": 0},
        {"out_degree": 0},
        {"subdomains": 0},
        {"redirect_chain": 0},
        {"latency_ms": -1.0},
        {"refuse": 1.5},
        {"stall": -0.1},
        {"refuse": 0.6, "reset": 0.6},
        {"hosts": 1, "cross_host_share": 0.1},
        {"hosts": 1, "redirect_cross": 0.1},
        {"page_bytes": 10**9},
        {"robots": ()},
        {"pages": 60_000, "sitemap": Sitemap.PLAIN},
    ],
)
def test_a_web_that_cannot_be_built_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        WebSpec(**wrong)  # type: ignore[arg-type]


def test_every_option_is_explained() -> None:
    assert all(option.metadata["help"] for option in SPEC_FIELDS)


def test_no_options_are_the_default_web() -> None:
    assert parse([]) == WebSpec()
    assert spec_arguments(WebSpec()) == []


@given(
    st.builds(
        WebSpec,
        seed=st.integers(0, 2**64),
        hosts=st.integers(2, 9),
        latency_ms=st.floats(0, 100),
        not_found=st.floats(0, 0.5),
        redirect_cross=st.floats(0, 0.5),
        errors_once=st.booleans(),
        keep_alive=st.booleans(),
        robots=st.lists(st.sampled_from(Robots), min_size=1, max_size=3).map(tuple),
        robots_disallow=st.lists(st.sampled_from(["/", "/p/1", "/x/"]), max_size=2).map(tuple),
        sitemap=st.sampled_from(Sitemap),
    )
)
def test_options_describe_a_web_completely(spec: WebSpec) -> None:
    assert parse(spec_arguments(spec)) == spec


@pytest.mark.parametrize("wrong", ["--robots=maybe", "--sitemap=paper"])
def test_an_unknown_kind_names_the_known_ones(wrong: str) -> None:
    with pytest.raises(BadInput, match=r"crawl_delay.*index"):
        parse([wrong])

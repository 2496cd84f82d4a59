"""The Python API as a whole: its names, its options, and what importing it costs."""

import importlib.util
import subprocess
import sys

import pytest

import gossamer
from gossamer.cli.app import find
from gossamer.crawling.options import in_python_words
from gossamer.crawling.typed_options import CrawlOptions, RequestOptions

ONLY_FOR_A_TERMINAL = {"json", "quiet", "verbose", "items", "pages"}
ONLY_FOR_PROGRAMS = {"failures"}
OF_LINKS = {"scope", "allow_domain", "allow", "deny", "deny_extension", "follow_nofollow"}
"""Options of `gossamer fetch` that only say which links a crawl would follow."""


def _names(command: str) -> set[str]:
    return {one.name for one in find(command).parameters}


def test_the_command_and_the_function_have_the_same_options() -> None:
    command = _names("crawl") - {"urls"} - ONLY_FOR_A_TERMINAL
    assert set(CrawlOptions.__annotations__) - ONLY_FOR_PROGRAMS == command


def test_get_has_the_options_of_the_command_fetch() -> None:
    command = _names("fetch") - {"url"} - ONLY_FOR_A_TERMINAL - OF_LINKS
    assert set(RequestOptions.__annotations__) == command


@pytest.mark.parametrize("name", gossamer.__all__)
def test_no_public_name_is_that_of_a_package(name: str) -> None:
    assert hasattr(gossamer, name)
    assert importlib.util.find_spec(f"gossamer.{name}") is None


def test_importing_gossamer_costs_next_to_nothing() -> None:
    program = (
        "import sys, gossamer; print('asyncio' in sys.modules, 'pydantic' in sys.modules, 'crawl' in dir(gossamer))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False False True\n"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("--rate: cannot read '5x'.", "rate: cannot read '5x'."),
        ("To crawl it, add --allow-private, which", "To crawl it, add allow_private=True, which"),
        ("or --resolve a.test:ADDRESS, which", 'or resolve={"a.test": "ADDRESS"}, which'),
        (
            "Resume it without --fresh, or name another --crawl-id.",
            "Resume it without fresh=True, or name another crawl_id.",
        ),
        ("use one: --frontier redis://host:6379", 'use one: frontier="redis://host:6379"'),
        ("no output is named; try -o pages.jsonl", 'no output is named; try output="pages.jsonl"'),
        ("a -- b --- c", "a -- b --- c"),
    ],
)
def test_messages_name_options_as_a_program_writes_them(message: str, words: str) -> None:
    assert in_python_words(message) == words

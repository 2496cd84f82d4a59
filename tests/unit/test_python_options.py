"""The Python API as a whole: its names, its options, and what importing it costs."""

import importlib.util
import re
import subprocess
import sys
from typing import Any

import pytest

import gossamer
from gossamer.cli.app import find
from gossamer.crawling.options import worded_for
from gossamer.crawling.python import GetOptions
from gossamer.crawling.typed_options import CrawlOptions
from gossamer.errors import BadInput
from gossamer.option_names import OptionNames, ProgramNames
from gossamer.policy.words import _EXPLANATIONS, explain, fetch_error

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
    assert set(GetOptions.__annotations__) == command


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
    ("option", "at_a_command_line", "in_a_program"),
    [
        (("allow_private", True), "--allow-private", "allow_private=True"),
        (("crawl_id",), "--crawl-id", "crawl_id"),
        (("resolve", "a.test"), "--resolve a.test:ADDRESS", 'resolve={"a.test": "ADDRESS"}'),
        (("frontier", "redis://host:6379"), "--frontier redis://host:6379", 'frontier="redis://host:6379"'),
        (("output", "items.csv"), "-o items.csv", 'output="items.csv"'),
        (("path_repeats", 1), "--path-repeats 1", "path_repeats=1"),
    ],
)
def test_messages_name_options_as_their_reader_writes_them(
    option: tuple[Any, ...], at_a_command_line: str, in_a_program: str
) -> None:
    assert OptionNames().named(*option) == at_a_command_line
    assert ProgramNames().named(*option) == in_a_program


def test_an_error_has_the_option_that_it_is_about_and_names_it_as_its_reader_does() -> None:
    error = BadInput("cannot read '5x'.", option="domain_concurrency")
    assert (error.option, str(error)) == ("domain_concurrency", "--domain-concurrency: cannot read '5x'.")
    with worded_for(ProgramNames()):
        assert str(BadInput("cannot read '5x'.", option="domain_concurrency")).startswith("domain_concurrency: ")
        assert "add allow_private=True" not in fetch_error("http://a.test/", "dns")
        assert "allow_private=True permits" in fetch_error("http://a.test/", "blocked_address")
    assert "--allow-private permits" in fetch_error("http://a.test/", "blocked_address")
    assert fetch_error("http://a.test/", "dns").endswith("with --resolve HOST:ADDRESS.")


def test_every_word_about_a_failure_names_options_that_exist() -> None:
    for reason in _EXPLANATIONS:
        text = explain(reason).advice + explain(reason).title
        assert "{" not in text
        assert set(re.findall(r"--([a-z0-9-]+)", text)) <= {
            name.replace("_", "-") for name in CrawlOptions.__annotations__
        }

"""The program that times the README's first commands reads them from the page."""

import re
from pathlib import Path

from tests.first_commands import first_commands

README = (Path(__file__).parents[3] / "README.md").read_text()


def test_they_install_this_checkout_and_end_with_the_demo_in_either_state_of_the_page() -> None:
    commands = first_commands(README)
    assert commands[-1] == "gossamer demo"
    assert re.search(r"\bpip install \.$", commands[-2])
    released = README.replace(commands[-2], "pip install gossamer-crawl")
    assert first_commands(released) == [*commands[:-2], "pip install .", "gossamer demo"]

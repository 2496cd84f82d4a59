"""Requests that the documentation, the help and the greeting tell people to send are taken as they stand."""

import re
from pathlib import Path

from gossamer.model.messages.reader import MessageReader

ROOT = Path(__file__).parents[3]
_FEED = re.compile(r"gossamer feed '(\{.*?\})'")


def test_requests_to_feed_are_valid() -> None:
    places = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    examples = {(path, text) for path in places for text in _FEED.findall(path.read_text())}
    assert len(examples) >= 5
    reader = MessageReader()
    for _, text in examples:
        assert reader.read(text.encode())[0] == "crawl"

"""How a message of a topic is shown, whoever wrote it."""

from typing import Any

import msgspec
import pytest

from gossamer.cli.commands.feed import _MessageFormat


@pytest.mark.parametrize(
    ("message", "body"),
    [
        ({"body": "aGk=", "body_encoding": "base64", "encoding": "utf-8"}, "hi"),
        ({"body": "6Q==", "body_encoding": "base64", "encoding": "latin-1"}, "é"),
        ({"body": "aGk=", "body_encoding": "base64", "encoding": "no-such"}, "hi"),
        ({"body": "aGk=", "body_encoding": "base64", "encoding": 7}, "hi"),
        ({"body": "a", "body_encoding": "base64"}, "a"),
        ({"body": 7, "body_encoding": "base64"}, "7"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_shown_as_it_can_be(message: dict[str, Any], body: str) -> None:
    shape = _MessageFormat(no_body=False, just_body=True, decode=True, pretty=False)
    assert await shape.text(msgspec.json.encode(message)) == body

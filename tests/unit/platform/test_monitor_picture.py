"""The picture of `gossamer monitor TARGET`."""

from gossamer.platform.client.monitoring import _row


def test_escape_sequences_of_a_servers_names_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in _row({"spider": "a\x1b[2J", "id": "\x1b]0;x\x07"}, "pending", "")

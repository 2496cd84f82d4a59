"""Only what certainly leads to this machine is loopback."""

import pytest

from gossamer.net.loopback import is_loopback


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LOCALHOST.", True),
        ("::ffff:127.0.0.1", True), ("::1%lo", True), ("0:0:0:0:0:0:0:1", True),
        ("0.0.0.0", False), ("", False), ("::", False), ("192.168.0.1", False), ("localhost.evil.example", False),
        ("a.localhost", False), ("localhost..", False), ("evil.example", False), ("[::1]", False), ("127.1", False),
        ("::ffff:10.0.0.1", False), ("localhost:80", False), ("ｌocalhost", False), (" localhost", False),
    ],
)  # fmt: skip
def test_only_this_machine_is_loopback(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback

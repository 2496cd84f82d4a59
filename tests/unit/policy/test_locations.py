"""Where a Location leads, whatever its bytes are."""

import pytest

from gossamer.policy.urls import redirect_target


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("/b", "http://a.test/b"),
        ("b#frag", "http://a.test/x/b"),
        ("//b.test", "http://b.test/"),
        ("https://b.test/ü".encode().decode("latin-1"), "https://b.test/%C3%BC"),
        ("/caf\xe9?q=\xfc", "http://a.test/caf%E9?q=%FC"),
        ("/日本".encode().decode("latin-1"), "http://a.test/%E6%97%A5%E6%9C%AC"),
        ("?q=1", "http://a.test/x/y?q=1"),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("http://", None),
        ("http://me:secret@b.test/x", "http://b.test/x"),
        ("", "http://a.test/x/y"),
        ("http://a.test/" + "x" * 9000, None),
    ],
)
def test_the_target_of_a_location(value: str, url: str | None) -> None:
    assert redirect_target("http://a.test/x/y", value) == url

"""Main text of a page: what does not count as a change of it."""

import pytest

from gossamer.fresh.main_text import body_hash, text_hash

PAGE = "<html><head><title>A</title></head><body>{}<main><h1>Title</h1><p>Some words.</p>{}</main>{}</body></html>"


def hash_of(*parts: str) -> int:
    return text_hash(PAGE.format(*parts).encode(), "utf-8", is_html=True)


@pytest.mark.parametrize(
    "parts",
    [
        ("<nav><a href=/x>New menu</a></nav>", "", ""),
        ("", "<script>token = 17</script>", ""),
        ("", "<time>yesterday</time>", ""),
        ("", "<form><input value=abc>Send</form>", ""),
        ("", "\n\n  ", "<footer>17 visitors</footer>"),
    ],
)
def test_menus_scripts_times_and_forms_do_not_count(parts: tuple[str, str, str]) -> None:
    assert hash_of(*parts) == hash_of("", "", "")


def test_words_count() -> None:
    assert hash_of("", "<p>More.</p>", "") != hash_of("", "", "")


@pytest.mark.parametrize("body", [b"", b"%PDF-1.7", "ä".encode()])
def test_what_is_no_html_is_compared_by_its_bytes(body: bytes) -> None:
    assert text_hash(body, "", is_html=False) == body_hash(body) != 0


def test_encodings_that_say_the_same_are_the_same() -> None:
    text = PAGE.format("", "<p>Käse</p>", "")
    assert text_hash(text.encode("latin-1"), "latin-1", is_html=True) == text_hash(text.encode(), "utf-8", is_html=True)

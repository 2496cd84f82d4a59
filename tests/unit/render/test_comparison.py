"""What counts as a change of a page by its scripts."""

import pytest

from gossamer.render.comparison import has_gained

URL = "http://shop.test/a/page"
WORDS = "<p>" + "word " * 100


@pytest.mark.parametrize(
    ("sent", "built", "gained"),
    [
        ("<div></div>", "<h1>Thing</h1>", True),
        ("<div></div>", "<div><nav>menu</nav></div>", False),
        (WORDS, WORDS + "<b>new</b> " * 9, False),
        (WORDS, WORDS + "<b>new</b> " * 10, True),
        (WORDS, WORDS + "<a href=../b>b</a>", True),
        (WORDS + "<a href=/b>b</a>", WORDS + "<a href='http://shop.test/b#c'>b</a>", False),
        (WORDS, WORDS + "<a href='http://www.shop.test/'>b</a>", True),
        (WORDS, WORDS + "<a href='http://other.test/'>b</a>", False),
        (WORDS, WORDS + "<a href='http://[/'>b</a><a>c</a>", False),
        (WORDS, "<p>gone", False),
        ("", "", False),
    ],
)
def test_new_links_of_the_site_and_new_words_count(sent: str, built: str, gained: bool) -> None:
    assert has_gained(URL, sent.encode(), built.encode(), site="shop.test") is gained

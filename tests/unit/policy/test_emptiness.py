"""Pages that need scripts, and pages that do not."""

import pytest

from gossamer.policy.emptiness import needs_scripts

WORDS = "<p>" + "Some words that a reader can read. " * 10 + "</p>"


@pytest.mark.parametrize(
    "page",
    [
        "<!doctype html><title>Shop</title><div id=root></div><script src=/app.js></script>",
        "<head><style>body {color: red}</style></head><body><div id=app>Loading…</div><script>start()</script>",
        "<body><script>document.body.innerHTML = '<a href=/a>a</a>'.repeat(100)</script>",
        f"<noscript>Please enable JavaScript to run this app.</noscript>{WORDS}<div></div><script src=a></script>",
        f"<div id=app></div><!-- {WORDS} --><template>{WORDS}</template><script src=a></script>",
    ],
)
def test_a_page_that_shows_nothing_needs_them(page: str) -> None:
    assert needs_scripts(page.encode())


@pytest.mark.parametrize(
    "page",
    [
        "<h1>Short</h1>",
        f"<h1>Long</h1>{WORDS}<script src=/statistics.js></script>",
        "<ul><li><a href=a>a</a><li><a href=b>b</a><li><a href=c>c</a></ul><script src=a></script>",
        "",
    ],
)
def test_a_page_that_shows_something_does_not(page: str) -> None:
    assert not needs_scripts(page.encode())

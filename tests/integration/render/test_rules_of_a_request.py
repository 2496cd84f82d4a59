"""Rules of one crawl for its rendered pages: how long they wait, what they load, which selectors a browser gets."""

import os
import shutil

import pytest

from gossamer.extract.render_steps import check_browser_selector
from gossamer.fakeweb import Answer, html
from gossamer.model.rendering import RenderTerms, parse_step
from gossamer.render import trackers
from tests.integration.render.building import building

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

SELECTORS = (
    "a:active", "a:any-link", "a:checked", "a:empty", "a:first-of-type", "a:focus", "a:only-child", "a:optional",
    "a:placeholder-shown", "a:read-only", "a:read-write", "a:required", ":root", "*|a", "|a", "[a=b i]", "[a='#1']",
    "a:is(b, c)", "a:nth-child(2 of b)", "a:nth-of-type(2n+1)", "a:not(b > c)", "a:has(> b)", "a:not(:has(b))",
    "é", r"a\:b", r"#\31 a", "[lang|=de]", "a ~ b + c",
)  # fmt: skip
"""Of each kind that the check accepts."""
LATER = """<body><script>
const add = html => document.body.insertAdjacentHTML('beforeend', html);
customElements.define('my-consent', class extends HTMLElement { connectedCallback() {
  this.attachShadow({mode: 'open'}).innerHTML = '<button id=accept>yes</button>';
  this.shadowRoot.querySelector('button').onclick = () => { this.remove(); add('<p class=accepted>') } } });
add('<my-consent></my-consent>');
setTimeout(() => add('<p class=late>'), 700);
</script>"""
LOADING = """<body><img src=/own.png><img src=//other.test:{port}/other.png>
<img src=//tracker.test:{port}/count.png><script src=//other.test:{port}/other.js></script>"""


async def test_steps_wait_for_a_time_and_a_selector_and_a_consent_is_given_in_a_component() -> None:
    async with building(browser__quiet=0.05) as builder:
        builder.page("/", LATER)
        steps = tuple(
            map(parse_step, ("consent #accept", "wait .never 0.2", "wait .late 5", "wait 0.1", "click .no 3"))
        )
        page = await builder.build("/", steps=steps)
        assert page.rendering is not None
        assert page.rendering.steps == (1, 0, 1, 1, 0)
        assert page.rendering.ended == "quiet"
        assert b"accepted" in page.body
        assert b"late" in page.body
        short = await builder.build("/", terms=RenderTerms(seconds=0.3), steps=(parse_step("wait .never"),))
        assert short.rendering is not None
        assert (short.rendering.ended, short.rendering.steps) == ("time", (0,))
        quick = await builder.build("/", terms=RenderTerms(quiet_seconds=1.0))
        assert b"late" in quick.body, "it was not quiet for so long before"


async def test_what_is_loaded_is_what_the_crawl_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "_TRACKERS", frozenset({"tracker.test"}))
    async with building(browser__quiet=0.05) as builder:
        builder.page("/", LOADING.format(port=builder.web.port))
        for host, path in (
            ("shop.test", "/own.png"),
            ("other.test", "/other.png"),
            ("tracker.test", "/count.png"),
        ):
            builder.web.mount(host, path, Answer(body=b"x", headers=(("Content-Type", "image/png"),)))
        builder.web.mount("other.test", "/other.js", html(""))

        async def sent(terms: RenderTerms | None) -> int:
            page = await builder.build("/", terms=terms)
            assert page.rendering is not None
            return page.rendering.requests

        assert await sent(None) == 1, "the script"
        assert await sent(RenderTerms(other_sites="none")) == 0
        assert await sent(RenderTerms(load=("images",))) == 3
        assert await sent(RenderTerms(load=("images", "trackers"))) == 4
        assert await sent(RenderTerms(load=("images",), other_sites="none")) == 1


async def test_a_browser_reads_every_selector_that_is_accepted() -> None:
    for selector in SELECTORS:
        check_browser_selector(selector)
    async with building(browser__quiet=0.05) as builder:
        builder.page("/", "<p>")
        steps = tuple(parse_step(f"consent {selector}") for selector in SELECTORS)
        page = await builder.build("/", steps=steps)
        assert page.rendering is not None
        assert len(page.rendering.steps) == len(SELECTORS)

"""Steps on pages: lists without end, buttons, forms, and what is no step."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import gossamer as gossamer_api
from gossamer.errors import BadInput
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.model.record import PageRecord
from gossamer.model.rendering import MOST_TIMES, RenderStep, parse_step
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

browser = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

LIST = """<div id=list style="padding-bottom: 1500px"></div><div id=end></div><script>
let count = 0;
const add = () => { for (let n = 0; n < 10 && count < 60; n++) {
  const link = document.createElement('a'); link.href = '/item/' + ++count; link.textContent = 'item';
  link.style = 'display: block; height: 200px';
  document.getElementById('list').append(link) } };
new IntersectionObserver(seen => { if (seen[0].isIntersecting) setTimeout(add, 20) })
  .observe(document.getElementById('end'));
</script>"""
MORE = """<ul></ul><button class=more>more</button><script>
let count = 0; const button = document.querySelector('button');
button.onclick = () => setTimeout(() => { for (let n = 0; n < 4; n++) document.querySelector('ul')
  .insertAdjacentHTML('beforeend', `<li><a href="/item/${++count}">x</a>`); if (count >= 20) button.remove() }, 30);
</script>"""
FORM = """<form><input id=q name=q><button>go</button></form><p></p><script>
document.querySelector('form').onsubmit = event => { event.preventDefault();
  setTimeout(() => document.querySelector('p').innerHTML = '<a class=found href="/found/' + q.value + '">x</a>', 500) };
</script>"""


async def rendered(folder: Path, page: str, *steps: str) -> PageRecord:
    """Record of a page on which these steps are taken."""
    options = [part for step in steps for part in ("--render-step", step)]
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(page))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "--depth", "0"),
            *("--render", "always", "--links", "-o", "pages.jsonl", *options),
            cwd=folder,
        )
    assert run.returncode == 0, run.stderr
    (record,) = [record for record in records_of(folder / "pages.jsonl") if isinstance(record, PageRecord)]
    return record


@browser
async def test_a_list_without_end_is_scrolled_to_its_end(tmp_path: Path) -> None:
    record = await rendered(tmp_path, LIST, "scroll")
    assert len(record.links) == 60
    assert record.rendering is not None
    assert record.rendering.ended == "quiet"


@browser
async def test_a_button_is_clicked_until_it_is_gone(tmp_path: Path) -> None:
    record = await rendered(tmp_path, MORE, "click .more")
    assert len(record.links) == 20
    assert record.rendering is not None
    assert record.rendering.steps == (5,)


@browser
async def test_a_number_bounds_the_clicks(tmp_path: Path) -> None:
    assert len((await rendered(tmp_path, MORE, "click .more 2")).links) == 8


@browser
async def test_a_form_is_filled_and_sent(tmp_path: Path) -> None:
    record = await rendered(tmp_path, FORM, "fill #q=red shoes", "submit form", "wait .found", "click .absent")
    assert [link.url.rpartition("/")[2] for link in record.links] == ["red%20shoes"]
    assert record.rendering is not None
    assert record.rendering.steps == (1, 1, 1, 0)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("scroll", RenderStep("scroll", "", 50)),
        ("scroll 7", RenderStep("scroll", "", 7)),
        ("click ul > li.more a 3", RenderStep("click", "ul > li.more a", 3)),
        ("wait .list", RenderStep("wait", ".list")),
        ("fill #q=a=b", RenderStep("fill", "#q", 1, "a=b")),
        ("fill input[name=q]=x", RenderStep("fill", "input[name=q]", 1, "x")),
        ("submit form", RenderStep("submit", "form")),
    ],
)
def test_steps_are_read(text: str, step: RenderStep) -> None:
    assert parse_step(text) == step


@pytest.mark.parametrize(
    "text", ["", "jump", "click", "wait ", "scroll .x", "fill #q", f"click a {MOST_TIMES + 1}", "click a 0"]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_step(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--render", "always", "--render-step", "jump .x"), "--render-step: there is no step 'jump .x'"),
        (("--render", "always", "--render-step", "click ..x"), "--render-step: "),
        (("--render", "always", "--render-step", "wait 61"), "--render-step: 'wait 61' waits 61 s"),
        (("--render", "always", "--render-step", "wait 40"), "a page has only 30 s. Increase --render-seconds"),
        (("--render-step", "scroll"), "--render-step: no page is rendered"),
    ],
)
def test_a_wrong_step_is_refused_before_anything_is_fetched(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = gossamer("crawl", "http://shop.invalid/", *options, cwd=tmp_path)
    assert run.returncode == 2
    assert said in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"render_step": "jump"}, "render_step: there is no step 'jump'"),
        ({"render_step": ["scroll", "click ..x"]}, "render_step: cannot parse"),
        ({"render_step": "wait 40"}, "Increase render_seconds"),
        ({"render_screenshot": "a::text", "assets_to": "files"}, "render_screenshot: "),
        ({"render_seconds": 601}, "render_seconds: "),
        ({"render_load": "everything"}, "render_load: "),
    ],
)
def test_a_program_gets_an_error_before_anything_is_fetched(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        next(iter(gossamer_api.crawl("http://shop.invalid/", render="always", **options)))
    assert said in str(refused.value)

"""`--render auto` on a site of twenty kinds of pages: those that scripts change are rendered, and few others."""

import asyncio
import os
import shutil

import pytest

from tests.integration.render.building import Builder, building

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

WORDS = "<p>" + "words that a reader sees and that stay as they are " * 8 + "</p>"
MORE = "'<p>' + 'more words that only the script knows ' .repeat(9) + '</p>'"
LINK = "'<a href=/found/' + location.pathname.length + '>found</a>'"
ADD = "document.body.insertAdjacentHTML('beforeend', "
NEED = {
    "empty": f"<div id=app></div><script>document.getElementById('app').innerHTML = {MORE}</script>",
    "links": f"{WORDS}<script>{ADD}{LINK})</script>",
    "text": f"{WORDS}<script>{ADD}{MORE})</script>",
    "shadow": f"{WORDS}<b></b><script>const d = document.createElement('div');"
    f"document.body.append(d); d.attachShadow({{mode: 'open'}}).innerHTML = {LINK}</script>",
    "frame": f"{WORDS}<script>const f = document.createElement('iframe'); f.src = '/inner'; document.body.append(f)"
    "</script>",
    "data": f"{WORDS}<script>fetch('/data.json').then(a => a.json()).then(d => document.body.append(d.text))</script>",
    "later": f"{WORDS}<script>setTimeout(() => {ADD}{MORE}), 20)</script>",
    "few": "<div id=app></div><script>document.getElementById('app').innerHTML = '<h1>Thing 7</h1>'</script>",
    "noscript": f"<body><noscript>switch scripts on</noscript><script>document.body.innerHTML = {MORE}</script>",
    "elements": f"{WORDS}<my-list></my-list><script>customElements.define('my-list', class extends HTMLElement {{"
    f"connectedCallback() {{ this.innerHTML = {LINK} }} }})</script>",
}
NEED_NOT = {
    "plain": WORDS,
    "short": "<h1>thanks</h1>",
    "styled": f"{WORDS}<style>p {{ color: red }}</style>",
    "counting": f"{WORDS}<script>window.visits = 1</script>",
    "titled": f"{WORDS}<script>document.title = 'changed'</script>",
    "timed": f"{WORDS}<time></time><script>document.querySelector('time').textContent = Date()</script>",
    "shared": f"{WORDS}<script>{ADD}'<a href=//other.test/share>share</a>')</script>",
    "menu": f"{WORDS}<nav></nav><script>document.querySelector('nav').textContent = 'hello reader '.repeat(9)</script>",
    "classes": f"{WORDS}<script>document.querySelector('p').className = 'seen'</script>",
    "hollow": "<h1>bye</h1><script>window.visits = 1</script>",
}
KINDS = {**NEED, **NEED_NOT}
PAGES = 6


async def test_twenty_kinds_of_pages_are_told_apart() -> None:
    async with building(browser__quiet=0.06) as builder:
        builder.page("/data.json", '{"text": "' + "words of the data " * 20 + '"}')
        builder.page("/inner", "<a href=/in-the-frame>inner</a>")
        for name, body in KINDS.items():
            for number in range(PAGES):
                builder.page(f"/{name}/{number}", body)
        found = dict(zip(KINDS, await asyncio.gather(*(choices(builder, name) for name in KINDS)), strict=True))
    rendered = {name: [choice.startswith("rendered:") for choice in of_kind] for name, of_kind in found.items()}
    assert not [name for name in KINDS if rendered[name][-1] is not (name in NEED)], found
    assert all(all(rendered[name]) for name in NEED)
    assert sum(map(sum, rendered.values())) <= 1.3 * PAGES * len(NEED)


async def choices(builder: Builder, name: str) -> list[str]:
    """The decisions on the pages of a kind, of which three are fetched at once."""
    pages = [builder.build(f"/{name}/{number}", because="auto", learns=True) for number in range(PAGES)]
    return [page.render_choice for page in [*await asyncio.gather(*pages[:3]), *await asyncio.gather(*pages[3:])]]

"""`gossamer shell` and `gossamer new spider`, as a person uses them."""

import asyncio
import json
import os
import pty
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.fakeweb import Server, WebSpec, html, serve
from tests.servers.crawling import FAST_FLAGS, command, gossamer

PAGE = """<title>Shop</title><h1>Welcome</h1><a href="/1">one</a>
<script type="application/ld+json">{"@graph": [{"@type": "Product", "name": "Lamp"}]}</script>"""


@pytest.fixture
async def web() -> AsyncIterator[Server]:
    async with serve(WebSpec(hosts=1, pages=1)) as server:
        server.mount("shop.test", "/", html(PAGE))
        server.mount("shop.test", "/1", html("<h1>First</h1>"))
        yield server


async def shell(web: Server, folder: Path, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        gossamer,
        "shell",
        f"http://shop.test:{web.port}/",
        "--resolve",
        "*:127.0.0.1",
        *arguments,
        cwd=folder,
        stdin=stdin,
    )


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("css('h1::text').get()", "Welcome"),
        ("xpath('//title/text()').getall()", "['Shop']"),
        ("page.jsonld[0]['name']", "Lamp"),
        ("[link.text for link in page.links]", "['one']"),
        ("fetch('/1'); print(css('h1::text').get())", "First"),
        ("print(page.status_code)", "200"),
    ],
)
async def test_code_is_run_on_the_page(web: Server, tmp_path: Path, code: str, printed: str) -> None:
    done = await shell(web, tmp_path, "-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr


async def test_an_error_in_the_code_shows_only_the_users_own_lines(web: Server, tmp_path: Path) -> None:
    done = await shell(web, tmp_path, "-c", "page.nothing")
    assert done.returncode == 1
    assert done.stderr.startswith('Traceback (most recent call last):\n  File "<-c>", line 1')
    assert "spiders.py" not in done.stderr


async def test_a_page_that_cannot_be_fetched_says_why(web: Server, tmp_path: Path) -> None:
    web.mount("shop.test", "/robots.txt", html("User-agent: *\nDisallow: /"))
    done = await shell(web, tmp_path, "-c", "1")
    assert done.returncode == 1
    assert "robots.txt" in done.stderr
    assert not done.stdout


async def test_the_prompt_shows_results_and_ends_with_its_input(web: Server, tmp_path: Path) -> None:
    """At a terminal, as a person sees it; Python's own prompt."""
    main, side = pty.openpty()
    (tmp_path / "IPython.py").write_text("raise ImportError")  # as if it were not installed
    process = await asyncio.create_subprocess_exec(
        *command("shell", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1"),
        cwd=tmp_path,
        stdin=side,
        stdout=side,
        stderr=side,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TERM": "dumb"},
    )
    os.close(side)
    shown = ""
    prompt = ">>> "  # what is typed before it is shown may be lost: the prompt changes the mode of the terminal
    for result, typed in (("", "css('h1::text').get()\n"), ("'Welcome'", "fetch('/1')\n"), ("200 ", "\x04")):
        for awaited in (result, prompt):
            while awaited not in shown:
                shown += (await asyncio.to_thread(os.read, main, 4096)).decode()
            shown = shown.partition(awaited)[2] if awaited else shown
        os.write(main, typed.encode())
    assert await process.wait() == 0
    os.close(main)


async def test_a_file_is_read_with_the_url_that_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    code = "print(css('h1::text').get(), page.links[0].url)"
    done = await asyncio.to_thread(
        gossamer, "shell", "page.html", "--base-url", "https://a.test/x", "-c", code, cwd=tmp_path
    )
    assert done.stdout == "Welcome https://a.test/1\n"
    done = await asyncio.to_thread(gossamer, "shell", "none.html", "-c", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "gossamer: none.html cannot be read: No such file or directory\n")


async def test_view_writes_a_page_that_finds_its_images(web: Server, tmp_path: Path) -> None:
    code = "import webbrowser; webbrowser.open = print; print(open(view()).read())"
    done = await shell(web, tmp_path, "-c", code)
    assert re.match(r"file:///.*\.html\n<base href=\"http://shop.test:\d+/\"><title>Shop", done.stdout)


async def test_a_new_spider_runs_at_once(web: Server, tmp_path: Path) -> None:
    written = await asyncio.to_thread(gossamer, "new", "spider", "book-shop", cwd=tmp_path)
    assert written.returncode == 0
    assert "The spider bookshop is in book-shop.py" in written.stdout
    crawl = ["crawl", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "--json"]
    done = await asyncio.to_thread(gossamer, *crawl, "--spider", "book-shop.py", cwd=tmp_path)
    assert json.loads(done.stdout)["items"] == 2, done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop", "shop.py exists, and is left as it is. Use another name."),
        ("1shop", "NAME: '1shop' makes no name of a class. Begin with a letter, for example: shop"),
        ("none/shop", "none/shop.py cannot be written: No such file or directory"),
        ("", "NAME: '' makes no name of a class. Begin with a letter, for example: shop"),
        ("a\nb", "NAME: 'a\\nb' has characters that cannot be shown. Use others, for example: shop"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "shop.py").write_text("mine")
    done = gossamer("new", "spider", name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"gossamer: {message}\n")
    assert (tmp_path / "shop.py").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.py"]

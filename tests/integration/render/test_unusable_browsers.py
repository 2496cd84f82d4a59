"""A browser that cannot be used is refused in one line, before anything is fetched."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import BrowserMissing, BrowserNotStarted
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.model.record import PageRecord
from gossamer.render.browser import Browser
from gossamer.render.pool import BrowserPool
from gossamer.wiring.browser import launch_options
from tests.integration.render.building import NO_SANDBOX, building, program_of, settings_of
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

VERSION = r"""printf '{"id":1,"result":{"product":"HeadlessChrome/%s"}}\0' >&4; read -r _"""
PROGRAMS = {
    "is missing": ("", "there is no program"),
    "is too old": (VERSION % "99.0.1", "is HeadlessChrome/99.0.1. Install Chromium 120 or newer."),
    "has no sandbox": (NO_SANDBOX, "cannot use its sandbox here. Permit user namespaces"),
    "does not start": ("echo 'error while loading libnss3.so' >&2", "did not start: error while loading libnss3.so"),
}
CRAWL = ("crawl", "--render", "always", "-o", "pages.jsonl")
COMMANDS = [
    *((case, CRAWL) for case in PROGRAMS),
    ("is too old", ("crawl", "--render", "auto", "--processes", "2", "-o", "pages.jsonl")),
    ("has no sandbox", ("fetch", "--render")),
]


@pytest.mark.parametrize(("case", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value[0])
async def test_it_is_refused(tmp_path: Path, case: str, command: tuple[str, ...]) -> None:
    script, expected = PROGRAMS[case]
    program = Path("/bin/false-browser")
    if script:
        program = program_of(tmp_path, script)
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        run = await asyncio.to_thread(
            gossamer, *command, web.url(), "--resolve", "*:127.0.0.1", cwd=tmp_path,
            env={"GOSSAMER_BROWSER__PROGRAM": str(program)},
        )  # fmt: skip
        assert not web.log()
    assert run.returncode == 2
    (line,) = [line for line in run.stderr.splitlines() if "Resuming" not in line]
    assert expected in line
    assert not (tmp_path / "pages.jsonl").exists()


@pytest.mark.skipif(not shutil.which("chromium-headless-shell"), reason="there is no browser")
async def test_pages_wait_for_a_browser_that_does_not_start_for_a_time(tmp_path: Path) -> None:
    """As where a disk is full: no page fails, and each is requested once."""
    starts = tmp_path / "starts"
    script = (
        f"echo x >> {starts}; case $(wc -l < {starts}) in 2|3|4) echo 'No space left on device' >&2; exit 1;; esac; "
        'exec chromium-headless-shell "$@"'
    )
    program = program_of(tmp_path, script)
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for number in range(4):
            web.mount("shop.test", f"/{number}", html(f"<h1>{number}</h1><a href=/{number + 1}>next</a>"))
        run = await asyncio.to_thread(
            gossamer, "crawl", f"http://shop.test:{web.port}/0", "--render", "always", "--depth", "3",
            "--resolve", "*:127.0.0.1", *FAST_FLAGS, "-o", "pages.jsonl", cwd=tmp_path,
            env={"GOSSAMER_BROWSER__PROGRAM": str(program), "GOSSAMER_BROWSER__RETIRE_PAGES": "2"},
        )  # fmt: skip
        paths = [record.path for record in web.log() if record.path != "/robots.txt"]
    assert run.returncode == 0, run.stderr
    assert len(starts.read_text().split()) > 4
    assert sorted(paths) == ["/0", "/1", "/2", "/3"]
    pages = [one for one in records_of(tmp_path / "pages.jsonl") if isinstance(one, PageRecord)]
    assert [one.reason for one in pages] == [""] * 4


NEXT_STARTS = {
    "later": ("echo 'No space left on device' >&2; exit 1", BrowserNotStarted),
    "never": ("exec /no/such/browser", BrowserMissing),
}


@pytest.mark.skipif(not shutil.which("chromium-headless-shell"), reason="there is no browser")
@pytest.mark.parametrize("case", NEXT_STARTS)
async def test_a_second_browser_that_does_not_start_holds_up_no_page(tmp_path: Path, case: str) -> None:
    """Pages of other sites are built in the browser that runs."""
    script, _ = NEXT_STARTS[case]
    started = tmp_path / "started"
    program = program_of(
        tmp_path, f'[ -e {started} ] && {{ {script}; }}; touch {started}; exec chromium-headless-shell "$@"'
    )
    async with building(browser__program=str(program), browser__processes=2, browser__tabs=2) as builder:
        builder.page("/", "<h1>one</h1>")
        async with asyncio.timeout(12):
            for number in range(4):
                request = builder.request("/")
                assert request.page is not None
                request.page = msgspec.structs.replace(request.page, site=f"{number}.test")
                assert b"one" in (await builder.backend.fetch(request)).body
        assert len(builder.browsers()) == 1


@pytest.mark.parametrize("case", NEXT_STARTS)
async def test_a_program_that_is_missing_is_told_from_one_that_may_start_later(tmp_path: Path, case: str) -> None:
    script, expected = NEXT_STARTS[case]
    settings = settings_of(browser__program=str(program_of(tmp_path, script)))
    with pytest.raises(expected):
        await Browser.start(launch_options(settings))


@pytest.mark.skipif(not shutil.which("chromium-headless-shell"), reason="there is no browser")
async def test_pages_wait_for_a_program_that_is_gone_while_they_are_built(tmp_path: Path) -> None:
    """It may be there again, as while its package is replaced. Only a worker that has never had one refuses pages."""
    program = program_of(tmp_path, 'exec chromium-headless-shell "$@"')
    async with building(browser__program=str(program)) as builder:
        builder.page("/", "<h1>one</h1>")
        assert b"one" in (await builder.backend.fetch(builder.request("/"))).body
        program.write_text("#!/bin/sh\nexec /no/such/browser")
        pool = builder.backend._pool
        assert isinstance(pool, BrowserPool)
        with pytest.raises(BrowserNotStarted, match="Install the browser anew"):
            await pool._start()


def as_root_without_rights(*command: str) -> list[str]:
    """Return a command that runs as a root which cannot become another user."""
    return ["unshare", "--map-root-user", *command]


@pytest.mark.skipif(
    not shutil.which("unshare") or bool(subprocess.run(as_root_without_rights("true"), capture_output=True).returncode),
    reason="this system permits no users of its own",
)
def test_a_root_that_cannot_become_another_user_is_refused(tmp_path: Path) -> None:
    command = ("fetch", "--render", "http://shop.test:9/", "--resolve", "*:127.0.0.1")
    run = subprocess.run(
        as_root_without_rights(sys.executable, "-m", "gossamer", *command),
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.startswith("gossamer: browser.user: this system lets Gossamer run no program as user 65534.")
    assert len(run.stderr.splitlines()) == 1

"""Browsers leave no process and no folder behind, whoever was killed or stands still."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gossamer.render.browser import Browser
from gossamer.wiring.browser import launch_options
from tests.chaos.browsers import has_ended
from tests.integration.render.building import settings_of
from tests.servers.reaper import descendants

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

WORKER = """
import asyncio, os, signal
from gossamer.render import browser
from gossamer.wiring.browser import launch_options
from tests.chaos.browsers import find
from tests.chaos.schedule import Kind
from tests.integration.render.building import settings_of

async def main():
    started = await browser.Browser.start(launch_options(settings_of()))
    print(started.process.pid, started.folder, flush=True)
    {before}
    os.kill(os.getpid(), signal.SIGKILL)

browser._JANITOR = browser._JANITOR.replace("80", "1")
asyncio.run(main())
"""
KILLED = {
    "alone": "",
    "while its browser stands still": "[os.kill(pid, signal.SIGSTOP) for pid in find(os.getpid(), Kind.KILL_BROWSER)]",
    "while a page stands still": "[os.kill(pid, signal.SIGSTOP) for pid in find(os.getpid(), Kind.KILL_RENDERER)]",
}


@pytest.mark.parametrize("case", KILLED)
def test_a_worker_is_killed(case: str) -> None:
    script = WORKER.format(before=KILLED[case])
    run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60)
    group, folder = run.stdout.split()
    assert run.returncode == -signal.SIGKILL
    while is_group(int(group)) or Path(folder).exists():
        time.sleep(0.02)


async def test_the_first_process_of_a_browser_is_killed_and_the_others_stand_still() -> None:
    """The program is a script at times, which starts the browser."""
    browser = await Browser.start(launch_options(settings_of()))
    group = browser.process.pid
    others = {pid for pid in descendants(group) if not has_ended(pid)}
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    os.kill(group, signal.SIGKILL)
    await browser.close(kill=True)
    assert not is_group(group)
    assert not browser.folder.exists()


async def test_everything_is_killed_and_the_next_browser_deletes_the_folder() -> None:
    """Only folders that no process holds, and that are not new."""
    browser = await Browser.start(launch_options(settings_of()))
    place = browser.folder.parent
    left, new = place / "gossamer-browser-left", place / "gossamer-browser-new"
    hour_ago = time.time() - 3600
    for folder in (left, new):
        folder.mkdir(exist_ok=True)
    for folder in (left, browser.folder):
        os.utime(folder, (hour_ago, hour_ago))
    try:
        other = await Browser.start(launch_options(settings_of()))
        await other.close()
        assert not left.exists()
        assert new.exists()
        assert browser.folder.exists()
        await browser.devtools.call("Browser.getVersion")
    finally:
        new.rmdir()
        await browser.close()


def is_group(group: int) -> bool:
    """Return whether a process group has a process that has not ended."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found, *_ = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(found) == group and state not in "ZX":
            return True
    return False

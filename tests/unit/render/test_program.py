"""The browser's program: how a missing one is named, and that crawls without one load nothing of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.errors import BrowserMissing
from gossamer.render.program import browser_user, find_program, install_command

CHROME = "google-chrome-stable_current_amd64.deb"


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt-get install chromium-headless-shell"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install chromium-headless"),
        ("ID=fedora\n", "dnf install chromium-headless"),
        ("ID=alpine\n", "apk add chromium"),
        ("ID=ubuntu\nID_LIKE=debian\n", f"apt-get install ./{CHROME}, from https://www.google.com/chrome/"),
        ("ID=pop\nID_LIKE='ubuntu debian'\n", f"apt-get install ./{CHROME}, from https://www.google.com/chrome/"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "apt-get install chromium"),
        ("ID=unheard-of\n", "the package chromium of this system, or Chrome from https://www.google.com/chrome/"),
    ],
)
def test_the_command_is_that_of_the_system(tmp_path: Path, release: str, command: str) -> None:
    (tmp_path / "os-release").write_text(release)
    assert install_command(platform="linux", os_release=tmp_path / "os-release") == command


def test_the_command_of_macos_needs_no_file(tmp_path: Path) -> None:
    assert install_command(platform="darwin", os_release=tmp_path / "none") == "brew install --cask chromium"


def test_a_missing_browser_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if sys.platform != "darwin":
        with pytest.raises(BrowserMissing, match="neither Chromium nor Chrome is installed"):
            find_program()
    with pytest.raises(BrowserMissing, match=r"browser\.program: there is no program odd"):
        find_program("odd")


def test_a_program_is_found_by_path(tmp_path: Path) -> None:
    program = tmp_path / "own"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program(str(program)) == str(program)


def test_root_needs_another_user_or_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert browser_user("") == (65534, 65534)
    with pytest.raises(BrowserMissing, match="as root, a browser has no sandbox"):
        browser_user("root")
    assert browser_user("root", sandbox=False) is None
    with pytest.raises(BrowserMissing, match="there is no user no-such-user"):
        browser_user("no-such-user")


def test_plain_crawls_load_nothing_of_it() -> None:
    script = (
        "import sys, gossamer.cli.commands.crawl, gossamer.cli.commands.fetch, gossamer.wiring.worker\n"
        "print([name for name in sys.modules if name.startswith(('gossamer.render', 'gossamer.fetch.backend'))])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

"""The browser's program on this machine: finds it, says how to install a missing one, and as whom it runs."""

import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from gossamer.errors import BrowserMissing

_NAMES = (
    "chromium-headless-shell",
    "headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
"""Programs in the order of choice. The headless shell is first, because it is smaller and starts no services of its
own."""
_COMMANDS = {
    "debian": "apt-get install chromium-headless-shell",
    "linuxmint": "apt-get install chromium",
    # Not the snap of Chromium: it has a /tmp of its own, and starts for no user without a home.
    "ubuntu": "apt-get install ./google-chrome-stable_current_amd64.deb, from https://www.google.com/chrome/",
    "fedora": "dnf install chromium-headless",
    "rhel": "dnf install chromium-headless",
    "alpine": "apk add chromium",
    "arch": "pacman -S chromium",
    "suse": "zypper install chromium",
}
"""Commands that install a browser, by the names of systems in os-release."""
UNPRIVILEGED = 65534
"""Number of the user and the group without rights, as which the browser runs where Gossamer runs as root and the
settings name no user."""


class BrowserUser(NamedTuple):
    """User and group of a browser, as numbers."""

    uid: int
    gid: int


def find_program(setting: str = "") -> str:
    """Return the path of the browser. `setting`: the program that the settings name; empty: the first that is
    installed. Raises BrowserMissing, with the command that installs one."""
    for name in (setting,) if setting else _NAMES:
        if found := shutil.which(name):
            return found
    if setting:
        raise BrowserMissing(f"browser.program: there is no program {setting}. Install a browser: {install_command()}")
    raise BrowserMissing(f"neither Chromium nor Chrome is installed. Install one: {install_command()}")


def install_command(*, platform: str = sys.platform, os_release: Path = Path("/etc/os-release")) -> str:
    """Return the command that installs a browser on this system."""
    if platform == "darwin":
        return "brew install --cask chromium"
    try:
        lines = os_release.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    values = {name: value.strip().strip("\"'") for name, _, value in (line.partition("=") for line in lines)}
    for system in f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".split():
        if command := _COMMANDS.get(system):
            return command
    return "the package chromium of this system, or Chrome from https://www.google.com/chrome/"


def browser_user(setting: str, *, sandbox: bool = True) -> BrowserUser | None:
    """Return the user as whom the browser runs. None: the user of this process. `setting`: the name in the settings;
    empty: the one without rights where this process is root's. `sandbox`: the browser confines its pages.

    Raises BrowserMissing where there is no such user, where only root could change to it, and where pages would have
    root's rights without a sandbox having been given up for that."""
    if os.geteuid() != 0:
        if setting and setting != pwd.getpwuid(os.geteuid()).pw_name:
            raise BrowserMissing(f"browser.user: only root can run a browser as {setting}. Leave the setting out.")
        return None
    if not setting:
        return BrowserUser(UNPRIVILEGED, UNPRIVILEGED)
    try:
        user = pwd.getpwnam(setting)
    except KeyError:
        raise BrowserMissing(f"browser.user: there is no user {setting}. Name one that exists.") from None
    if user.pw_uid:
        return BrowserUser(user.pw_uid, user.pw_gid)
    if sandbox:
        raise BrowserMissing(
            "browser.user: as root, a browser has no sandbox. Name another user, or set browser.sandbox to no if the "
            "whole machine is there for these pages."
        )
    return None

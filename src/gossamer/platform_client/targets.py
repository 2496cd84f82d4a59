"""Targets: servers that a Scrapy project names in scrapy.cfg, or that the environment or an address names.

The sections are those of scrapyd-client, which reads the same file: `[deploy]` is the default, `[deploy:NAME]` another
one. Fixed: names of sections and options; that `$NAME` in a value stands for a variable; the variables below.
"""

import configparser
import netrc
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from gossamer.errors import BadInput
from gossamer.net.credentials import ENCODE, hide_secrets
from gossamer.platform_client.http import Credentials
from gossamer.platform_client.secret_variables import (
    PLATFORM_PASSWORD,
    PLATFORM_TOKEN,
    PLATFORM_USERNAME,
    read_secret,
)

URL_VARIABLE: Final = "GOSSAMER_PLATFORM_URL"
DEFAULT_URL: Final = "http://localhost:6800"
"""Address of `gossamer scrapyd` on this machine, which is used if nothing else is named. Fixed."""
_ADDRESS: Final = re.compile(r"[^\s/:@]+:\d{1,5}/?|\[[0-9a-fA-F:]+\]:\d{1,5}/?|localhost/?")
"""An address without http://, which no name of a target looks like."""
_DEFAULT_NAME: Final = "default"
"""Name of the target in the section [deploy]. scrapyd-client's: fixed."""


class DeployTarget(NamedTuple):
    """A server, and what a project wants from it."""

    name: str
    """Name in scrapy.cfg. Empty: it was named by its address."""
    url: str
    credentials: Credentials
    project: str = ""
    """Name of the project on the server. Empty: none is set."""
    version: str = ""
    """Name for a version, or GIT or HG. Empty: none is set."""


class ScrapyProject(NamedTuple):
    """A Scrapy project on this machine."""

    folder: Path
    """Folder of its scrapy.cfg."""
    settings_module: str
    targets: Mapping[str, DeployTarget]

    def default_name(self) -> str:
        """Return the project's name: that of the default target, else the package of its settings."""
        target = self.targets.get(_DEFAULT_NAME)
        return (target.project if target else "") or self.settings_module.partition(".")[0]


def find_project(folder: Path) -> ScrapyProject | None:
    """Return the project of the folder, or of the closest one above it. None: there is no scrapy.cfg.

    Raises BadInput for a scrapy.cfg that cannot be read.
    """
    for parent in (folder.absolute(), *folder.absolute().parents):
        path = parent / "scrapy.cfg"
        if path.is_file():
            return _read(path)
    return None


def _read(path: Path) -> ScrapyProject:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise BadInput(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    # SCRAPY_PROJECT chooses one of several settings modules, as everywhere in Scrapy.
    chosen = os.environ.get("SCRAPY_PROJECT", "default")
    module = parser.get("settings", chosen, fallback="")
    common = dict(parser.items("deploy")) if parser.has_section("deploy") else {}
    targets = {}
    for section in parser.sections():
        kind, _, name = section.partition(":")
        if kind != "deploy":
            continue
        options = {**common, **dict(parser.items(section))}
        targets[name or _DEFAULT_NAME] = _target(name or _DEFAULT_NAME, options)
    return ScrapyProject(path.parent, module, targets)


def _target(name: str, options: Mapping[str, str]) -> DeployTarget:
    values = {key: os.path.expandvars(value) for key, value in options.items()}
    url = values.get("url", DEFAULT_URL)
    credentials = Credentials(values.get("token", ""), values.get("username", ""), values.get("password", ""))
    return DeployTarget(name, url, credentials, values.get("project", ""), values.get("version", ""))


def choose_target(named: str | None, project: ScrapyProject | None) -> DeployTarget:
    """Return the target with a name of scrapy.cfg or an address. None: that of the environment, else the project's
    default, else the server on this machine. Raises BadInput."""
    targets = project.targets if project else {}
    if named and named not in targets and _ADDRESS.fullmatch(named):
        named = f"http://{named}"
    if named and "://" not in named and named not in targets:
        shown = hide_secrets(named, web=True)
        known = f"There are: {', '.join(targets)}." if targets else "It has none, or there is no scrapy.cfg here."
        raise BadInput(
            f"there is no target {shown!r} in scrapy.cfg. {known} Add a section [deploy:{shown}] with url = http://…, "
            "or write an address such as http://localhost:6800."
        )
    if named and "://" not in named:
        return with_credentials(targets[named])
    url = named or os.environ.get(URL_VARIABLE, "")
    default = targets.get(_DEFAULT_NAME)
    if not url:
        return with_credentials(default or DeployTarget("", DEFAULT_URL, Credentials()))
    check_server_address(url)
    same = next((target for target in targets.values() if target.url.rstrip("/") == url.rstrip("/")), None)
    return with_credentials(same or DeployTarget("", url, Credentials(), default.project if default else ""))


def with_credentials(target: DeployTarget) -> DeployTarget:
    """Return the target with credentials: its own; else those of the environment; else those of ~/.netrc; else those in
    its address. Raises BadInput for a secret's file or an address that cannot be read."""
    check_server_address(target.url)
    parts = urlsplit(target.url)
    if "@" in parts.netloc:
        host = parts.netloc.rpartition("@")[2]
        target = target._replace(url=parts._replace(netloc=host).geturl())
    if target.credentials.header():
        return target
    # They are for the server of the environment; without one there, for whichever target is named.
    only = os.environ.get(URL_VARIABLE, "").rstrip("/")
    if only in ("", target.url.rstrip("/")) and (found := _credentials_of_environment()).header():
        return target._replace(credentials=found)
    if parts.username:
        return target._replace(credentials=Credentials("", unquote(parts.username), unquote(parts.password or "")))
    return target._replace(credentials=_netrc(parts.hostname or ""))


def _credentials_of_environment() -> Credentials:
    token = read_secret(os.environ, PLATFORM_TOKEN)
    username, password = os.environ.get(PLATFORM_USERNAME, ""), read_secret(os.environ, PLATFORM_PASSWORD)
    if password and not username:
        raise BadInput(f"{PLATFORM_PASSWORD} is set, and {PLATFORM_USERNAME} is not. Set both, or {PLATFORM_TOKEN}")
    return Credentials(token, username, password)


def check_server_address(url: str) -> None:
    """Raise BadInput, without a password, unless this is the address of a server."""
    try:
        parts = urlsplit(url)
        # With a slash in a password, the @ is behind what looks like the host.
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_address = is_address and ("@" not in url or "@" in parts.netloc)
    except ValueError:
        is_address = False
    if not is_address:
        advice = f" {ENCODE}." if "@" in url else ""
        raise BadInput(
            f"{hide_secrets(url, web=True)} is no address of a server. Write one such as http://localhost:6800.{advice}"
        )


def _netrc(host: str) -> Credentials:
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return Credentials()
    return Credentials("", found[0], found[2] or "") if found else Credentials()

"""Parts that the commands for Scrapy projects share: options for the server and the project, and texts about jobs.

Fixed: flags, which scripts hold.
"""

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from gossamer.cli import terminal
from gossamer.cli.parser import option
from gossamer.errors import BadInput
from gossamer.net.loopback import is_loopback
from gossamer.platform_client.http import ServerRefused, ServerUnreachable
from gossamer.platform_client.platform import PlatformClient
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.sizes import BYTES_BY_UNIT, SIZE
from gossamer.platform_client.targets import DeployTarget, ScrapyProject, choose_target, find_project

Target = Annotated[
    str | None,
    option(
        "--target",
        "-t",
        metavar="NAME|URL",
        help="Server: a target of scrapy.cfg, or an address. Without this option: GOSSAMER_PLATFORM_URL, else the "
        "section deploy of scrapy.cfg, else http://localhost:6800.",
        show_default=False,
    ),
]
Project = Annotated[
    str | None,
    option(
        "--project",
        "-p",
        metavar="NAME",
        help="Project on the server. Without this option: that of scrapy.cfg here.",
        show_default=False,
    ),
]
Json = Annotated[bool, option("--json", help="Print the result as JSON.")]

_START_SECONDS: Final = 5.0
"""Time that a server on this machine has to start."""
_LOOK_SECONDS: Final = 0.1
"""Pause between two tries to reach it meanwhile."""
LIMITS: Final = {
    "retry_seconds": "seconds",
    "time_limit": "seconds",
    "memory_limit": "bytes",
    "file_limit": "bytes",
    "open_files_limit": "",
    "pending_limit": "seconds",
    "min_items": "",
    "max_errors": "",
    "good_reasons": "list",
}
"""Limits of jobs, and their units. The API's names: fixed."""
_WORDS: Final = frozenset({"label", "environment"})
"""Settings of a project that are words, not limits."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Units of times that are typed."""
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)
"""A time that is typed: a number, with one of _UNITS."""
_SECONDS_A_MINUTE: Final = 60
_SECONDS_AN_HOUR: Final = 3600


def here() -> ScrapyProject | None:
    """Return the Scrapy project of the current folder. None: there is none."""
    return find_project(Path.cwd())


def connect(target: DeployTarget) -> PlatformClient | ScrapydClient:
    """Return a client for the server, whichever of the two APIs it has. One on this machine that does not listen yet
    has some seconds to start. Raises ServerUnreachable or ServerRefused."""
    client = PlatformClient(target)
    try:
        _call_first(client)
    except ServerRefused as error:
        if error.status != 404:
            raise
        scrapyd = ScrapydClient(target)
        scrapyd.get("daemonstatus")
        return scrapyd
    return client


def _call_first(client: PlatformClient) -> None:
    deadline: float | None = None
    while True:
        try:
            client.call("GET", "/jobs", query={"limit": 1})
            return
        except ServerUnreachable as error:
            if not error.never_arrived or not is_loopback(urlsplit(client.session.url).hostname or ""):
                raise
            now = time.monotonic()
            if deadline is None:
                deadline = now + _START_SECONDS
                terminal.say(f"waiting up to {_START_SECONDS:g} seconds for a server at {client.session.url}")
            elif now > deadline:
                raise
            time.sleep(_LOOK_SECONDS)


def connect_platform(named: str | None, project: ScrapyProject | None) -> PlatformClient:
    """Return a client for a server with the platform's own API. Raises BadInput if it is a Scrapyd."""
    client = connect(choose_target(named, project))
    if isinstance(client, ScrapydClient):
        raise BadInput(
            f"{client.session.url} is a Scrapyd, which cannot do this. It can with deploy, jobs start and monitor; "
            "`gossamer scrapyd` in its place can do all."
        )
    return client


def connect_project(named: str | None, project: str | None) -> tuple[PlatformClient, str]:
    """Return a client for a server with the platform's own API, and the project's name there. Raises BadInput."""
    found = here()
    client = connect_platform(named, found)
    return client, project_name(project, client.target, found)


def project_name(named: str | None, target: DeployTarget, project: ScrapyProject | None) -> str:
    """Return the project's name on the server. Raises BadInput if nothing names it."""
    name = named or target.project or (project.default_name() if project else "")
    if not name:
        raise BadInput(
            "there is no Scrapy project here (no scrapy.cfg). Change into its folder, or add --project NAME."
        )
    return name


def pairs(typed: Iterable[str], flag: str) -> dict[str, str]:
    """Parse the values of an option such as -a NAME=VALUE. Raises BadInput."""
    found: dict[str, str] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"{flag}: cannot read {text!r:.80}. Write NAME=VALUE.")
        found[name.strip()] = value
    return found


class ProgressLine:
    """One line on a terminal's standard error that shows how much was sent. Elsewhere it shows nothing."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        self._text = text
        self._is_shown = sys.stderr.isatty() and not quiet
        self._percent = -1

    def show(self, done: int, total: int) -> None:
        """Show that so many of all bytes were sent."""
        percent = 100 * done // max(total, 1)
        if not self._is_shown or percent == self._percent:
            return
        self._percent = percent
        state = f"{percent} %" if percent < 100 else "waiting for the server"
        sys.stderr.write(f"\r\x1b[K{self._text}: {state}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown and self._percent >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def size_text(count: int) -> str:
    """Return a number of bytes for a person."""
    if count < 1000:
        return f"{count} byte{'s' * (count != 1)}"
    unit = next((unit for unit in ("kB", "MB") if count < BYTES_BY_UNIT[unit] * 1000), "GB")
    return f"{count / BYTES_BY_UNIT[unit]:.1f} {unit}"


def limit_text(name: str, value: Any) -> str:
    """Return the value of a limit of jobs, by its name in the API, for a person."""
    if isinstance(value, list):
        return ", ".join(value)
    if name.endswith("_limit") and not value:
        return "none"
    if LIMITS.get(name) == "bytes":
        return size_text(value)
    return seconds_text(value) if LIMITS.get(name) == "seconds" else f"{value}"


def limit_value(name: str, text: str, flag: str) -> Any:
    """Return the value of a project's setting, by its name in the API, that a person has typed. Empty: null. Raises
    BadInput."""
    if not text:
        return None
    if LIMITS.get(name) == "seconds":
        return span_seconds(text, f"{flag} {name}")
    if name in _WORDS:
        return text
    if LIMITS.get(name) == "list":
        return [part.strip() for part in text.split(",")]
    found = SIZE.fullmatch(text)
    if found is None or (found[2] and LIMITS.get(name) != "bytes"):
        example = "a number of bytes such as 512MB" if LIMITS.get(name) == "bytes" else "a number"
        raise BadInput(f"{flag} {name}: cannot read {text!r:.40}. Write {example}.")
    number = float(found[1]) * BYTES_BY_UNIT[found[2] or "B"]
    return int(number) if number.is_integer() else number


def span_seconds(text: str, flag: str) -> float:
    """Return the seconds of a time such as 15m. Raises BadInput."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise BadInput(f"{flag}: cannot read {text!r:.40}. Write a number and a unit, such as 90s, 15m, 6h or 1d.")
    return float(found[1]) * _UNITS[found[2] or "s"]


def seconds_text(seconds: float) -> str:
    """Return a duration for a person: `12 s`, `3:05 min`, `2:10 h`."""
    whole = max(0, round(seconds))
    if whole < _SECONDS_A_MINUTE:
        return f"{whole} s"
    if whole < _SECONDS_AN_HOUR:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def parsed_time(text: str | None) -> datetime | None:
    """Return a time of the API."""
    return None if text is None else datetime.fromisoformat(text)


def zone_text() -> str:
    """Return the name of the time zone in which times are shown, that of this machine."""
    return datetime.now().astimezone().tzname() or "local time"


def time_text(text: str | None) -> str:
    """Return a time of the API as a person here reads it: today's without the date."""
    at = parsed_time(text)
    if at is None:
        return "-"
    local = at.astimezone()
    is_today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def moment_text(text: str | None) -> str:
    """Return a time of the API with the name of its zone."""
    return "-" if text is None else f"{time_text(text)} {zone_text()}"


def full_time_text(text: str, zone: str = "") -> str:
    """Return a time of the API with its date and its distance from UTC, in this zone. Empty, or one that this machine
    does not know: in that of this machine."""
    known: ZoneInfo | None = None
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = ZoneInfo(zone) if zone else None
    at = datetime.fromisoformat(text).astimezone(known)
    return at.isoformat(" ", "seconds" if at.second else "minutes")


def runtime_text(job: Mapping[str, Any]) -> str:
    """Return how long a job has run, or runs."""
    started, ended = parsed_time(job["started_at"]), parsed_time(job["ended_at"])
    if started is None:
        return "-"
    return seconds_text(((ended or datetime.now(UTC)) - started).total_seconds())

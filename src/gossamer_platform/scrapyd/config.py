"""Configuration of `gossamer scrapyd`: Scrapyd's files, options and environment variables.

Fixed: the names of files, sections, options and variables, their defaults and their precedence, which are Scrapyd's.
An option with which Scrapyd loads a class by its dotted path is refused unless it has the default, because a class of
Scrapyd's would not work here. Options of our own may be added; none may have a name that Scrapyd uses.
"""

import configparser
import glob
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from gossamer.errors import BadInput
from gossamer.net.guard import Network, parse_networks
from gossamer.platform_client.secret_variables import SCRAPYD_SECRETS, read_secret
from gossamer_platform.node.users import parse_project_users

T = TypeVar("T")

_SECTION: Final = "scrapyd"
_CLASSES: Final = {
    "application": "scrapyd.app.application",
    "spiderqueue": "scrapyd.spiderqueue.SqliteSpiderQueue",
    "poller": "scrapyd.poller.QueuePoller",
    "launcher": "scrapyd.launcher.Launcher",
    "runner": "scrapyd.runner",
    "webroot": "scrapyd.website.Root",
    "eggstorage": "scrapyd.eggstorage.FilesystemEggStorage",
}
"""Options that name a class, with their defaults."""
_JOB_STORAGES: Final = {"scrapyd.jobstorage.MemoryJobStorage", "scrapyd.jobstorage.SqliteJobStorage"}
"""Both are accepted: ended jobs are kept in any case."""
_PRIVATE: Final = re.compile(r"(?m)^\s*(password|database_url|crawl_service_token)\s*[=:]")
"""Line of a file that contains a password."""
SERVICES: Final = {
    "schedule.json": "scrapyd.webservice.Schedule",
    "cancel.json": "scrapyd.webservice.Cancel",
    "status.json": "scrapyd.webservice.Status",
    "addversion.json": "scrapyd.webservice.AddVersion",
    "listprojects.json": "scrapyd.webservice.ListProjects",
    "listversions.json": "scrapyd.webservice.ListVersions",
    "listspiders.json": "scrapyd.webservice.ListSpiders",
    "delproject.json": "scrapyd.webservice.DeleteProject",
    "delversion.json": "scrapyd.webservice.DeleteVersion",
    "listjobs.json": "scrapyd.webservice.ListJobs",
    "daemonstatus.json": "scrapyd.webservice.DaemonStatus",
}
"""Endpoints and the classes that serve them in Scrapyd. An empty class switches an endpoint off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapydConfig:
    """Configuration in force. Defaults are Scrapyd's."""

    bind_address: str = "127.0.0.1"
    http_port: int = 6800
    unix_socket_path: str = ""
    username: str = ""
    password: str = ""
    max_proc: int = 0
    """Jobs at a time. 0: `max_proc_per_cpu` for each CPU."""
    max_proc_per_cpu: int = 4
    eggs_dir: str = "eggs"
    logs_dir: str = "logs"
    items_dir: str = ""
    """Folder or address for items. Empty: items are not kept."""
    jobs_dir: str = ""
    """Folder for Scrapy's JOBDIR. Empty: jobs have none."""
    jobs_to_keep: int = 5
    """Jobs of each spider whose log and items are kept. A job group counts as one job."""
    dbs_dir: str = "dbs"
    finished_to_keep: int = 100
    """Ended jobs that are shown. `gossamer scrapyd` deletes older ones from its database a day after their end, when
    they have neither log nor items any more."""
    node_name: str = ""
    prefix_header: str = "x-forwarded-prefix"
    trusted_proxies: tuple[Network, ...] = ()
    """Proxies whose X-Forwarded-For names the client. Not in Scrapyd."""
    debug: bool = False
    """True: a fault of the server is answered with its traceback."""
    stop_grace: float = 120.0
    """Seconds that a cancelled job has to end by itself before its processes are killed. Not in Scrapyd."""
    deploy_wait: float = 600.0
    """Seconds after which `addversion.json` answers although the version is still being built. Not in Scrapyd."""
    listing_timeout: float = 120.0
    """Seconds that listing the spiders of a version may take. Not in Scrapyd."""
    build_timeout: float = 1800.0
    """Seconds that building an isolated environment may take. Not in Scrapyd."""
    database_url: str = ""
    """PostgreSQL database for the state. Empty: SQLite in `dbs_dir`. Not in Scrapyd."""
    secret_keys_file: str = ""
    """File with the keys for secrets, one a line. Empty: the environment names it, or there are none. Not in
    Scrapyd."""
    crawl_service: str = ""
    """Address of the crawl service to which schedules submit requests. Empty: there is none. Not in Scrapyd."""
    crawl_service_token: str = ""
    """Its token. Empty: it needs none. Not in Scrapyd."""
    run_settings: frozenset[str] | None = None
    """Settings of Scrapy that a client whose scope is `run` may give to a job. None: all. Not in Scrapyd."""
    project_users: range | None = None
    """Numbers of users of which each project gets one. None: jobs run as the server's user. Not in Scrapyd."""
    private_files: tuple[str, ...] = ()
    """Files of the operator's that contain a password or keys."""
    local_projects: Mapping[str, str]
    """Settings modules of projects without eggs, by name: the section `[settings]`."""
    services: frozenset[str] = frozenset(SERVICES)
    """Endpoints that are served."""

    @property
    def slots(self) -> int:
        """Jobs that run at a time."""
        return self.max_proc or (os.cpu_count() or 1) * self.max_proc_per_cpu

    @property
    def keeps_state(self) -> bool:
        """False if the state ends with the process: `dbs_dir` is `:memory:`, a word of Scrapyd's."""
        return self.dbs_dir != ":memory:"

    @property
    def has_local_items(self) -> bool:
        """True if items are kept in a folder, which clients can see."""
        return bool(self.items_folder)

    @property
    def items_folder(self) -> str:
        """Folder for items. Empty: they are not kept, or at an address such as s3://bucket/items."""
        path = self.items_dir.removeprefix("file://")
        return "" if "://" in path else path


def scrapyd_files() -> list[str]:
    """Return the configuration files in the order in which they are read; a later one takes precedence."""
    return [
        "/etc/scrapyd/scrapyd.conf",
        *sorted(glob.glob("/etc/scrapyd/conf.d/*")),
        "scrapyd.conf",
        os.path.expanduser("~/.scrapyd.conf"),
        *(str(path) for path in [_closest_scrapy_cfg(Path.cwd())] if path is not None),
    ]


def _closest_scrapy_cfg(folder: Path) -> Path | None:
    return next((path for place in (folder, *folder.parents) if (path := place / "scrapy.cfg").exists()), None)


def load(files: Sequence[str], environment: Mapping[str, str]) -> ScrapydConfig:
    """Return the configuration of these files and variables. Raises BadInput with the option and the reason."""
    parser = configparser.ConfigParser()
    try:
        found = parser.read(files)
        if not parser.has_section(_SECTION):
            parser.add_section(_SECTION)
        config = _load(parser, environment)
    except configparser.Error as error:
        raise BadInput(f"the configuration of Scrapyd cannot be read: {' '.join(str(error).split())}") from None
    private = [path for path in found if _PRIVATE.search(Path(path).read_text())]
    named = [environment.get(f"{name}_FILE", "") for name in SCRAPYD_SECRETS]
    return replace(config, private_files=(*private, *filter(None, [*named, config.secret_keys_file])))


def _load(parser: configparser.ConfigParser, environment: Mapping[str, str]) -> ScrapydConfig:
    _refuse_classes(parser)

    def get(option: str, read: Callable[[str], T], default: T) -> T:
        value = ""
        if (variable := f"SCRAPYD_{option.upper()}") in SCRAPYD_SECRETS:
            value = read_secret(environment, variable)
        elif option in _IN_ENVIRONMENT:
            value = environment.get(variable, "")
        value = value or parser.get(_SECTION, option, fallback="")
        if not value and not (read is str and parser.has_option(_SECTION, option)):
            return default  # only for text an option that is set to nothing differs from its default
        try:
            return read(value)
        except ValueError as error:
            raise BadInput(f"{option} of Scrapyd's configuration: {error}") from None

    config = ScrapydConfig(
        bind_address=get("bind_address", str, "127.0.0.1"),
        http_port=get("http_port", _port, 6800),
        unix_socket_path=get("unix_socket_path", str, ""),
        username=get("username", str, ""),
        password=get("password", str, ""),
        max_proc=get("max_proc", _count, 0),
        max_proc_per_cpu=get("max_proc_per_cpu", _count, 4),
        eggs_dir=get("eggs_dir", str, "eggs"),
        logs_dir=get("logs_dir", str, "logs"),
        items_dir=get("items_dir", str, ""),
        jobs_dir=get("jobs_dir", str, ""),
        jobs_to_keep=get("jobs_to_keep", _count, 5),
        dbs_dir=get("dbs_dir", str, "dbs"),
        finished_to_keep=get("finished_to_keep", _count, 100),
        node_name=get("node_name", str, "") or socket.gethostname(),
        prefix_header=get("prefix_header", str, "x-forwarded-prefix"),
        trusted_proxies=get("trusted_proxies", _networks, ()),
        debug=get("debug", _switch, False),
        stop_grace=get("stop_grace", _seconds, 120.0),
        deploy_wait=get("deploy_wait", _seconds, 600.0),
        listing_timeout=get("listing_timeout", _seconds, 120.0),
        build_timeout=get("build_timeout", _seconds, 1800.0),
        database_url=get("database_url", str, ""),
        secret_keys_file=get("secret_keys_file", str, ""),
        crawl_service=get("crawl_service", str, ""),
        crawl_service_token=get("crawl_service_token", str, ""),
        run_settings=get("run_settings", _setting_names, None),
        project_users=get("project_users", parse_project_users, None),
        local_projects=dict(parser.items("settings")) if parser.has_section("settings") else {},
        services=_services(parser),
    )
    if ":" in config.username:
        raise BadInput("username of Scrapyd's configuration contains a colon, which basic authentication cannot carry")
    return config


_IN_ENVIRONMENT: Final = frozenset({
    "bind_address", "http_port", "unix_socket_path", "username", "crawl_service", "trusted_proxies",
})  # fmt: skip
"""Options that an environment variable overrides, besides the secrets: SCRAPYD_USERNAME for `username`."""


def _refuse_classes(parser: configparser.ConfigParser) -> None:
    for option, default in _CLASSES.items():
        value = parser.get(_SECTION, option, fallback=default)
        if value != default:
            raise BadInput(f"{option} = {value}: `gossamer scrapyd` cannot load classes of Scrapyd; remove the option")
    storage = parser.get(_SECTION, "jobstorage", fallback="")
    if storage and storage not in _JOB_STORAGES:
        raise BadInput(f"jobstorage = {storage}: `gossamer scrapyd` keeps ended jobs itself; remove the option")


def _services(parser: configparser.ConfigParser) -> frozenset[str]:
    found = dict(SERVICES)
    if parser.has_section("services"):
        found.update(parser.items("services"))
    for name, path in found.items():
        if path and SERVICES.get(name) != path:
            raise BadInput(f"[services] {name} = {path}: `gossamer scrapyd` cannot load classes; remove the line")
    return frozenset(name for name, path in found.items() if path)


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise ValueError(f"{text} is no port; write a number from 0 to 65535")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(f"{text} is negative")
    return value


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return parse_networks(text.replace(",", " ").split())
    except BadInput as error:
        raise ValueError(str(error)) from None


def _setting_names(text: str) -> frozenset[str] | None:
    names = text.replace(",", " ").split()
    if names == ["all"]:
        return None
    wrong = next((name for name in names if name != "none" and not re.fullmatch(r"[A-Z][A-Z0-9_]*", name)), None)
    if wrong is not None or ("none" in names and len(names) > 1):
        raise ValueError(f"{wrong or text}: write names of settings such as LOG_LEVEL DOWNLOAD_DELAY, or all, or none")
    return frozenset(names) - {"none"}


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text} is no number of seconds")
    return value


def _switch(text: str) -> bool:
    try:
        return configparser.ConfigParser.BOOLEAN_STATES[text.lower()]
    except KeyError:
        raise ValueError(f"{text} is neither on nor off") from None

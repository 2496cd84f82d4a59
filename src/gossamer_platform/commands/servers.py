"""Commands that run Scrapy projects: `gossamer scrapyd` on one machine, `manager` and `node` on several.

Fixed: flags, environment variables and exit codes.
"""

import asyncio
import ctypes
import dataclasses
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from gossamer.cli import options, terminal
from gossamer.cli.commands.beside import PARENT_VARIABLE
from gossamer.cli.parser import option
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.dashboard import dashboard_address
from gossamer.errors import BadInput, GossamerError
from gossamer.extras import install_advice
from gossamer.net.credentials import has_password
from gossamer.platform_client.secret_variables import NODE_TOKEN, read_secret
from gossamer.policy.words import counted
from gossamer.telemetry import logs

_PR_SET_PDEATHSIG = 1  # Linux' number: fixed
_LIMIT_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SLOTS_PER_CPU = 4

_KeepLogs = Annotated[
    str,
    option(
        "--keep-logs",
        metavar="LIMIT",
        help="Keep logs for this time: 30d for days after the end of a job, 100 for the latest jobs of each spider, "
        "30d,100 or all. A project may have limits of its own.",
    ),
]
_KeepItems = Annotated[str, option("--keep-items", metavar="LIMIT", help="Keep items for this time, as --keep-logs.")]
_KeepJobs = Annotated[
    str,
    option("--keep-jobs", metavar="LIMIT", help="Keep ended jobs with all their files for this time, as --keep-logs."),
]
_ScrapydConf = Annotated[
    list[Path] | None,
    option(
        "--scrapyd-conf",
        metavar="FILE",
        help="Read this configuration file of Scrapyd, for example for username and password; may be repeated.",
        show_default=False,
    ),
]
_NodeLimit = Annotated[
    float,
    option(
        "--node-limit",
        metavar="SECONDS",
        min=1.0,
        max=86400.0,
        help="A node that cannot reach a manager for so long ends its jobs; a quarter later they are given to "
        "others. Must be the same for all managers.",
    ),
]
_Managers = Annotated[
    list[str],
    option(
        "--manager",
        "-m",
        metavar="URL",
        help="Address of a manager; may be repeated for several managers of one database.",
        show_default=False,
    ),
]
_Token = Annotated[
    str | None,
    option(
        "--token",
        metavar="TOKEN",
        help="Token with the scope node. A manager on this machine without a password needs none. Other users see "
        f"the command line: ${NODE_TOKEN}, or a file that ${NODE_TOKEN}_FILE names, is better.",
        show_default=False,
    ),
]
_Labels = Annotated[
    list[str] | None,
    option(
        "--label",
        metavar="WORD",
        help="Take also jobs that demand this label; may be repeated. Jobs without a label run on any node.",
        show_default=False,
    ),
]
_Store = Annotated[
    str,
    option(
        "--store",
        metavar="DIR|URL",
        help="Folder or fsspec address (s3://bucket/prefix) for versions, logs and items, which all managers "
        "must see; also for the database if there is no --database.",
    ),
]


@options.takes("log_level", "log_format")
def manager(
    *,
    store: _Store = "gossamer-store",
    database: Annotated[
        str | None,
        option(
            "--database",
            metavar="URL",
            help="Keep the state in this database: postgresql+psycopg://USER@HOST/NAME for any number of managers. An "
            "address with a password belongs into $SCRAPYD_DATABASE_URL or the file that $SCRAPYD_DATABASE_URL_FILE "
            "names. Default: SQLite in --store, for one manager.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None, option("--host", metavar="ADDRESS", help="Listen at this address. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, option("--port", metavar="PORT", min=0, max=65535, help="Listen at this port. Default: 6800.")
    ] = None,
    node_limit: _NodeLimit = _LIMIT_SECONDS,
    keep_logs: _KeepLogs = "all",
    keep_items: _KeepItems = "all",
    keep_jobs: _KeepJobs = "all",
    crawl_service: Annotated[
        str | None,
        option(
            "--crawl-service",
            metavar="URL",
            help="Crawl service, of gossamer up or serve, to which schedules submit crawl requests. "
            "$SCRAPYD_CRAWL_SERVICE_TOKEN is its token. Also $SCRAPYD_CRAWL_SERVICE.",
            show_default=False,
        ),
    ] = None,
    scrapyd_conf: _ScrapydConf = None,
    **given: Any,
) -> None:
    """Run a manager of Scrapy projects, for nodes anywhere. It has Scrapyd's interface, and /v1.

    SCRAPYD_DATABASE_URL_FILE=database-url gossamer manager --host 0.0.0.0

    The manager runs no job itself: start `gossamer node` on each machine that does.
    """
    _set_up_log(given)
    place = store if "://" in store else str(Path(store).absolute())
    kept = {"--keep-logs": keep_logs, "--keep-items": keep_items, "--keep-jobs": keep_jobs}
    given_options = {"database_url": database, "bind_address": host, "http_port": port, "crawl_service": crawl_service}
    run_loop(_run_manager(_conf_files(scrapyd_conf), place, given_options, (node_limit, kept)))


async def _run_manager(
    files: list[Path], store: str, given: dict[str, Any], limits: tuple[float, dict[str, str]]
) -> None:
    """Run a manager. `given`: options of the configuration, None where the command line has none."""
    if has_password(given["database_url"] or ""):
        terminal.say("Other users can read the password of --database. Set it in $SCRAPYD_DATABASE_URL.")
    try:
        from gossamer_platform.scrapyd.config import load
        from gossamer_platform.serving.manager import ManagerOptions, run_manager
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    # Of logs and items, only their pages are on the server: they are kept in the store.
    folders: dict[str, Any] = {"eggs_dir": f"{store}/eggs", "logs_dir": "logs", "items_dir": "items"}
    typed = {name: value for name, value in given.items() if value is not None}
    config = dataclasses.replace(load(list(map(str, files)), os.environ), **folders, **typed)

    is_beside = PARENT_VARIABLE in os.environ

    def ready(address: str) -> None:
        if is_beside:
            terminal.print_result(address)
            return
        is_open = config.bind_address in ("0.0.0.0", "::")  # noqa: S104 (the address of all interfaces)
        port = address.rpartition(":")[2]
        elsewhere = f", on other machines --manager http://{socket.gethostname()}:{port} --token" if is_open else ""
        terminal.print_stderr(
            f"The manager is at {address}. To run jobs: gossamer node --manager {address}{elsewhere}. Ctrl-C stops the "
            "manager, not the jobs."
        )
        terminal.print_stderr(f"  dashboard  {dashboard_address(address)}")

    limit_seconds, kept = limits
    work = ManagerOptions(config, store, _retention(kept), limit_seconds)
    await _until_stopped(lambda stopping: run_manager(work, stopping=stopping, ready=ready))
    if not is_beside:
        terminal.say("Stopped. Jobs that were running go on at their nodes.")


def _retention(kept: dict[str, str]) -> Any:
    from gossamer_platform.manager.retention import parse_limits
    from gossamer_platform.state.retention import RetentionPolicy

    found = []
    for name, text in kept.items():
        try:
            found.append(parse_limits(text))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
    return RetentionPolicy(*found)


@options.takes("log_level", "log_format")
def node(
    *,
    managers: _Managers,
    token: _Token = None,
    slots: Annotated[
        int | None,
        option(
            "--slots", "-n", metavar="N", min=1, max=10_000, help="Jobs at a time. Default: 4 for each CPU.",
            show_default=False,
        ),
    ] = None,
    labels: _Labels = None,
    name: Annotated[
        str | None,
        option(
            "--name", metavar="NAME", help="Name of the node. Default: that of the machine.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path, option("--folder", "-d", metavar="DIR", help="Folder for jobs that run, their files and code.")
    ] = Path("gossamer-node"),
    project_users: Annotated[
        str | None,
        option(
            "--project-users",
            metavar="on|off|FIRST-LAST",
            help="Run the jobs of each project as a user of its own, with a number from this range (on: "
            "70000-79999). Default: on where the node runs as root, else off.",
            show_default=False,
        ),
    ] = None,
    **given: Any,
) -> None:  # fmt: skip
    """Run the jobs of a manager on this machine. The manager may be elsewhere.

    GOSSAMER_NODE_TOKEN_FILE=node-token gossamer node --manager http://manager.example:6800

    Ctrl-C or SIGTERM stops the node; its jobs run on, and the next start in the same folder continues with them. After
    the manager's --node-limit other nodes get them.
    """
    _set_up_log(given)
    chosen = socket.gethostname() if name is None else name
    if not _NAME.fullmatch(chosen):
        raise BadInput(f"--name: {chosen!r} may have up to 64 letters, digits, dots, hyphens and underscores")
    for label in labels or []:
        if not _NAME.fullmatch(label):
            raise BadInput(f"--label: {label!r} may have up to 64 letters, digits, dots, hyphens and underscores")
    from gossamer.platform_client.targets import check_server_address  # here, because the other commands need no client

    for address in managers:
        try:
            check_server_address(address)
        except BadInput as error:
            raise BadInput(f"--manager: {error}") from None
    count = slots or (os.cpu_count() or 1) * _SLOTS_PER_CPU
    secret = read_secret(os.environ, NODE_TOKEN) if token is None else token
    if token is not None and project_users != "off" and os.geteuid() == 0:
        terminal.say(f"Jobs can read --token from the command line. Set it in ${NODE_TOKEN} instead.")
    run_loop(_run_node(tuple(managers), secret, chosen, folder.absolute(), count, tuple(labels or []), project_users))


async def _run_node(
    managers: tuple[str, ...],
    token: str,
    name: str,
    folder: Path,
    slots: int,
    labels: tuple[str, ...],
    project_users: str | None,
) -> None:
    try:
        from gossamer_platform.node.users import parse_project_users
        from gossamer_platform.serving.node import NodeOptions, run_node
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    limits = [_LIMIT_SECONDS]
    is_beside = PARENT_VARIABLE in os.environ

    def ready(limit_seconds: float) -> None:
        limits.append(limit_seconds)
        if not is_beside:
            most = counted(slots, "job")
            terminal.print_stderr(f"The node {name} runs up to {most} at a time for {' or '.join(managers)}.")

    default = "on" if os.geteuid() == 0 else "off"
    users = parse_project_users(default if project_users is None else project_users)
    must_separate = project_users is not None
    work = NodeOptions(managers, token, name, folder, slots, labels, users, must_separate)
    await _until_stopped(lambda stopping: run_node(work, stopping=stopping, ready=ready))
    again, how = ("gossamer up --platform", "Scrapy jobs") if is_beside else ("the node", "Stopped. Jobs")
    terminal.say(f"{how} go on for up to {limits[-1]:g} seconds; start {again} again to continue with them.")


@options.takes("log_level", "log_format")
def scrapyd(
    *,
    folder: Annotated[
        Path | None,
        option(
            "--folder", "-d", metavar="DIR", help="Work in this folder instead of the current one.", show_default=False
        ),
    ] = None,
    scrapyd_conf: _ScrapydConf = None,
    **given: Any,
) -> None:
    """Run Scrapy projects on this machine, in place of Scrapyd. Port, folders and clients are the same.

    gossamer scrapyd

    Reads scrapyd.conf as Scrapyd does: http_port (6800) is the port, and items_dir = items keeps the items of jobs.
    Ctrl-C or SIGTERM stops the server; jobs run on, and the next start in the same folder continues with them.
    """
    _set_up_log(given)
    files = _conf_files(scrapyd_conf)
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            raise BadInput(f"--folder: cannot work in {folder}: {error.strerror}") from None
    run_loop(_run_scrapyd(files))


async def _run_scrapyd(files: list[Path]) -> None:
    try:
        from gossamer_platform.scrapyd.config import load, scrapyd_files
        from gossamer_platform.serving.scrapyd import run_scrapyd
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    config = load([*scrapyd_files(), *map(str, files)], os.environ)

    def ready(address: str) -> None:
        terminal.print_stderr(
            f"Scrapyd's interface is at {address}. Up to {counted(config.slots, 'job')} at a time. Ctrl-C stops the "
            "server, not the jobs."
        )
        if address.startswith("http:"):  # no browser opens a Unix socket
            terminal.print_stderr(f"  dashboard  {dashboard_address(address)}")

    await _until_stopped(lambda stopping: run_scrapyd(config, stopping=stopping, ready=ready, say=terminal.say))
    later = "no later start knows of them, because dbs_dir is :memory:."
    if config.keeps_state:
        later = "the next start in this folder continues with them."
    terminal.say(f"Stopped. Jobs that were running go on; {later}")


# --- parts of the commands -----------------------------------------------------------------------------------------


def _conf_files(given: list[Path] | None) -> list[Path]:
    files = [path.absolute() for path in given or []]
    for path in files:
        if not path.is_file():
            raise BadInput(f"--scrapyd-conf: there is no file {path}")
    return files


def _set_up_log(given: dict[str, Any]) -> None:
    settings = options.load_settings(given)
    level = settings.log_level if "log_level" in settings.given else options.SERVICE_LOG_LEVEL
    logs.set_up(level, style=settings.log_format)


async def _until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` until it ends because of Ctrl-C or SIGTERM. Raises its first error."""
    if PARENT_VARIABLE in os.environ:
        _end_with_parent(int(os.environ.pop(PARENT_VARIABLE)))
    stopping = asyncio.Event()
    with Interruption(stopping.set, lambda _: None) as interruption:
        try:
            await work(stopping)
        except* GossamerError as errors:
            raise _first_error(errors) from None
        except* asyncio.CancelledError:
            if not interruption.was_interrupted:
                raise


def _end_with_parent(parent: int) -> None:
    """Let the kernel send this process SIGTERM when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _first_error(errors: BaseExceptionGroup) -> BaseException:
    first = errors.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first


def _missing(error: ModuleNotFoundError) -> BadInput:
    return BadInput(f"jobs of Scrapy projects need {error.name}: {install_advice('platform')}")

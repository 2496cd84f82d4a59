"""`gossamer deploy`: builds the Scrapy project of the current folder, sends it to a server, waits until it is ready.

Fixed: flags, exit codes, and the fields of `--json`.
"""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from gossamer.cli import options, targets, terminal
from gossamer.cli.parser import argument, option
from gossamer.errors import BadInput, GossamerError
from gossamer.net.credentials import hide_secrets
from gossamer.platform_client.http import ServerRefused
from gossamer.platform_client.packaging import BuiltArtefact, build_artefact, version_name
from gossamer.platform_client.platform import PlatformClient
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.targets import DeployTarget, ScrapyProject, choose_target, with_credentials
from gossamer.policy.words import counted
from gossamer.storage.files import write_whole
from gossamer_platform.lifecycle import EnvironmentKind

_SHOWN_SPIDERS = 20
"""Spiders that are listed after a deployment."""
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_BROKEN = (0, 400, 422)
"""Statuses of an answer that means: the artefact itself is at fault. 0: an error of Scrapyd. Fixed."""

TargetArgument = Annotated[
    str | None,
    argument(
        metavar="[TARGET]",
        help="Server: the NAME of a section deploy:NAME of scrapy.cfg, or an address. Unset: GOSSAMER_PLATFORM_URL, "
        "else the section deploy, else http://localhost:6800.",
        show_default=False,
    ),
]
VersionOption = Annotated[
    str | None,
    option(
        "--version",
        metavar="NAME|GIT|HG",
        help="Name of the version. GIT: from git describe and the branch; HG: from Mercurial. Unset: that of "
        "scrapy.cfg, else the time.",
        show_default=False,
    ),
]
All = Annotated[bool, option("--all", "-a", help="Deploy to all targets of scrapy.cfg.")]
List = Annotated[bool, option("--list", "-l", help="List the targets of scrapy.cfg, and end.")]
Egg = Annotated[
    Path | None,
    option("--egg", metavar="FILE", help="Send this egg or wheel instead of building one.", show_default=False),
]
Build = Annotated[
    Path | None,
    option("--build", metavar="FILE", help="Write the artefact into a file, and send nothing.", show_default=False),
]
Environment = Annotated[
    EnvironmentKind | None,
    option(
        "--environment",
        help="Where its jobs run: with the server's packages, or in a virtual environment of the project's "
        "requirements. Unset: as the server's project says.",
        metavar="shared|isolated",
        show_default=False,
    ),
]


def deploy(
    target: TargetArgument = None,
    project: targets.Project = None,
    version: VersionOption = None,
    *,
    everywhere: All = False,
    list_targets: List = False,
    egg: Egg = None,
    environment: Environment = None,
    build_only: Build = None,
    quiet: options.Quiet = False,
    json: targets.Json = False,
) -> None:
    """Deploy the Scrapy project of this folder. Waits until its spiders are listed.

    gossamer deploy

    gossamer deploy production --version GIT

    A project with a pyproject.toml that builds it becomes a wheel, others an egg. The version becomes the project's
    default only if its spiders can be listed. Otherwise the command shows the reason and ends with exit code 1, and the
    version before stays. The server may also be a Scrapyd.

    With --environment isolated a node installs the project's requirements for it alone, also those of requirements.txt
    beside scrapy.cfg.

    Targets are sections of scrapy.cfg: deploy or deploy:NAME with url, project, version, username and password, or
    token. $NAME in a value stands for an environment variable. GOSSAMER_PLATFORM_URL and GOSSAMER_PLATFORM_TOKEN (or
    GOSSAMER_PLATFORM_USERNAME and GOSSAMER_PLATFORM_PASSWORD) name a server without scrapy.cfg.
    """
    here = targets.here()
    if list_targets:
        _list_targets(here, json=json)
        return
    if here is None and egg is None:
        raise BadInput(
            f"there is no Scrapy project in {Path.cwd()}: no scrapy.cfg here or above. Change into the project's "
            "folder. `scrapy startproject NAME` makes a new one."
        )
    if everywhere and target:
        raise BadInput("--all: name no target beside it")
    if everywhere and not (here and here.targets):
        raise BadInput("--all: scrapy.cfg has no targets. Add a section [deploy:NAME] with url = http://…")
    if everywhere and here:
        wanted = [with_credentials(each) for each in here.targets.values()]
    else:
        wanted = [choose_target(target, here)]
    if build_only is not None:
        _write_artefact(here, build_only, version or wanted[0].version)
        return
    source = _Source(here, egg, environment)
    _deploy_all(wanted, source, project, version, quiet=quiet, json=json)


class _Source(NamedTuple):
    """Code that is deployed, and where it is to run."""

    here: ScrapyProject | None
    egg: Path | None
    environment: EnvironmentKind | None


def _deploy_all(
    wanted: list[DeployTarget],
    source: _Source,
    project: str | None,
    version: str | None,
    *,
    quiet: bool,
    json: bool,
) -> None:
    reports = []
    for each in wanted:
        try:
            reports.append(_deploy_to(each, source, project, version, quiet=quiet or json))
        except GossamerError as error:
            if len(wanted) == 1 and not (isinstance(error, ServerRefused) and error.status in _BROKEN):
                raise
            reports.append({"target": each.name or each.url, "url": each.url, "state": "failed", "reason": str(error)})
            if not json:
                _show_failure(error, source.here)
    if json:
        terminal.print_json(reports if len(wanted) > 1 else reports[0])
    if any(report["state"] == "failed" for report in reports):
        raise SystemExit(1)


def _show_failure(error: GossamerError, here: ScrapyProject | None) -> None:
    """Print why a version was not deployed: the details first, then, at the end, the reason and what to do."""
    *details, reason = str(error).rstrip().splitlines() or [""]
    for line in details:
        terminal.print_stderr(line)
    terminal.say(f"not deployed; the project's other versions are as they were. {reason}")
    if missing := _MISSING_MODULE.match(reason):
        terminal.print_stderr(_advice_for_missing(missing[1].partition(".")[0], here))


def _advice_for_missing(name: str, here: ScrapyProject | None) -> str:
    """Return what to do about a module that the server could not import."""
    own = here and next((path for path in (here.folder / f"{name}.py", here.folder / name) if path.exists()), None)
    if own is None:
        return (
            f"{name} is not on the server. If it is a package of others: name the distribution that contains it in "
            "requirements.txt beside scrapy.cfg, and deploy with --environment isolated."
        )
    if own.is_dir() and not (own / "__init__.py").exists():
        return f"{own} is not in what was deployed, because it has no __init__.py. Add an empty one."
    return (
        f"{own} is not in what was deployed. Name it in setup.py or pyproject.toml: py_modules for a module, packages "
        "for a folder."
    )


def _list_targets(project: ScrapyProject | None, *, json: bool) -> None:
    if project is None:
        raise BadInput("there is no scrapy.cfg here or above, so there are no targets")
    if json:
        terminal.print_json([{"name": each.name, "url": each.url} for each in project.targets.values()])
        return
    for each in project.targets.values():
        terminal.print_result(f"{each.name:20} {hide_secrets(with_credentials(each).url, web=True)}")
    if not project.targets:
        terminal.say("scrapy.cfg has no targets. Add a section [deploy] with url = http://localhost:6800/")


def _write_artefact(project: ScrapyProject | None, path: Path, version: str) -> None:
    if project is None:
        raise BadInput("--build: there is no Scrapy project here")
    built = build_artefact(project, version_name(version, project.folder))
    try:
        write_whole(path, built.content)
    except OSError as error:
        raise BadInput(f"--build: {path} cannot be written: {error.strerror}") from None
    terminal.say(f"{path}: {f'{built.kind} {built.how}'.strip()}, {targets.size_text(len(built.content))}")


def _deploy_to(
    target: DeployTarget, source: _Source, project: str | None, version: str | None, *, quiet: bool
) -> dict[str, Any]:
    """Deploy to one server, and return the report."""
    here, egg, environment = source
    client = targets.connect(target)  # before the build, which may take long
    name = targets.project_name(project, target, here)
    wanted = version_name(version or target.version, here.folder if here else Path.cwd())
    built = _artefact(here, egg, wanted, as_egg=isinstance(client, ScrapydClient))
    if not quiet:
        origin = f"{built.kind.title()} of {name} {built.how}".strip()
        terminal.print_stderr(f"{origin}: {targets.size_text(len(built.content))}")
    earlier = {} if quiet else _earlier_versions(client, name)
    progress = targets.ProgressLine(f"Sending to {client.session.url}", quiet=quiet)
    with contextlib.closing(_Cleared(progress)):
        if isinstance(client, PlatformClient):
            query = {"environment": environment.value} if environment else {}

            def show_sent(done: int, total: int) -> None:
                progress.show(done, total)
                if done == total:
                    terminal.exit_on_signal(
                        f"The server goes on with version {wanted} of {name}. To see its state: gossamer versions "
                        f"--project {name}"
                    )

            def show_building(reason: str) -> None:
                progress.clear()
                if not quiet:
                    trouble = f" So far: {reason}" if reason else ""
                    terminal.say(f"The server still builds version {wanted}. Its packages may take minutes.{trouble}")

            answer = client.deploy(name, wanted, built.content, show_sent, show_building, **query)
            terminal.exit_on_signal("Interrupted.")
            spiders, warnings = list(answer["spiders"] or []), list(answer.get("warnings") or [])
        elif environment is EnvironmentKind.ISOLATED:
            raise BadInput(f"--environment: {target.url} is a Scrapyd, which runs all projects with its own packages")
        else:
            warnings = []
            client.deploy(name, wanted, built.content, progress.show)
            spiders = list(client.get("listspiders", project=name, _version=wanted)["spiders"])
    if not quiet:
        _show(client, name, wanted, spiders)
        if wanted in earlier:
            terminal.say(f"It replaces the version {wanted} that {name} had{earlier[wanted]}.")
        for warning in warnings:
            terminal.say(f"Warning: {warning}")
        is_default = not isinstance(client, PlatformClient) or _is_default(client, name, str(answer["name"]))
        if spiders:
            one = f"gossamer jobs start {spiders[0]}"
            terminal.print_stderr(f"To run one: {one}" if is_default else f"For one job: {one} --version {wanted}")
    report = {"target": target.name or target.url, "url": client.session.url, "state": "ready", "reason": ""}
    return {**report, "project": name, "version": wanted, "spiders": spiders, "warnings": warnings}


def _earlier_versions(client: PlatformClient | ScrapydClient, project: str) -> dict[str, str]:
    """Return the ready versions of a project by name, with when they were deployed, for a sentence. Empty: there are
    none, or the token may not see them."""
    with contextlib.suppress(ServerRefused):
        if isinstance(client, ScrapydClient):
            return dict.fromkeys(client.get("listversions", project=project)["versions"], "")
        return {
            each["name"]: f", deployed {targets.moment_text(each['deployed_at'])}"
            for each in client.call("GET", "/versions", query={"project": project})
            if each["state"] == "ready"
        }
    return {}


class _Cleared:
    """Clears a line of progress, however the work ends."""

    def __init__(self, progress: targets.ProgressLine) -> None:
        self.close = progress.clear


def _artefact(project: ScrapyProject | None, egg: Path | None, version: str, *, as_egg: bool) -> BuiltArtefact:
    if egg is None:
        assert project is not None
        return build_artefact(project, version, as_egg=as_egg)
    try:
        content = egg.read_bytes()
    except OSError as error:
        raise BadInput(f"--egg: {egg} cannot be read: {error.strerror}") from None
    return BuiltArtefact(content, "wheel" if egg.suffix == ".whl" else "egg", f"from {egg}")


def _is_default(client: PlatformClient, project: str, deployed: str) -> bool:
    """Return whether jobs run the deployed version. Say which one they run if one is pinned or has a higher number."""
    with contextlib.suppress(GossamerError):  # the version is deployed, whatever becomes of this question
        for owner in client.call("GET", "/projects"):
            default = owner["default_version"]
            if owner["name"] == project and default not in (None, deployed):
                why = "which is pinned" if owner["is_pinned"] else "which is sorted after it"
                terminal.say(
                    f"Jobs of {project} still run {default}, {why}. To run this one: gossamer versions pin {deployed}"
                )
                return False
    return True


def _show(client: PlatformClient | ScrapydClient, project: str, version: str, spiders: list[str]) -> None:
    terminal.print_result(
        f"Version {version} of {project} is ready on {client.session.url}, with {counted(len(spiders), 'spider')}:"
    )
    for spider in spiders[:_SHOWN_SPIDERS]:
        terminal.print_result(f"  {spider}")
    if len(spiders) > _SHOWN_SPIDERS:
        terminal.print_result(f"  and {len(spiders) - _SHOWN_SPIDERS} others")

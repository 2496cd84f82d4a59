"""`gossamer domains`: how fast sites are fetched, changed live."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.control import domains as control
from gossamer.control.domains import parse_domain, parse_policy, policy_fields
from gossamer.errors import BadInput
from gossamer.model.crawl import BUILT_IN_POLICY, DomainPolicy, WhenBlacklisted
from gossamer.settings import Settings, load
from gossamer.wiring.service import ServiceContext

app = typer.Typer(
    help="Show and change how fast sites are fetched, and which are not fetched at all. In force within a second.",
    no_args_is_help=True,
    add_completion=False,
)

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="A registered domain, like example.com.")]
Json = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


@app.command("list")
def list_domains(
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Json = False,
) -> None:
    """Show the default policy and every domain's.

    gossamer domains list
    """
    settings = _settings(frontier, data_dir, config)
    default, policies = ask(settings, lambda cluster: cluster.frontier.domain_policies())
    if json:
        shown = {
            "default": policy_fields(default),
            "domains": {name: policy_fields(p) for name, p in sorted(policies.items())},
        }
        print(msgspec.json.encode(shown).decode())
        return
    table = Table("domain", *_COLUMNS, box=None, padding=(0, 2, 0, 0))
    table.add_row("(default)", *_cells(default, BUILT_IN_POLICY))
    for name, policy in sorted(policies.items()):
        table.add_row(name, *_cells(policy, None))
    Console(highlight=False).print(table)


@app.command("set")
def set_domain(
    domain: Annotated[
        str | None, typer.Argument(metavar="DOMAIN", help="A registered domain, like example.com.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="The policy of all domains that have none.")] = False,
    hits: Annotated[int | None, typer.Option("--hits", metavar="N", help="At most so many in any window.")] = None,
    window: Annotated[float | None, typer.Option("--window", metavar="S", help="Seconds.")] = None,
    scale: Annotated[
        float | None, typer.Option("--scale", metavar="X", help="Multiplies hits, 0 to 1; 0 pauses.")
    ] = None,
    moderated: Annotated[
        bool | None, typer.Option("--moderated/--bursts", help="Spaced evenly, or as fast as the window allows.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="domain|type|ip|type+ip", help="What shares the budget.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", metavar="N", help="Requests in flight.")] = None,
    when_blacklisted: Annotated[
        str | None,
        typer.Option(
            "--when-blacklisted", metavar="held|dropped", help="What becomes of requests of a blacklisted domain."
        ),
    ] = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Json = False,
) -> None:
    """Change a domain's policy or the default; what is not named stays as it is.

    gossamer domains set example.com --hits 10 --window 60
    """
    if (domain is None) == (not default):
        raise BadInput("name a domain, or --default, and not both")
    given = {
        "hits": hits,
        "window": window,
        "scale": scale,
        "moderated": moderated,
        "scope": scope,
        "concurrency": concurrency,
        "when_blacklisted": when_blacklisted,
    }
    changes = parse_policy(given, where=domain or "default")
    if changes == DomainPolicy():
        raise BadInput("nothing is to be changed; name --hits, --window, --scale or another option")
    settings = _settings(frontier, data_dir, config)
    _tell(domain, ask(settings, lambda cluster: control.change_policy(cluster.frontier, domain, changes)), json=json)


@app.command("remove")
def remove(
    domain: Domain,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Forget a domain's policy: the default is in force again. The blacklist stays as it is.

    gossamer domains remove example.com
    """
    ask(_settings(frontier, data_dir, config), lambda cluster: control.remove_policy(cluster.frontier, domain))
    print(f"{domain} has no policy of its own now.")


@app.command("blacklist")
def blacklist(
    domain: Domain,
    remove: Annotated[bool, typer.Option("--remove", help="Take it off the blacklist.")] = False,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Stop fetching a domain; its requests are held, or dropped where its policy or the default says so.

    gossamer domains blacklist example.com
    """
    settings = _settings(frontier, data_dir, config)

    async def change(cluster: ServiceContext) -> dict[str, WhenBlacklisted]:
        await control.set_blacklisted(cluster.frontier, domain, blacklisted=not remove)
        return await control.Blacklist(cluster.frontier).among([parse_domain(domain)])

    found = ask(settings, change)
    if remove:
        print(f"{domain} is fetched again.")
    else:
        print(f"{domain} is not fetched any more; its requests are {found[parse_domain(domain)]}.")


@app.command("load")
def load_file(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with blacklist, default and domains.")],
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Put a file's policies in the place of all there are.

    gossamer domains load policies.yaml
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    settings = _settings(frontier, data_dir, config)
    version = ask(settings, lambda cluster: control.replace_all(cluster.frontier, text))
    print(f"{path} is in force (version {version}).")


@app.command("dump")
def dump(
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Print all policies as YAML, as `load` takes it.

    gossamer domains dump
    """
    settings = _settings(frontier, data_dir, config)
    default, policies, _ = ask(settings, lambda cluster: control.snapshot(cluster.frontier))
    print(control.dump_policies(default, policies), end="")


def _settings(frontier: str | None, data_dir: Path | None, config: Path | None) -> Settings:
    return load({"frontier": frontier, "data_dir": data_dir}, config=config)


def _tell(domain: str | None, policy: DomainPolicy, *, json: bool) -> None:
    fields = policy_fields(policy)
    if json:
        print(msgspec.json.encode({"domain": domain, **fields}).decode())
    else:
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in fields.items())
        print(f"{domain or 'The default'}: {shown}")


_COLUMNS = {
    "hits": "hits",
    "window": "window",
    "scale": "scale",
    "even": "moderated",
    "scope": "scope",
    "parallel": "concurrency",
    "blacklisted": "blacklisted",
}
"""Headings, and what stands below them."""


def _cells(policy: DomainPolicy, else_: DomainPolicy | None) -> list[str]:
    fields = {**(policy_fields(else_) if else_ else {}), **policy_fields(policy)}
    return [_shown(fields.get(name)) for name in _COLUMNS.values()]


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
    return str(value)

"""`gossamer domains`: shows and changes how fast domains are fetched, in a running cluster.

A policy is the set of limits of one registered domain; the default policy applies to domains without one. Fixed: the
names of commands and flags, and the fields of `--json`, which are those of the policy file and the API
(control/domains.py).
"""

from pathlib import Path
from typing import Annotated, Any

from gossamer.cli import options, tables, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.cli.running import ask
from gossamer.control import domains as control
from gossamer.control.domains import parse_domain, parse_policy, policy_fields
from gossamer.errors import BadInput
from gossamer.model.crawl import BUILT_IN_POLICY, DomainPolicy, WhenBlacklisted
from gossamer.wiring.service import ServiceContext

app = CommandGroup(
    help="Show and change how fast each domain is fetched. Domains may also be blocked. A change takes effect within a "
    "second."
)

Domain = Annotated[str, argument(metavar="DOMAIN", help="A registered domain, like example.com.")]
OptionalDomain = Annotated[str | None, argument(metavar="DOMAIN", help="A registered domain, like example.com.")]
Default = Annotated[bool, option("--default", help="Change the policy of all domains without one.")]
Hits = Annotated[int | None, option("--hits", metavar="N", help="Most requests in a window of time.")]
Window = Annotated[float | None, option("--window", metavar="SECONDS", help="Length of that window.")]
Scale = Annotated[float | None, option("--scale", metavar="X", help="Factor from 0 to 1 for --hits. 0: pause.")]
Moderated = Annotated[
    bool | None,
    option("--moderated/--bursts", help="Space requests evenly, or send them as fast as the window allows."),
]
Scope = Annotated[
    str | None,
    option(
        "--scope",
        metavar="domain|type|ip|type+ip",
        help="Requests that share the limit. domain: all; type: those of one spider; ip: those from one public "
        "address; type+ip: those of one spider from one address.",
    ),
]
Concurrency = Annotated[int | None, option("--concurrency", metavar="N", help="Most requests in flight.")]
WhenBlacklistedOption = Annotated[
    str | None,
    option(
        "--when-blacklisted",
        metavar="held|dropped",
        help="What happens to the domain's requests while it is blacklisted: they wait, or they are dropped.",
    ),
]


@app.command("list")
@options.takes("frontier", "data_dir")
def list_domains(*, json: options.Json = False, **given: Any) -> None:
    """Show the default policy and the policies of all domains that have one.

    gossamer domains list

    The columns are the options of `gossamer domains set`: even is --moderated, parallel is --concurrency.
    """
    settings = options.load_settings(given)
    default, policies = ask(settings, lambda cluster: cluster.frontier.domain_policies())
    if json:
        shown = {
            "default": policy_fields(default),
            "domains": {name: policy_fields(policy) for name, policy in sorted(policies.items())},
        }
        terminal.print_json(shown)
        return
    table = tables.PlainTable("domain", *_COLUMNS)
    table.add_row("(default)", *_cells(default, BUILT_IN_POLICY))
    for name, policy in sorted(policies.items()):
        table.add_row(name, *_cells(policy, None))
    tables.show(table)


@app.command("set")
@options.takes("frontier", "data_dir")
def set_domain(
    domain: OptionalDomain = None,
    default: Default = False,
    hits: Hits = None,
    window: Window = None,
    scale: Scale = None,
    moderated: Moderated = None,
    scope: Scope = None,
    concurrency: Concurrency = None,
    when_blacklisted: WhenBlacklistedOption = None,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Change the policy of a domain, or the default. What is not named stays as it is.

    gossamer domains set example.com --hits 10 --window 60
    """
    if (domain is None) == (not default):  # neither or both
        raise BadInput("name either a domain or --default, for example: gossamer domains set example.com --hits 10")
    changes = parse_policy(
        {
            "hits": hits,
            "window": window,
            "scale": scale,
            "moderated": moderated,
            "scope": scope,
            "concurrency": concurrency,
            "when_blacklisted": when_blacklisted,
        },
        where=domain or "default",
    )
    if changes == DomainPolicy():
        raise BadInput("nothing to change is named. Add --hits, --window, --scale or another option.")
    settings = options.load_settings(given)
    fields = policy_fields(ask(settings, lambda cluster: control.change_policy(cluster.frontier, domain, changes)))
    if json:
        terminal.print_json({"domain": domain, **fields})
    else:
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in fields.items())
        terminal.print_result(f"{domain or 'The default'}: {shown}")


@app.command("remove")
@options.takes("frontier", "data_dir")
def remove(domain: Domain, **given: Any) -> None:
    """Remove the policy of a domain, so that the default applies to it. The blacklist stays as it is.

    gossamer domains remove example.com
    """
    ask(options.load_settings(given), lambda cluster: control.remove_policy(cluster.frontier, domain))
    terminal.print_result(f"{domain} has no policy of its own now.")


@app.command("blacklist")
@options.takes("frontier", "data_dir")
def blacklist(
    domain: Domain,
    remove: Annotated[bool, option("--remove", help="Take the domain off the blacklist.")] = False,
    **given: Any,
) -> None:
    """Stop fetching a domain; its requests wait, or are dropped if its policy or the default says so.

    gossamer domains blacklist example.com
    """

    async def change(cluster: ServiceContext) -> dict[str, WhenBlacklisted]:
        await control.set_blacklisted(cluster.frontier, domain, blacklisted=not remove)
        return await control.blacklisted_among(cluster.frontier, [parse_domain(domain)])

    blacklisted = ask(options.load_settings(given), change)
    if remove:
        terminal.print_result(f"{domain} is fetched again.")
    else:
        end = blacklisted[parse_domain(domain)]
        terminal.print_result(f"{domain} is not fetched any more; its requests are {end}.")


@app.command("load")
@options.takes("frontier", "data_dir")
def load_file(
    path: Annotated[Path, argument(metavar="FILE", help="YAML file with blacklist, default and domains.")],
    **given: Any,
) -> None:
    """Replace all policies by those of a file.

    gossamer domains load policies.yaml
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}. Name a YAML file of policies.") from None
    version = ask(options.load_settings(given), lambda cluster: control.replace_all(cluster.frontier, text))
    terminal.print_result(f"{path} is in force (version {version}).")


@app.command("dump")
@options.takes("frontier", "data_dir")
def dump(**given: Any) -> None:
    """Print all policies as YAML, in the form that `gossamer domains load` reads.

    gossamer domains dump
    """
    default, policies, _ = ask(options.load_settings(given), lambda cluster: control.snapshot(cluster.frontier))
    terminal.print_result(control.dump_policies(default, policies).removesuffix("\n"))


_COLUMNS = {
    "hits": "hits",
    "window": "window",
    "scale": "scale",
    "even": "moderated",
    "scope": "scope",
    "parallel": "concurrency",
    "blacklisted": "blacklisted",
}
"""Fields of a policy by the heading of their column."""


def _cells(policy: DomainPolicy, fallback: DomainPolicy | None) -> list[str]:
    """Return a policy's row in the table. Fields that it does not set come from `fallback`; None: they stay empty."""
    fields = {**(policy_fields(fallback) if fallback else {}), **policy_fields(policy)}
    return [_shown(fields.get(name)) for name in _COLUMNS.values()]


def _shown(value: Any) -> str:
    """Return the value of a field for a person."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
    return str(value)

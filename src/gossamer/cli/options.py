"""The options that several commands share: their flags, their panels in `--help`, and the settings that they set.

An option's help text is the description of its setting, with its default. To add an option, add it to `OPTIONS` and to
the `takes(...)` of each command that has it. Fixed: flags, which users' scripts hold.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

import msgspec

from gossamer.crawling.options import with_places
from gossamer.errors import BadInput
from gossamer.model.record import Destination
from gossamer.net.resolve import parse_override
from gossamer.settings import Settings, load
from gossamer.settings.rows import row_of
from gossamer.telemetry import logs
from gossamer.wiring.plan import MOST_NESTED, check_attrs, check_csv_guard

# Titles of the panels in `--help`, each a group of options.
WHAT = "What to crawl"
HOW_FAST = "How fast"
EXTRACT = "What to take from the pages"
OUTPUT = "Output"
REQUESTS = "Requests"
WHERE = "Where it runs"
DISPLAY = "Display"

SERVICE_LOG_LEVEL = "info"
"""Log level of `gossamer up` and `gossamer serve` if `log_level` is not set. Other commands log errors only, because
their terminal shows their output."""


class ParserCall(msgspec.Struct, frozen=True):
    """A call of `typer.Option` or `typer.Argument` that is made when Typer is needed: for the help, and for a command
    line that `run_plainly` leaves to it. Importing Typer takes a sixth of the time in which a crawl starts."""

    function: str
    flags: tuple[str, ...]
    described: dict[str, Any]
    """The call's named arguments."""

    def parameter(self, *default: Any) -> Any:
        """Return Typer's description of the parameter."""
        return getattr(import_module("typer"), self.function)(*default, *self.flags, **self.described)


def option(*flags: str, **described: Any) -> ParserCall:
    """Return an option of a command, for `Annotated`. Arguments as for `typer.Option`."""
    return ParserCall("Option", flags, described)


def argument(**described: Any) -> ParserCall:
    """Return a positional argument of a command, for `Annotated`. Arguments as for `typer.Argument`."""
    return ParserCall("Argument", (), described)


class SettingOption(msgspec.Struct, frozen=True):
    """A command-line option that sets a setting."""

    setting: str
    """Dotted name of the setting, as in `settings`."""
    flags: tuple[str, ...]
    type: Any
    """Type to which Typer converts the typed text."""
    panel: str
    metavar: str | None = None
    """Name of the value in the help. None: a flag without a value."""
    parse: Callable[[Any], Any] | None = None
    """Converts the typed value into that of the setting. None: the setting gets the typed value."""
    default: str | None = None
    """Default that the help text names if it is not that of the setting. Only text: the command must set it."""
    help: str | None = None
    """Help text. None: the description and the default of the setting."""

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the option as a parameter of a command."""
        row = row_of(self.setting)
        default = row.default if self.default is None else self.default
        help_text = self.help or (f"{row.description}. Default: {default}." if default else f"{row.description}.")
        if get_origin(self.type) is list and "repeated" not in help_text:
            help_text += " May be repeated."
        described = {"show_default": False, "rich_help_panel": self.panel, "metavar": self.metavar}
        call = option(*self.flags, help=help_text, **described)
        # Numbers are converted by the check of the settings, whose messages say which ones are allowed.
        kind = str if self.type in (int, float) else self.type
        # None is the default of every option, so that one that was not given leaves the setting to other sources.
        return _keyword(name, call, None, kind | None)

    def value(self, typed: Any) -> Any:
        """Convert the typed value into the value of the setting. None: the option was not given."""
        if typed is None or typed == []:
            return None
        return self.parse(typed) if self.parse else typed


def headers(typed: Iterable[str]) -> dict[str, str]:
    """Parse the values of --header. Raises BadInput."""
    found: dict[str, str] = {}
    for text in typed:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"--header: cannot read {text!r}. Write NAME:VALUE.")
        found[name.strip()] = value.strip()
    return found


def overrides(typed: Iterable[str]) -> dict[str, str]:
    """Parse the values of --resolve. Raises BadInput."""
    try:
        return dict(map(parse_override, typed))
    except BadInput as error:
        raise BadInput(f"--resolve: {error}") from None


def attrs(typed: str) -> dict[str, Any]:
    """Parse the JSON object of --attrs. Raises BadInput."""
    import json  # imported late: few commands need it

    try:
        value = json.loads(typed)
    except RecursionError:
        raise BadInput(f"--attrs: nested more than {MOST_NESTED} levels deep. Make the object flatter.") from None
    except ValueError as error:
        raise BadInput(f'--attrs: cannot read JSON: {error}. Write an object like {{"name": "value"}}.') from None
    if not isinstance(value, dict):
        raise BadInput(f'--attrs: {typed!r:.80} is not a JSON object. Write one like {{"name": "value"}}.')
    check_attrs(value)
    return value


_RECORDS_FLAGS = {"--items": "items", "--pages": "pages"}
"""Flags that belong to the -o before them, with the records that its output takes. Fixed: scripts hold them."""
_OUTPUT_OPTION = re.compile(r"-[a-zA-Z]*o|--output")
"""The option -o, alone or at the end of several short ones (`-qo`). The next argument is its value."""
_OUTPUT_WITH_VALUE = re.compile(r"-[a-zA-Z]*o.+|--output=.*", re.DOTALL)
"""The option -o with its value in the same argument. Both must be what the parser of the command line takes for it."""
_MARK = "\0"
"""Separates an output's path from its records between `bind_records` and `destinations`; no argument can hold it."""


def bind_records(arguments: Iterable[str]) -> list[str]:
    """Return the command line with each --items and --pages joined to the value of the -o before it.

    The parser of the command line does not keep the order of different options. Flags without an -o before them stay.
    """
    bound: list[str] = []
    last_output = -1  # index of the value of the last -o
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            bound += [argument, *rest]
        elif argument in _RECORDS_FLAGS and last_output >= 0:
            bound[last_output] += _MARK + _RECORDS_FLAGS[argument]
        else:
            bound.append(argument)
            if _OUTPUT_OPTION.fullmatch(argument) and (value := next(rest, None)) is not None:
                bound.append(value)
                last_output = len(bound) - 1
            elif _OUTPUT_WITH_VALUE.fullmatch(argument):
                last_output = len(bound) - 1
    return bound


def destinations(typed: Iterable[str]) -> tuple[Destination, ...]:
    """Parse the values of -o as `bind_records` leaves them."""
    found = []
    for text in typed:
        path, *records = text.split(_MARK)
        kinds = set(records)
        if len(kinds) > 1:
            found.append(Destination(path, "all"))
        else:
            found.append(Destination(path, kinds.pop() if kinds else "auto"))  # type: ignore[arg-type]
    return tuple(found)


OPTIONS = {
    "depth": SettingOption("crawl.depth", ("--depth",), int, WHAT, "N"),
    "max_pages": SettingOption("crawl.max_pages", ("--max-pages",), int, WHAT, "N"),
    "domain_max_pages": SettingOption("crawl.domain_max_pages", ("--domain-max-pages",), int, WHAT, "N"),
    "scope": SettingOption("crawl.scope", ("--scope",), str, WHAT, "domain|host|path|any"),
    "query_order": SettingOption("crawl.query_order", ("--query-order",), str, WHAT, "significant|ignored"),
    "allow_domain": SettingOption("crawl.allow_domain", ("--allow-domain",), list[str], WHAT, "DOMAIN", tuple),
    "allow": SettingOption("crawl.allow", ("--allow",), list[str], WHAT, "REGEX", tuple),
    "deny": SettingOption(
        "crawl.deny", ("--deny",), list[str], WHAT, "REGEX", tuple,
        help="Never follow links that match one of these regular expressions, even if they match --allow. They are "
        "searched as those of --allow.",
    ),
    "deny_extension": SettingOption("crawl.deny_extension", ("--deny-extension",), list[str], WHAT, "EXT", tuple),
    "pattern_max_pages": SettingOption("crawl.pattern_max_pages", ("--pattern-max-pages",), int, WHAT, "N"),
    "path_repeats": SettingOption("crawl.path_repeats", ("--path-repeats",), int, WHAT, "N"),
    "drop_parameter": SettingOption("crawl.drop_parameter", ("--drop-parameter",), list[str], WHAT, "NAME", tuple),
    "sitemaps": SettingOption("crawl.sitemaps", ("--sitemaps",), bool, WHAT),
    "follow_nofollow": SettingOption("crawl.follow_nofollow", ("--follow-nofollow",), bool, WHAT),
    "spider": SettingOption("crawl.spider", ("--spider",), str, WHAT, "NAME|FILE"),
    "priority": SettingOption("crawl.priority", ("--priority",), int, WHAT, "N"),
    "expires": SettingOption("crawl.expires", ("--expires",), str, WHAT, "TIME"),
    "rate": SettingOption("crawl.rate", ("--rate",), str, HOW_FAST, "HITS/SECONDS"),
    "domain_concurrency": SettingOption("crawl.domain_concurrency", ("--domain-concurrency",), int, HOW_FAST, "N"),
    "concurrency": SettingOption("worker.concurrency", ("--concurrency",), int, HOW_FAST, "N"),
    "processes": SettingOption("worker.processes", ("--processes",), int, HOW_FAST, "N|auto"),
    "output": SettingOption(
        "crawl.output", ("-o", "--output"), list[str], OUTPUT, "PATH", destinations,
        help="Where to write the pages and items; may be repeated. The ending selects the format: .jsonl, .jsonl.gz, "
        ".jsonl.zst, .csv, .json, .sqlite, .parquet, .warc or .warc.gz. Also an fsspec URL, a database "
        "(postgresql://, mysql://, opensearch://, redis://), or - for standard output. "
        "Default: pages.jsonl, or HOST.jsonl of a crawl from one URL.",
    ),
    "also_output": SettingOption(
        "crawl.output", ("-o", "--output"), list[str], OUTPUT, "PATH", destinations,
        help="Where to write the pages in addition to the bus, as for gossamer crawl.",
    ),
    "csv_guard": SettingOption("crawl.csv_guard", ("--csv-guard",), bool, OUTPUT),
    "extract": SettingOption("crawl.extract", ("--extract",), str, EXTRACT, "FILE"),
    "field": SettingOption("crawl.field", ("--field",), list[str], EXTRACT, "NAME=SELECTOR", tuple),
    "unique": SettingOption("crawl.unique", ("--unique",), list[str], EXTRACT, "FIELD", tuple),
    "each": SettingOption(
        "crawl.each", ("--each",), str, EXTRACT, "SELECTOR",
        help="CSS selector of one item of several on a page: the selectors of --field are applied inside it. Unset: "
        "one item for each page.",
    ),
    "assets": SettingOption("crawl.assets", ("--assets",), list[str], EXTRACT, "KIND,KIND", tuple),
    "assets_to": SettingOption("crawl.assets_to", ("--assets-to",), str, OUTPUT, "DIR"),
    "max_assets": SettingOption(
        "crawl.max_assets", ("--max-assets",), int, EXTRACT, "N",
        help="Queue at most this many assets. They do not count in --max-pages. Unset: no limit.",
    ),
    "assets_max_bytes": SettingOption("fetch.max_asset", ("--assets-max-bytes",), int, EXTRACT, "BYTES"),
    "links": SettingOption("crawl.links", ("--links",), bool, OUTPUT),
    "report": SettingOption("crawl.report", ("--report",), str, OUTPUT, "FILE.html"),
    "text": SettingOption("crawl.text", ("--text",), bool, OUTPUT),
    "markdown": SettingOption("crawl.markdown", ("--markdown",), bool, OUTPUT),
    "chunk": SettingOption("crawl.chunk", ("--chunk",), int, OUTPUT, "N"),
    "text_processes": SettingOption("text.processes", ("--processes",), int, HOW_FAST, "N"),
    "text_in": SettingOption("crawl.text_in", ("--text-in",), str, OUTPUT, "records|items|both"),
    "attrs": SettingOption("crawl.attrs", ("--attrs",), str, OUTPUT, "JSON", attrs),
    "resolve": SettingOption("fetch.resolve", ("--resolve",), list[str], REQUESTS, "HOST:ADDRESS", overrides),
    "allow_private": SettingOption("crawl.allow_private", ("--allow-private",), bool, REQUESTS),
    "allow_network": SettingOption("allow_networks", ("--allow-network",), list[str], REQUESTS, "CIDR", tuple),
    "ignore_robots": SettingOption("crawl.ignore_robots", ("--ignore-robots",), bool, REQUESTS),
    "robots_patience": SettingOption(
        "fetch.robots_patience", ("--robots-patience",), float, REQUESTS, "SECONDS",
        help="Seconds for which requests wait for the robots.txt of a site that answers 5xx or not at all; then they "
        "fail. Default: 300.",
    ),
    "insecure": SettingOption("crawl.insecure", ("--insecure",), bool, REQUESTS),
    "ca_file": SettingOption("fetch.ca_file", ("--ca-file",), str, REQUESTS, "FILE"),
    "user_agent": SettingOption("fetch.user_agent", ("--user-agent",), str, REQUESTS, "TEXT"),
    "contact": SettingOption("fetch.contact", ("--contact",), str, REQUESTS, "URL|E-MAIL"),
    "header": SettingOption("crawl.header", ("--header",), list[str], REQUESTS, "NAME:VALUE", headers),
    "cookie": SettingOption("crawl.cookie", ("--cookie",), str, REQUESTS, "TEXT"),
    "secret_header": SettingOption("crawl.secret_header", ("--secret-header",), list[str], REQUESTS, "NAME", tuple),
    "headers_for": SettingOption("crawl.headers_for", ("--headers-for",), list[str], REQUESTS, "DOMAIN", tuple),
    "proxy": SettingOption(
        "fetch.proxy", ("--proxy",), list[str], REQUESTS, "URL|FILE", tuple,
        help="Send all requests through this proxy: http://, https://, socks5:// or socks5h://, then "
        "[USER:PASSWORD@]HOST:PORT; or the name of a file with one such URL in each line. Requests take turns between "
        "several. May be repeated.",
    ),
    "egress": SettingOption("egress", ("--egress",), str, REQUESTS, "NAME"),
    "timeout": SettingOption("fetch.timeout", ("--timeout",), float, REQUESTS, "SECONDS"),
    "retries": SettingOption("fetch.retries", ("--retries",), int, REQUESTS, "N"),
    "host": SettingOption("service.host", ("--host",), str, WHERE, "ADDRESS"),
    "port": SettingOption("service.port", ("--port",), int, WHERE, "N"),
    "bus": SettingOption("bus", ("--bus",), str, WHERE, "streams|kafka://HOST:PORT"),
    "prefix": SettingOption("topics.prefix", ("--prefix",), str, WHERE, "NAME"),
    "frontier": SettingOption("frontier", ("--frontier",), str, WHERE, "URL"),
    "data_dir": SettingOption("data_dir", ("--data-dir",), Path, WHERE, "DIR"),
    "log_level": SettingOption("log_level", ("--log-level",), str, DISPLAY, "LEVEL", default=SERVICE_LOG_LEVEL),
    "log_format": SettingOption("log_format", ("--log-format",), str, DISPLAY, "human|json"),
}  # fmt: skip
"""Options by the name of the command's parameter. The order does not matter: a command names its own."""

Command = TypeVar("Command", bound=Callable[..., object])


def _keyword(name: str, call: ParserCall, default: Any, kind: Any) -> inspect.Parameter:
    """Return a keyword-only parameter of a command as Typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=call.parameter(default), annotation=kind)


_CONFIG = option(
    "--config",
    help="TOML file of settings. Without this option, gossamer.toml in the working folder is read if it exists.",
    show_default=False,
    rich_help_panel=WHERE,
    metavar="FILE",
)
_VERBOSE = option("--verbose", "-v", help="Log to standard error what happens.", rich_help_panel=DISPLAY)


def _records_parameter(name: str) -> inspect.Parameter:
    """Return --items or --pages as a parameter of a command."""
    call = option(
        f"--{name}",
        help=f"Write only {name} to the -o before this option. Both options: pages and items. Neither: .csv, .json and "
        ".sqlite take items if the crawl extracts any, else pages; the others take all.",
        show_default=False,
        rich_help_panel=OUTPUT,
    )
    return _keyword(name, call, None, bool | None)


def takes(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds options from `OPTIONS`, --config and --verbose to a command.

    The command gets their values as `**options` and passes them to `load_settings`. In its help they stand between its
    positional and its keyword-only parameters.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*arguments: Any, **typed: Any) -> Any:
            try:
                return command(*arguments, **typed)
            except BadInput as error:
                error.args = (_with_places(str(error), names, typed),)
                raise

        setattr(run, _TAKEN, names)
        return cast(Command, run)

    return decorate


_TAKEN = "__taken_options__"
"""Attribute of a command with the names that `takes` got."""


def describe_to_typer(command: Callable[..., Any]) -> None:
    """Give a command the signature that Typer reads: its own parameters and, if it `takes` options, theirs."""
    names: tuple[str, ...] | None = getattr(command, _TAKEN, None)
    added: list[inspect.Parameter] = []
    if names is not None:
        added = [OPTIONS[name].parameter(name) for name in names]
        added += [_keyword("config", _CONFIG, None, Path | None), _keyword("verbose", _VERBOSE, False, bool)]
        if "output" in names or "also_output" in names:
            after_output = 1 + next(at for at, one in enumerate(added) if one.name in ("output", "also_output"))
            added[after_output:after_output] = [_records_parameter(name) for name in ("items", "pages")]
    signature = inspect.signature(inspect.unwrap(command), eval_str=True)
    own = [_described(one) for one in signature.parameters.values()]
    if names is not None:
        own = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
    positional = [one for one in own if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    parameters = [*positional, *added, *own[len(positional) :]]
    # mypy does not know this attribute.
    setattr(command, "__signature__", signature.replace(parameters=parameters))  # noqa: B010


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter with Typer's description in place of a `ParserCall`."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, *notes = get_args(parameter.annotation)
    notes = [one.parameter() if isinstance(one, ParserCall) else one for one in notes]
    return parameter.replace(annotation=Annotated[kind, *notes])


# --- a crawl without Typer --------------------------------------------------------------------------------------------


def run_plainly(command: Callable[..., Any], arguments: Sequence[str]) -> int | None:
    """Run a command that takes URLs and options without Typer, and return its exit code. Raises GossamerError.

    None: Typer must read this command line, because it asks for help, has a mistake, or is written in a way that is not
    read here, such as several short options in one word. What both read means the same to both; a test compares them.
    """
    typed = read_plainly(command, bind_records(arguments))
    return None if typed is None else cast(int, command(**typed))


def read_plainly(command: Callable[..., Any], arguments: Iterable[str]) -> dict[str, Any] | None:
    """Return the arguments of a command that takes URLs and options, by name. None: see `run_plainly`."""
    values: dict[str, Any] = {"config": None, "verbose": False, "items": None, "pages": None}
    kinds: dict[str, tuple[str, Any]] = {"--config": ("config", Path)}
    kinds |= dict.fromkeys(_VERBOSE.flags, ("verbose", bool))
    for name in getattr(command, _TAKEN):
        values[name] = None
        kinds |= dict.fromkeys(OPTIONS[name].flags, (name, OPTIONS[name].type))
    for name, parameter in inspect.signature(inspect.unwrap(command)).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            values[name] = parameter.default
            kind, call = get_args(parameter.annotation)
            kinds |= dict.fromkeys(call.flags, (name, _LISTS.get(kind, kind)))
    urls: list[str] = []
    rest = iter(arguments)
    for word in rest:
        flag, equals, value = word.partition("=")
        if not word.startswith("-"):
            urls.append(word)
        elif flag not in kinds or (equals and not flag.startswith("--")):
            return None
        else:
            name, kind = kinds[flag]
            if kind is bool:
                if equals:
                    return None
                values[name] = True
                continue
            if not equals:
                value = next(rest, "--")
                if value.startswith("-") and value != "-":
                    return None
            if kind == list[str]:
                values[name] = [*(values[name] or ()), value]
            else:
                values[name] = Path(value) if kind is Path else value
    values["urls"] = urls or None
    return values


_LISTS: dict[Any, Any] = {list[str] | None: list[str], str | None: str}
"""Types of parameters that need not be given, with the type of what is typed."""


def _with_places(message: str, names: Iterable[str], typed: Mapping[str, Any]) -> str:
    """Return the message of an error, which names the settings file or the variable instead of an option that was not
    typed. `names`: options of the command."""
    untyped = {flag: OPTIONS[name].setting for name in names if not typed.get(name) for flag in OPTIONS[name].flags}
    return with_places(message, untyped, config=typed.get("config"))


def load_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings in force: the options of a command, else the environment, the file and the defaults.

    `options`: the `**options` of a command with `takes`. Raises BadInput.
    """
    for name in ("items", "pages"):
        if options.get(name):
            raise BadInput(f"--{name} belongs to the -o before it. Write, for example, -o {name}.csv --{name}.")
    values = {OPTIONS[name].setting: OPTIONS[name].value(typed) for name, typed in options.items() if name in OPTIONS}
    if options["verbose"]:
        values["log_level"] = "info"
    names = {option.setting: option.flags[-1] for name, option in OPTIONS.items() if name in options}
    settings = load(values, config=options["config"], names=names)
    if options.get("csv_guard"):
        check_csv_guard(settings)
    if options["verbose"]:
        logs.set_up(settings.log_level, style=settings.log_format)
    return settings


# Parameters that several commands have, but that set no setting.
AppId = Annotated[str, argument(metavar="APPID", help="Application of the crawl.")]
OneSpider = Annotated[
    str | None, option("--spider", metavar="NAME", help="Only the requests of this spider. Unset: all of them.")
]
Json = Annotated[bool, option("--json", help="Print the result as one JSON object.", rich_help_panel=DISPLAY)]
Quiet = Annotated[bool, option("--quiet", "-q", help="Show neither progress nor summary.", rich_help_panel=DISPLAY)]

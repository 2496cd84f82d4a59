"""The options that several commands share: their flags, their panels in `--help`, and the settings that they set.

They come from the settings, each of which has its option beside it; an option's help text is the description of its
setting, with its default. Fixed: flags, which users' scripts hold.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from gossamer import settings
from gossamer.cli.parser import Parameter, argument, option
from gossamer.crawling.options import CommandNames, worded_for
from gossamer.errors import BadInput
from gossamer.model.record import Destination
from gossamer.settings import SERVICE_LOG_LEVEL as SERVICE_LOG_LEVEL
from gossamer.settings import Settings
from gossamer.settings.options import DISPLAY, OUTPUT, PANELS, WHERE
from gossamer.settings.options import WHAT as WHAT
from gossamer.settings.rows import row_of
from gossamer.telemetry import logs
from gossamer.wiring.plan import check_csv_guard

OPTIONS = dict(sorted(settings.OPTIONS.items(), key=lambda one: PANELS.index(one[1][2].panel)))
"""Options by their names, in the order of the help: the setting, its field, and how the option is written."""
REQUEST_OPTIONS = tuple(name for name, (_, _, written) in OPTIONS.items() if written.of == "requests")
"""Options of what fetches pages, be it a single one."""
PLAIN_REQUEST_OPTIONS = tuple(name for name in REQUEST_OPTIONS if not name.startswith("render"))
"""Options of what fetches a page without a browser."""
CRAWL_OPTIONS = tuple(name for name, (_, _, written) in OPTIONS.items() if written.of != "others")
"""Options of a crawl."""
Function = TypeVar("Function", bound=Callable[..., object])


def _flags(name: str) -> tuple[str, ...]:
    """Return the flags of an option."""
    return OPTIONS[name][2].flags or (f"--{name.replace('_', '-')}",)


def _parameter(name: str, help_text: str | None) -> Parameter:
    """Return an option as a parameter of a command. `help_text`: the command's own."""
    setting, field, written = OPTIONS[name]
    row = row_of(setting)
    default = written.default or ("" if field.default is False else row.default)
    text = help_text or written.help
    text = text or (f"{row.description}. Default: {default}." if default else f"{row.description}.")
    many = field.has_texts if written.many is None else written.many
    described = option(*_flags(name), help=text, metavar=written.metavar, panel=written.panel)
    # Texts stay texts: the check of the settings converts them, and its messages say what may be written. None is the
    # default of every option, so that one that was not given leaves the setting to other sources.
    return Parameter(name, described, bool if written.metavar is None else str, many, None)


def destinations(typed: Iterable[str | tuple[str, ...]]) -> tuple[Destination, ...]:
    """Return the outputs of -o: paths, or tuples of a path and the flags that stood behind it (--items, --pages)."""
    found = []
    for one in typed:
        path, *records = (one,) if isinstance(one, str) else one
        kinds = set(records) or {"auto"}
        found.append(Destination(path, "all" if len(kinds) > 1 else kinds.pop()))  # type: ignore[arg-type]
    return tuple(found)


_CONFIG = option(
    "--config",
    help="TOML file of settings. Without this option, gossamer.toml in the working folder is read if it exists.",
    panel=WHERE,
    metavar="FILE",
)
_VERBOSE = option("--verbose", "-v", help="Log to standard error what happens.", panel=DISPLAY)


def _records_parameter(name: str) -> Parameter:
    """Return --items or --pages as a parameter of a command."""
    rest = (
        " Both options: pages and items. Neither: .csv, .json and .sqlite take items if there are any, else pages; the "
        "others take all."
    )
    described = option(
        f"--{name}",
        help=f"Write only {name} to the -o before this option.{rest * (name == 'items')}",
        panel=OUTPUT,
        belongs_to="output",
    )
    return Parameter(name, described, bool, False, None)


def takes(*names: str, **help_texts: str) -> Callable[[Function], Function]:
    """Return a decorator that adds options from `OPTIONS`, --config and --verbose to a command. `help_texts`: the
    command's own, by the name of the option.

    The command gets their values as `**options` and passes them to `load_settings`. In its help they stand between its
    positional and its keyword-only parameters.
    """

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def run(*arguments: Any, **typed: Any) -> Any:
            untyped = [name for name in names if not typed.get(name)]
            with worded_for(CommandNames(untyped, config=typed.get("config"))):
                return command(*arguments, **typed)

        setattr(run, "shared_parameters", lambda: _shared_parameters(names, help_texts))  # noqa: B010
        return cast(Function, run)

    return decorate


def _shared_parameters(names: Iterable[str], help_texts: Mapping[str, str]) -> list[Parameter]:
    """Return the parameters that `takes` adds to a command."""
    added = []
    for name in names:
        added.append(_parameter(name, help_texts.get(name)))
        if name == "output":
            added += [_records_parameter("items"), _records_parameter("pages")]
    return [*added, Parameter("config", _CONFIG, Path, False, None), Parameter("verbose", _VERBOSE, bool, False, False)]


def load_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings in force: the options of a command, else the environment, the file and the defaults.

    `options`: the `**options` of a command with `takes`. Raises BadInput.
    """
    for name in ("items", "pages"):
        if options.get(name):
            raise BadInput(f"--{name} belongs to the -o before it. Write, for example, -o {name}.csv --{name}.")
    values = {OPTIONS[name][0]: typed for name, typed in options.items() if name in OPTIONS}
    if options.get("output"):
        values["crawl.output"] = destinations(options["output"])
    if options["verbose"]:
        values["log_level"] = "info"
    names = {OPTIONS[name][0]: _flags(name)[-1] for name in options if name in OPTIONS}
    found = settings.load(values, config=options["config"], names=names)
    if options.get("csv_guard"):
        check_csv_guard(found)
    if options["verbose"]:
        logs.set_up(found.log_level, style=found.log_format)
    return found


# Parameters that several commands have, but that set no setting.
AppId = Annotated[str, argument(metavar="APPID", help="Application of the crawl.")]
OneSpider = Annotated[
    str | None, option("--spider", metavar="NAME", help="Only the requests of this spider. Unset: all of them.")
]
Render = Annotated[
    bool, option("--render", help="Let a browser build the page. It needs Chromium or Chrome.", panel=WHAT)
]
Json = Annotated[bool, option("--json", help="Print the result as JSON.", panel=DISPLAY)]
Quiet = Annotated[bool, option("--quiet", "-q", help="Show neither progress nor summary.", panel=DISPLAY)]

"""The options that several commands share: their flags, their panels in `--help`, and the settings that they set.

They come from the settings, each of which has its option beside it; an option's help text is the description of its
setting, with its default. Fixed: flags, which users' scripts hold.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

import msgspec

from gossamer import settings
from gossamer.crawling.options import with_places
from gossamer.errors import BadInput
from gossamer.model.record import Destination
from gossamer.settings import SERVICE_LOG_LEVEL as SERVICE_LOG_LEVEL
from gossamer.settings import Settings
from gossamer.settings.options import DISPLAY, OUTPUT, PANELS, WHERE, SettingOption
from gossamer.settings.options import WHAT as WHAT
from gossamer.settings.rows import row_of
from gossamer.telemetry import logs
from gossamer.wiring.plan import check_csv_guard


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


class CommandOption(msgspec.Struct, frozen=True):
    """An option of the command line that sets a setting."""

    setting: str
    """Dotted name of the setting."""
    written: SettingOption
    name: str
    """Name of the command's parameter."""
    flags: tuple[str, ...]
    kind: Any
    """Type of what is typed: bool, str or list[str]. The check of the settings converts it; its messages say what may
    be written."""

    def parameter(self, help_text: str | None = None) -> inspect.Parameter:
        """Return the option as a parameter of a command. `help_text`: the command's own."""
        row = row_of(self.setting)
        default = self.written.default or row.default
        text = help_text or self.written.help
        text = text or (f"{row.description}. Default: {default}." if default else f"{row.description}.")
        if self.kind == list[str] and "repeated" not in text:
            text += " May be repeated."
        described = {"show_default": False, "rich_help_panel": self.written.panel, "metavar": self.written.metavar}
        # None is the default of every option, so that one that was not given leaves the setting to other sources.
        return _keyword(self.name, option(*self.flags, help=text, **described), None, self.kind | None)


def _command_options() -> Iterator[CommandOption]:
    """Yield the options of all settings, in the order of the help."""
    for name, (setting, field, written) in sorted(
        settings.OPTIONS.items(), key=lambda one: PANELS.index(one[1][2].panel)
    ):
        flags = written.flags or (f"--{name.replace('_', '-')}",)
        repeats = field.has_texts if written.many is None else written.many
        kind = bool if written.metavar is None else list[str] if repeats else str
        yield CommandOption(setting, written, name, flags, kind)


OPTIONS = {one.name: one for one in _command_options()}
"""Options by their names, in the order of the help."""
REQUEST_OPTIONS = tuple(name for name, one in OPTIONS.items() if one.written.of == "requests")
"""Options of what fetches pages, be it a single one."""
CRAWL_OPTIONS = tuple(name for name, one in OPTIONS.items() if one.written.of != "others")
"""Options of a crawl."""


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


def takes(*names: str, **help_texts: str) -> Callable[[Command], Command]:
    """Return a decorator that adds options from `OPTIONS`, --config and --verbose to a command. `help_texts`: the
    command's own, by the name of the option.

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

        setattr(run, _TAKEN, {name: help_texts.get(name) for name in names})
        return cast(Command, run)

    return decorate


_TAKEN = "__taken_options__"
"""Attribute of a command with the names that `takes` got, and the command's own help texts."""


def describe_to_typer(command: Callable[..., Any]) -> None:
    """Give a command the signature that Typer reads: its own parameters and, if it `takes` options, theirs."""
    names: dict[str, str | None] | None = getattr(command, _TAKEN, None)
    added: list[inspect.Parameter] = []
    if names is not None:
        added = [OPTIONS[name].parameter(help_text) for name, help_text in names.items()]
        added += [_keyword("config", _CONFIG, None, Path | None), _keyword("verbose", _VERBOSE, False, bool)]
        if "output" in names:
            after_output = 1 + next(at for at, one in enumerate(added) if one.name == "output")
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
        kinds |= dict.fromkeys(OPTIONS[name].flags, (name, OPTIONS[name].kind))
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
    values = {
        OPTIONS[name].setting: None if typed == [] else typed for name, typed in options.items() if name in OPTIONS
    }
    if options.get("output"):
        values["crawl.output"] = destinations(options["output"])
    if options["verbose"]:
        values["log_level"] = "info"
    names = {option.setting: option.flags[-1] for name, option in OPTIONS.items() if name in options}
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
Json = Annotated[bool, option("--json", help="Print the result as one JSON object.", rich_help_panel=DISPLAY)]
Quiet = Annotated[bool, option("--quiet", "-q", help="Show neither progress nor summary.", rich_help_panel=DISPLAY)]

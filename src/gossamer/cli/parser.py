"""The parser of the command line: commands are functions, whose parameters describe the arguments and options.

A parameter has its description in `Annotated`, from `argument` or `option`; its type and default tell what may be
typed. Every command loads this module, so it imports nothing that loads slowly. Fixed: how a command line is read
(options and arguments in any order, `--`, `--name=value`, `-ovalue`, `-o=value`, several short flags in one word),
because scripts rely on it.
"""

import enum
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

from gossamer.errors import BadInput

OPTIONS_PANEL = "Options"
"""Title of the options that name no panel of the help."""
_HELP = ("--help", "-h")
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., object])


class UsageError(BadInput):
    """The command line cannot be read. The command's help has the answer."""


class HelpWanted(Exception):
    """The command line asks for the help."""


class Description(NamedTuple):
    """An argument or option as the help shows it."""

    flags: tuple[str, ...]
    """Empty: a positional argument. `--on/--off` is a flag and its opposite."""
    help: str
    metavar: str | None
    """Name of the value in the help."""
    panel: str
    """Title of its group in the help."""
    show_default: bool
    least: float | None
    most: float | None
    """Range of a number. None: no limit."""
    belongs_to: str
    """Name of the option that may be repeated whose value this flag describes, if it stands behind it. Empty: none."""


def option(
    flag: str,
    *more: str,
    help: str,
    metavar: str | None = None,
    panel: str = OPTIONS_PANEL,
    show_default: bool = True,
    min: float | None = None,
    max: float | None = None,
    belongs_to: str = "",
) -> Description:
    """Return an option of a command, for `Annotated`. The arguments are attributes of Description."""
    return Description((flag, *more), help, metavar, panel, show_default, min, max, belongs_to)


def argument(*, metavar: str, help: str, show_default: bool = True, min: float | None = None) -> Description:
    """Return a positional argument of a command, for `Annotated`. The arguments are attributes of Description."""
    return Description((), help, metavar, "Arguments", show_default, min, None, "")


class Parameter(NamedTuple):
    """An argument or option of a command."""

    name: str
    """Name of the function's parameter."""
    description: Description
    kind: Any
    """Type of a value: bool, str, int, float, Path or an enumeration of texts."""
    many: bool
    """True: it may be repeated, and the function gets a list."""
    default: Any
    """`inspect.Parameter.empty`: it must be given."""

    @property
    def is_argument(self) -> bool:
        """True: it has no flag."""
        return not self.description.flags

    @property
    def is_flag(self) -> bool:
        """True: it takes no value."""
        return self.kind is bool

    @property
    def is_required(self) -> bool:
        """True: the command needs it."""
        return self.default is inspect.Parameter.empty

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that are typed, with those that switch it off."""
        return tuple(flag for flags in self.description.flags for flag in flags.split("/"))

    @property
    def metavar(self) -> str:
        """Name of the value. Empty: it takes none."""
        if self.is_flag:
            return ""
        words = "|".join(one.value for one in self.kind) if issubclass(self.kind, enum.Enum) else self.name.upper()
        return self.description.metavar or words

    @property
    def help(self) -> str:
        """The help with what the type and the default add to it."""
        text, least, most = self.description.help, self.description.least, self.description.most
        if self.many and not self.is_argument and "repeated" not in text:
            text += " May be repeated."
        if least is not None:
            text += f" {least:,g} to {most:,g}." if most is not None else f" At least {least:,g}."
        hidden = self.default is None or self.default is False or self.default in ("", inspect.Parameter.empty)
        if self.description.show_default and not hidden:
            text += f" Default: {self.default}."
        return text

    def read(self, text: str, flag: str) -> Any:
        """Return a typed value in the parameter's type. Raises BadInput."""
        try:
            value = self.kind(text)
        except ValueError:
            if issubclass(self.kind, enum.Enum):
                *others, last = (one.value for one in self.kind)
                expected = f"{', '.join(others)} or {last}" if others else last
            else:
                expected = "a whole number" if self.kind is int else "a number"
            raise BadInput(f"{flag}: cannot use {text!r:.40}. Write {expected}.") from None
        least, most = self.description.least, self.description.most
        if (least is not None and not value >= least) or (most is not None and not value <= most):
            limits = f"from {least:,g} to {most:,g}" if most is not None else f"from {least:,g} up"
            word = "a whole number" if self.kind is int else "a number"
            raise BadInput(f"{flag}: cannot use {text!r:.40}. Write {word} {limits}.")
        return value


def parameter_of(name: str, annotation: Any, default: Any) -> Parameter:
    """Return the parameter with this annotation: `Annotated[TYPE, option(...)]`, or `None` with it as the default."""
    kind, description = get_args(annotation)[:2]
    if get_origin(kind) in (Union, types.UnionType):
        [kind] = [one for one in get_args(kind) if one is not types.NoneType]
    many = get_origin(kind) is list
    return Parameter(name, description, get_args(kind)[0] if many else kind, many, default)


class ProgramCommand:
    """A command: a function, and the parameters that it gets from the command line."""

    def __init__(self, path: str, function: Callable[..., object]) -> None:
        """`path`: its name with those before it: `gossamer crawls show`."""
        self.path = path
        self.function = function

    @property
    def name(self) -> str:
        """The name without `gossamer`."""
        return self.path.partition(" ")[2]

    @property
    def paragraphs(self) -> list[str]:
        """The paragraphs of its docstring, each on one line."""
        return [" ".join(part.split()) for part in inspect.cleandoc(self.function.__doc__ or "").split("\n\n")]

    @property
    def commands(self) -> dict[str, "ProgramCommand"]:
        """Commands in it: none. See CommandGroup."""
        return {}

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Its arguments and options. Those that it shares with others (`takes` in cli/options.py) stand between its
        positional and its keyword-only parameters."""
        shared: list[Parameter] = getattr(self.function, "shared_parameters", list)()
        before, behind = list[Parameter](), list[Parameter]()
        for one in inspect.signature(self.function).parameters.values():
            if one.kind is not one.VAR_KEYWORD:
                found = parameter_of(one.name, one.annotation, one.default)
                (behind if one.kind is one.KEYWORD_ONLY else before).append(found)
        return [*before, *shared, *behind]

    def run(self, words: Iterable[str]) -> int:
        """Run the command with these words, and return its exit code. Raises UsageError and HelpWanted, and what the
        command raises."""
        code = self.function(**self.read(words))
        return code if isinstance(code, int) else 0

    def read(self, words: Iterable[str]) -> dict[str, Any]:
        """Return the values of all parameters by name. Raises BadInput, UsageError and HelpWanted."""
        reading = _Reading(self.parameters)
        reading.read(iter(words))
        return reading.values


class CommandGroup:
    """Several commands under one name."""

    def __init__(self, *, help: str) -> None:
        self.help = help
        self._functions: dict[str, Callable[..., object]] = {}
        self.path = ""
        """Its name behind `gossamer`. Set where it is found in the table of commands."""

    def command(self, name: str) -> Callable[[CommandFunction], CommandFunction]:
        """Return a decorator that makes a function a command of this name."""

        def add(function: CommandFunction) -> CommandFunction:
            self._functions[name] = function
            return function

        return add

    @property
    def name(self) -> str:
        """The name without `gossamer`."""
        return self.path.partition(" ")[2]

    @property
    def paragraphs(self) -> list[str]:
        """Its help."""
        return [self.help]

    @property
    def parameters(self) -> list[Parameter]:
        """Its options: none of its own."""
        return []

    @property
    def commands(self) -> dict[str, ProgramCommand]:
        """Its commands by name."""
        return {name: ProgramCommand(f"{self.path} {name}", function) for name, function in self._functions.items()}


class _Reading:
    """Reads one command line."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.values: dict[str, Any] = {}
        self._parameters = parameters
        self._by_flag = {flag: one for one in parameters for flag in one.flags}
        self._off_flags = {
            flag for one in parameters for flags in one.description.flags for flag in flags.split("/")[1:]
        }

    def read(self, words: Iterator[str]) -> None:
        """Read all words. Raises BadInput, UsageError and HelpWanted."""
        positional: list[str] = []
        for word in words:
            if word == "--":
                positional += words
            elif word == "-" or not word.startswith("-"):
                positional.append(word)
            elif word.startswith("--"):
                flag, equals, value = word.partition("=")
                self._take(flag, value if equals else None, words)
            else:
                self._take_letters(word[1:], words)
        self._assign(positional)
        for one in self._parameters:
            if one.name not in self.values:
                if one.is_required:
                    kind, name = ("argument", one.metavar) if one.is_argument else ("option", one.flags[0])
                    raise UsageError(f"Missing {kind} '{name}'.")
                self.values[one.name] = one.default

    def _take_letters(self, letters: str, words: Iterator[str]) -> None:
        """Read short options in one word, of which the last may have its value in it."""
        while letters:
            flag, letters = f"-{letters[0]}", letters[1:]
            if flag in _HELP or self._parameter(flag).is_flag:
                self._take(flag, letters if letters.startswith("=") else None, words)
            else:
                self._take(flag, letters.removeprefix("=") if letters else None, words)
                return

    def _parameter(self, flag: str) -> Parameter:
        """Return the parameter with this flag. Raises UsageError."""
        if flag not in self._by_flag:
            raise UsageError(f"No such option: {flag}.{suggested_option(flag, self._by_flag)}")
        return self._by_flag[flag]

    def _take(self, flag: str, value: str | None, words: Iterator[str]) -> None:
        """Keep the value of an option. `value` None: it is the next word."""
        if flag in _HELP:
            raise HelpWanted
        one = self._parameter(flag)
        if one.is_flag:
            if value is not None:
                raise UsageError(f"Option '{flag}' does not take a value.")
            described = self.values.get(one.description.belongs_to)
            if described:
                last = described[-1]
                described[-1] = (*(last if isinstance(last, tuple) else (last,)), one.name)
            else:
                self.values[one.name] = flag not in self._off_flags
            return
        if value is None:
            value = next(words, None)
        if value is None:
            raise UsageError(f"Option '{flag}' requires an argument.")
        self._keep(one, value, flag)

    def _keep(self, one: Parameter, text: str, place: str) -> None:
        """Keep a value, beside those before it if there may be several."""
        value = one.read(text, place)
        if one.many:
            self.values.setdefault(one.name, []).append(value)
        else:
            self.values[one.name] = value

    def _assign(self, words: list[str]) -> None:
        """Give the positional words to the arguments, in their order; one that may be repeated takes all but those that
        the ones behind it need."""
        arguments = [one for one in self._parameters if one.is_argument]
        for at, one in enumerate(arguments):
            behind = sum(other.is_required for other in arguments[at + 1 :])
            count = len(words) - behind if one.many else min(1, len(words))
            for word in words[: max(0, count)]:
                self._keep(one, word, one.metavar)
            words = words[max(0, count) :]
        if words:
            raise UsageError(f"Got unexpected extra argument{'s' if len(words) > 1 else ''} ({' '.join(words):.200}).")


_LEAST_PREFIX = len("--x")
"""Characters of an unknown option from which those that begin with it are suggested."""
_SUGGESTED = 3
"""Most options that are suggested."""


def suggested_option(typed: str, flags: Iterable[str]) -> str:
    """Return ` Did you mean --depth?` with the options that are meant: those that begin with what was typed, else those
    with the fewest letters to change, at most a third of what was typed. Empty: there are none."""
    known = [flag for flag in (*flags, _HELP[0]) if flag.startswith("--")]
    meant = [flag for flag in known if len(typed) >= _LEAST_PREFIX and flag.startswith(typed)]
    if not meant and typed.startswith("--"):
        distances = {flag: _edit_distance(typed, flag) for flag in known}
        least = min(distances.values())
        meant = [flag for flag in known if distances[flag] == least] if least <= len(typed.strip("-")) / 3 else []
    *others, last = meant[:_SUGGESTED] or [""]
    names = f"{', '.join(others)} or {last}" if others else last
    return f" Did you mean {names}?" if last else ""


def _edit_distance(one: str, other: str) -> int:
    """Return how many letters of `one` must be changed, added, left out or swapped with the next to make `other`."""
    before, row = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        previous, before, row = before, row, [at]
        for there, wanted in enumerate(other, 1):
            least = min(before[there] + 1, row[there - 1] + 1, before[there - 1] + (letter != wanted))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == wanted:
                least = min(least, previous[there - 2] + 1)
            row.append(least)
    return row[-1]

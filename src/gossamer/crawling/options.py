"""Options of `gossamer.crawl` and `gossamer.get`: those of the command line, with underscores and Python's own types.

`crawling/typed_options.py` has their types. Fixed: names, which people's programs use.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

from gossamer.errors import BadInput, GossamerError
from gossamer.settings import OPTIONS, places
from gossamer.worker.loading import add_program_spider

Texts = str | Iterable[str]
"""One text, or several."""
PathLike = str | os.PathLike[str]


class ConfigOption(TypedDict, total=False):
    """Option of everything that reads settings."""

    config: PathLike
    """TOML file of settings. Without it, gossamer.toml in the working folder is read if it exists."""


class StartingOptions(ConfigOption, total=False):
    """Options of a crawl that set no setting."""

    seeds: PathLike | Iterable[PathLike]
    """Further URLs to start from: files or URLs of lists with one URL per line."""
    crawl_id: str
    """Name of the crawl. Unset: a name made from the URLs and options."""
    fresh: bool
    """True: a finished crawl is crawled again from the start, and its output begins empty."""
    append: bool
    """True: the output keeps what it holds, also the records of another crawl, or with `fresh` of this one."""
    failures: bool
    """True: the loop also gets what is no page: error statuses, and requests without a response, whose `status_code` is
    0. `page.record.reason` and `page.record.exception` say why."""


def _spider(value: Any) -> str:
    """Return the reference to a spider."""
    return value if isinstance(value, str) else add_program_spider(value)


_OPTIONS = {name: setting for name, (setting, _, written) in OPTIONS.items() if written.of != "others"}
"""Settings of the options, by their names."""
_FLAGS = {"fresh", "append", *(name for name, (_, _, written) in OPTIONS.items() if written.metavar is None)}
"""Options that are True or False."""


_OWN_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "seeds": ((str, os.PathLike, Iterable), "Write the path of a list of URLs, or several."),
    "config": ((str, os.PathLike), "Write the path of a TOML file."),
    "crawl_id": ((str,), "Write a text."),
    "fresh": ((bool,), "Write True or False."),
    "append": ((bool,), "Write True or False."),
    "failures": ((bool,), "Write True or False."),
}
"""Options that set no setting: `crawling/python.py` reads them. The types that they accept, and what to write."""


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings, by dotted name. An option that is None counts as not given.

    Raises BadInput for a class that is no spider.
    """
    values = {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS and value is not None}
    if "crawl.spider" in values:
        values["crawl.spider"] = _spider(values["crawl.spider"])
    return values


def names_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by the dotted names of the settings that they set, for messages."""
    return {_OPTIONS[name]: name for name in options if name in _OPTIONS}


def check_options(function: str, options: Mapping[str, Any], kind: type[Any]) -> None:
    """Check that these are options of the TypedDict `kind`, and the types of those that set no setting.

    Raises TypeError, as Python does, for a name that is no option, and names the nearest; BadInput for a value."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            import difflib  # imported late: only mistakes need it

            near = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known))}."
            raise TypeError(f"{function}() has no option {name}; {hint}")
    for name, (accepted, advice) in _OWN_TYPES.items():
        value = options.get(name)
        if value is not None and not isinstance(value, accepted):
            raise BadInput(f"{name}: cannot use {value!r:.200}. {advice}")


_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: ([a-z]+://\S+[\w/]))?")
"""An option as messages write it, with the address that may follow: `--proxy socks5://...`. Must match every option
that a message of Gossamer names."""
_SUBJECT = re.compile(r".*?(?=[:.] |$)", re.DOTALL)
"""Beginning of a message, which names what is at fault; the advice behind it names options to add."""
_OUTPUT = re.compile(r"(?<!\S)-o ([\w./*-]*\w)")
"""An output as messages write it: `-o items.csv`."""
_OVERRIDE_ADVICE = re.compile(r"--resolve (\S+):ADDRESS")


def with_places(message: str, untyped: Mapping[str, str], *, config: Path | None) -> str:
    """Return a message with the places of values instead of options that were not typed: `gossamer.toml: crawl.scope`
    instead of `--scope`.

    `untyped`: dotted names of the settings, by those options. `config`: the settings file that was named.
    """
    subject = _SUBJECT.match(message)
    assert subject is not None
    if untyped.keys().isdisjoint(f"--{one[1]}" for one in _OPTION.finditer(subject[0])):
        return message
    written = places(config)

    def place(match: re.Match[str]) -> str:
        return written.get(untyped.get(match[0], ""), match[0])

    return _OPTION.sub(place, subject[0]) + message[subject.end() :]


def config_of(options: Mapping[str, Any]) -> Path | None:
    """Return the settings file that the options name; None: they name none."""
    config = options.get("config")
    return Path(config) if config else None


def untyped_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the options that are not among these, by the options as messages write them."""
    return {f"--{name.replace('_', '-')}": setting for name, setting in _OPTIONS.items() if given.get(name) is None}


def in_python_words(message: str) -> str:
    """Return a message of Gossamer with the options as a program writes them: `allow_private=True` instead of
    `--allow-private`."""

    def option(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if match[2]:
            return f'{name}="{match[2]}"'
        is_label = match.start() == 0  # `--seeds: ... cannot be read`: names the option that the message is about
        return f"{name}=True" if name in _FLAGS and not is_label else name

    message = _OUTPUT.sub(r'output="\1"', message)
    return _OPTION.sub(option, _OVERRIDE_ADVICE.sub(r'resolve={"\1": "ADDRESS"}', message))


class PythonWords:
    """Context manager that lets errors name options as a program writes them, or the settings file or variable that has
    the value instead. It drops the calls inside Gossamer from their tracebacks, which tell a program's author nothing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: those that the program gave."""
        self._options = options

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, GossamerError):
            message = str(error)
            if isinstance(error, BadInput):
                message = with_places(message, untyped_options(self._options), config=config_of(self._options))
            error.args = (in_python_words(message),)
            raise error.with_traceback(None) from error.__cause__

"""Options of `gossamer.crawl` and `gossamer.get`: those of the command line, with underscores and Python's own types.

`crawling/typed_options.py` has their types. Fixed: names, which people's programs use.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

from gossamer.errors import BadInput, GossamerError
from gossamer.option_names import OptionNames, ProgramNames, reader
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
            raise BadInput(f"cannot use {value!r:.200}. {advice}", option=name)


class CommandNames(OptionNames):
    """Names of a command's options. One that was not typed is called by the place that has its value."""

    def __init__(self, untyped: Iterable[str], *, config: Path | None) -> None:
        """`untyped`: the options that were not typed. `config`: the settings file that was named."""
        self._untyped = frozenset(untyped)
        self._config = config

    def label(self, option: str) -> str:
        """Return the place of a value that was not typed: `gossamer.toml: crawl.scope`; else the option."""
        place = places(self._config).get(OPTIONS[option][0]) if option in self._untyped else None
        return place or self.named(option)


class CallNames(CommandNames, ProgramNames):
    """Names of the options of a call in a program. One that was not given is called by the place of its value."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: those that the program gave."""
        untyped = (name for name in _OPTIONS if options.get(name) is None)
        super().__init__(untyped, config=config_of(options))


@contextmanager
def worded_for(names: OptionNames) -> Iterator[None]:
    """Let the messages that are made inside name options so."""
    token = reader.set(names)
    try:
        yield
    finally:
        reader.reset(token)


def config_of(options: Mapping[str, Any]) -> Path | None:
    """Return the settings file that the options name; None: they name none."""
    config = options.get("config")
    return Path(config) if isinstance(config, str | os.PathLike) and config else None


class PythonWords:
    """Context manager that lets errors name options as a program writes them, or the settings file or variable that has
    the value instead. It drops the calls inside Gossamer from their tracebacks, which tell a program's author nothing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: those that the program gave."""
        self._names = CallNames(options)

    def __enter__(self) -> None:
        """Name the options."""
        self._token = reader.set(self._names)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        reader.reset(self._token)
        if isinstance(error, GossamerError):
            raise error.with_traceback(None) from error.__cause__

"""The knobs of `WebSpec` as command-line options, made from its fields, and back."""

import argparse
from dataclasses import MISSING
from enum import StrEnum
from typing import Any

from gossamer.errors import BadInput
from gossamer.fakeweb.spec import KNOBS, Robots, Sitemap, WebSpec

_CHOICES: dict[str, type[StrEnum]] = {"robots": Robots, "sitemap": Sitemap}


def add_spec_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser an option for each knob, with its help and default."""
    group = parser.add_argument_group("the web")
    for knob in KNOBS:
        flag, text, default = _flag(knob.name), knob.metadata["help"], knob.default
        assert default is not MISSING
        options: dict[str, Any] = {"dest": knob.name, "default": default}
        if isinstance(default, bool):
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text, **options)
            continue
        shown = ",".join(default) if isinstance(default, tuple) else f"{default}"
        if knob.name in _CHOICES:
            text += f" ({', '.join(_CHOICES[knob.name])})"
        options["type"] = str if isinstance(default, tuple | StrEnum) else type(default)
        options["metavar"] = {int: "N", float: "X"}.get(type(default), "LIST" if isinstance(default, tuple) else "KIND")
        group.add_argument(flag, help=f"{text} (default: {shown})", **options)


def spec_from(arguments: argparse.Namespace) -> WebSpec:
    """The web that the parsed options describe. Raises `BadInput`."""
    values: dict[str, Any] = {knob.name: getattr(arguments, knob.name) for knob in KNOBS}
    for name in ("robots", "robots_disallow"):
        if isinstance(values[name], str):
            values[name] = tuple(part for part in values[name].split(",") if part)
    try:
        values["robots"] = tuple(map(Robots, values["robots"]))
        values["sitemap"] = Sitemap(values["sitemap"])
    except ValueError as error:
        raise BadInput(
            f"{error}; choose from {', '.join(Robots)} for robots, {', '.join(Sitemap)} for sitemap"
        ) from None
    return WebSpec(**values)


def spec_arguments(spec: WebSpec) -> list[str]:
    """The options that describe this web: those that differ from the defaults."""
    arguments: list[str] = []
    for knob in KNOBS:
        value = getattr(spec, knob.name)
        if value == knob.default:
            continue
        flag = _flag(knob.name)
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            arguments.append(f"{flag}={','.join(value) if isinstance(value, tuple) else value}")
    return arguments


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

"""The reference pages of commands, settings, metrics and messages, and the OpenAPI descriptions of both APIs."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastapi import FastAPI

from gossamer.api.app import routes
from gossamer.cli.app import COMMAND_GROUPS, all_commands, find
from gossamer.cli.help import is_command_line
from gossamer.cli.parser import Parameter, ProgramCommand
from gossamer.settings import OPTIONS
from gossamer.settings.rows import rows
from gossamer.telemetry.metrics import ALL_METRICS
from gossamer_platform.v1 import app as platform_api
from tools.reference.messages import messages_page
from tools.reference.options import request_schema, typed_options
from tools.reference.schemas import duckdb_table, pandas_columns, spark_columns, with_table
from tools.reference.scrapy_project import scrapy_page

_RECORDS = Path(__file__).parents[2] / "docs" / "reference" / "records.md"
_MANY = 6
"""Number of commands from which an option that they share is explained at the end."""
_REPEATED = " May be repeated."
"""End of the help of an option that may be repeated, for which the page has a sign."""
_SHARED = "[shared](#shared-options)"
_CRAWL = "gossamer crawl"
MADE = "<!-- Made by `python -m tools.reference`; do not edit. -->"


def all_pages() -> dict[str, str]:
    """Return the text of each file that is made, by its path from docs/reference.

    Only the table of columns of `records.md`, and the ranges of options in `crawl.json`, are made; a person writes the
    rest.
    """
    return {
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "messages.md": f"{MADE}\n\n{messages_page()}",
        "scrapy.md": f"{MADE}\n\n{scrapy_page()}",
        "schemas/records.spark.ddl": spark_columns(),
        "schemas/records.duckdb.sql": duckdb_table(),
        "schemas/records.pandas.json": pandas_columns(),
        "records.md": with_table(_RECORDS.read_text()),
        "../../src/gossamer/crawling/typed_options.py": typed_options(),
        "../../src/gossamer/model/messages/schemas/crawl.json": request_schema(),
        "openapi.json": _description(routes()),
        "platform-openapi.json": _description(platform_api.routes()),
    }


def _description(app: FastAPI) -> str:
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


def cli_page() -> str:
    """docs/reference/cli.md."""
    lines = [
        *(MADE, "", "# Command line", ""),
        "Every command, and every option with its meaning and its default. An option with `…` may be repeated.",
        "[Exit codes](exit-codes.md) mean the same for all commands.",
        "",
    ]
    for title, names in COMMAND_GROUPS.items():
        lines += [f"- **{title}**: {' · '.join(map(_linked, names))}"]
    lines.append("")
    places = _places()
    for command in all_commands():
        lines += _command(command, places)
    lines += ["## Shared options", "", "Many commands have these.", ""]
    lines += [line for line, place in places.items() if place == _SHARED]
    return "\n".join(lines).rstrip() + "\n"


def _places() -> dict[str, str]:
    """Return where the line of each option stands, as a link: at `gossamer crawl`, at the end if many commands share
    it, else at the first command that has it."""
    commands = sorted(all_commands(), key=lambda one: one.path != _CRAWL)
    lines_of = {command.path: [_line(one) for one in command.parameters if not one.is_argument] for command in commands}
    counts = Counter(line for options in lines_of.values() for line in options)
    places: dict[str, str] = {}
    for path, options in lines_of.items():
        for line in options:
            is_shared = path != _CRAWL and counts[line] >= _MANY
            places.setdefault(line, _SHARED if is_shared else f"[{path}](#{path.replace(' ', '-')})")
    return places


def settings_page() -> str:
    """docs/reference/settings.md."""
    lines = [
        MADE,
        "",
        "# Settings",
        "",
        "A setting `a.b` is `GOSSAMER_A__B` in the environment and `b` in the section `[a]` of `gossamer.toml`.",
        "Flags win over the environment, that over the file. In the environment a list is written with commas, or as",
        "JSON, which a table is, too. Where a flag stands for the meaning, the setting means the same.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    flags = _flags()
    for name, _, default, meaning in rows():
        lines.append(f"| `{name}` | {f'`{default}`' if default else ''} | {flags.get(name) or _cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _flags() -> dict[str, str]:
    """Return the flag of each setting whose meaning is the help of its flag, with a link to it, by the setting's
    name."""
    places = _places()
    helps = {(one.name, one.help): one for command in all_commands() for one in command.parameters}
    found = {}
    for option, (setting, field, _) in OPTIONS.items():
        for (name, text), one in helps.items():
            if name == option and _unnamed(text).startswith(f"{_unnamed(field.description)}."):
                page = places[_line(one)].partition("(")[2].rstrip(")")
                found[setting] = f"[`{one.flags[0]}`](cli.md{page})"
    return found


def _unnamed(text: str) -> str:
    """Return a text in which names of options and of settings are written alike."""
    return text.replace("--", "").replace("_", "-")


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [
        MADE,
        "",
        "# Metrics",
        "",
        "The API serves these at `/metrics`, in Prometheus's text format. Counters cover the process that answers and",
        "the workers that it started. Gauges of the frontier are the same from every service. `gossamer worker` serves",
        "only those of its own work, at `worker.metrics`.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in ALL_METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {_cell(metric.description)} |")
    return "\n".join(lines) + "\n"


def _linked(name: str) -> str:
    """Return a link to a command; of a group, to each of its commands."""
    found = find(name)
    if isinstance(found, ProgramCommand):
        return f"[{name}](#gossamer-{name})"
    commands = " ".join(f"[{inner}](#gossamer-{name}-{inner})" for inner in found.commands)
    return f"{name} ({commands})"


def _command(command: ProgramCommand, places: Mapping[str, str]) -> Iterator[str]:
    """Yield the section of a command. `places`: where the line of each option stands."""
    yield f"## {command.path}"
    yield ""
    if usage := " ".join(one.metavar for one in command.parameters if one.is_argument):
        yield f"`{command.path} {usage} [options]`"
        yield ""
    for text in command.paragraphs:
        if text == command.path or text.startswith("Exit code: "):
            continue
        yield f"    {text}" if is_command_line(text) else _escaped(text)
        yield ""
    here = f"[{command.path}](#{command.path.replace(' ', '-')})"
    panels: dict[str, list[str]] = {}
    elsewhere: dict[str, list[str]] = {}
    for one in command.parameters:
        if one.is_argument:
            continue
        if (place := places[line := _line(one)]) == here:
            panels.setdefault(one.description.panel, []).append(line)
        else:
            elsewhere.setdefault(place, []).append(f"`{one.flags[0]}`")
    for panel, options in panels.items():
        if len(panels) > 1:
            yield f"### {panel}"
            yield ""
        yield from options
        yield ""
    parts = []
    for place, flags in elsewhere.items():
        others = [flag for flag in _options_of(places, place) if flag not in flags]
        listed = ", ".join(flags)
        if place != _SHARED and 0 < len(others) < len(flags):
            listed = f"all but {', '.join(others)}"
        parts.append(f"{place if place == _SHARED else f'as in {place}'}: {listed}")
    if parts:
        yield re.sub("[a-z]", lambda first: first[0].upper(), "; ".join(parts), count=1) + "."
        yield ""


def _options_of(places: Mapping[str, str], place: str) -> list[str]:
    """Return the first flags of the options that stand at a place."""
    return [f"`{re.findall(r'`(-[-a-z0-9]+)', line)[0]}`" for line, found in places.items() if found == place]


def _line(one: Parameter) -> str:
    """Return the line of an option."""
    text, is_repeated, default = " ".join(one.help.split()).partition(_REPEATED)
    metavar = f" {one.metavar}{'…' if is_repeated else ''}" if one.metavar else ""
    return f"- `{', '.join(one.flags)}{metavar}`: {_escaped(text + default)}"


def _cell(text: str) -> str:
    """Return a text for a cell, with its code in backticks."""
    return _escaped(" ".join(text.split())).replace("|", "&#124;")


def _escaped(text: str) -> str:
    """Return a text whose signs mean nothing to Markdown, but for its code in backticks."""
    parts = text.split("`")
    parts[::2] = (html.escape(part, quote=False).replace("*", "&#42;") for part in parts[::2])
    return "`".join(parts)

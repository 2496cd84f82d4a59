"""The reference pages of commands, settings, metrics and messages, and the OpenAPI descriptions of both APIs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from fastapi import FastAPI

from gossamer.api.app import routes
from gossamer.cli.app import load
from gossamer.settings.rows import rows
from gossamer.telemetry.metrics import ALL_METRICS
from gossamer_platform.v1 import app as platform_api
from tools.reference.messages import messages_page
from tools.reference.options import request_schema, typed_options
from tools.reference.schemas import duckdb_table, pandas_columns, spark_columns, with_table
from tools.reference.scrapy_project import scrapy_page

_ANALYSE = Path(__file__).parents[2] / "docs" / "howto" / "analyse.md"
MADE = "<!-- Made by `python -m tools.reference`; do not edit. -->"


def all_pages() -> dict[str, str]:
    """Return the text of each file that is made, by its path from docs/reference.

    Only the table of columns of `analyse.md`, and the ranges of options in `crawl.json`, are made; a person writes the
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
        "../howto/analyse.md": with_table(_ANALYSE.read_text()),
        "../../src/gossamer/crawling/typed_options.py": typed_options(),
        "../../src/gossamer/model/messages/schemas/crawl.json": request_schema(),
        "openapi.json": _description(routes()),
        "platform-openapi.json": _description(platform_api.routes()),
    }


def _description(app: FastAPI) -> str:
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


def cli_page() -> str:
    """docs/reference/cli.md."""
    lines = [MADE, "", "# Command line", ""]
    group: Any = typer.main.get_command(load())
    for name, command in group.commands.items():
        for full, one in _parts_of(name, command):
            lines += _command(full, one)
    return "\n".join(lines).rstrip() + "\n"


def settings_page() -> str:
    """docs/reference/settings.md."""
    lines = [
        MADE,
        "",
        "# Settings",
        "",
        "A setting `a.b` is `GOSSAMER_A__B` in the environment and `b` in the section `[a]` of `gossamer.toml`.",
        "Flags win over the environment, that over the file. In the environment a list is written with commas, or as",
        "JSON, which a table is, too.",
        "",
        "| setting | environment | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, variable, default, meaning in rows():
        lines.append(f"| `{name}` | `{variable}` | {f'`{default}`' if default else ''} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [
        MADE,
        "",
        "# Metrics",
        "",
        "The API serves these at `/metrics`, in Prometheus's text format. Counters cover the process that answers and",
        "the workers that it started. Gauges of the frontier are the same from every process.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in ALL_METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {_cell(metric.description)} |")
    return "\n".join(lines) + "\n"


def _parts_of(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or the commands of a group."""
    for part, one in getattr(command, "commands", {}).items():
        yield from _parts_of(f"{name} {part}", one)
    if not hasattr(command, "commands") and not command.hidden:
        yield name, command


def _command(name: str, command: Any) -> Iterator[str]:
    usage = " ".join((p.metavar or p.name) for p in command.params if p.param_type_name == "argument")
    yield f"## gossamer {name}"
    yield ""
    yield f"`gossamer {name} {usage} [options]`".replace("  ", " ")
    yield ""
    for paragraph in (command.help or "").strip().split("\n\n"):
        text = " ".join(line.strip() for line in paragraph.splitlines())
        yield f"    {text}" if text.startswith("gossamer ") else text
        yield ""
    panels: dict[str, list[Any]] = {}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            panels.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(param)
    for panel, params in panels.items():
        yield f"### {panel}"
        yield ""
        yield "| option | meaning |"
        yield "|---|---|"
        for param in params:
            metavar = "" if param.is_flag else f" {_cell(param.metavar or '')}"
            again = " May be repeated." if param.multiple and "repeated" not in (param.help or "") else ""
            default = f" Default: {param.default}." if param.show_default and param.default not in (None, False) else ""
            yield f"| `{', '.join(param.opts)}{metavar}` | {_cell(param.help or '')}{again}{default} |"
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

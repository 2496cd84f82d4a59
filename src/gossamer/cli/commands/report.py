"""`gossamer report`: a page about a crawl, made from its records: what failed and why, then everything else.

Safe to change: help texts (then regenerate docs/reference) and sentences. Fixed: flags, exit codes, and the fields of
`--json`, which scripts read; fields may be added.
"""

import json as json_module
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli import options, terminal
from gossamer.cli.summary import counted
from gossamer.errors import BadInput
from gossamer.report.build import make_report

DEFAULT_PAGE = Path("report.html")
"""The page if -o is not given. A documented name: must not change."""


def report(
    records: Annotated[
        list[Path], typer.Argument(metavar="RECORDS...", help="Outputs of a crawl that have pages.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="PATH", help="Where to write the page.")
    ] = DEFAULT_PAGE,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="DIR", help="Folder for the tables as CSV files. Unset: none are written."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a page about a crawl from its records: what failed and why, then everything else.

    The page is one HTML file that loads nothing and has no script. It shows failed pages, pages over time, status
    codes, depth, response times, sizes, domains, redirects, broken links, duplicates, and pages of the sitemap that
    nothing links to. Any output with pages will do, also one that a running crawl still writes.

    gossamer report pages.jsonl

    Exit code: 0 the page was written; 2 bad input.
    """
    from gossamer.report.page import check_target, write_page

    check_target(output, records)
    if csv is not None and csv.exists() and not csv.is_dir():
        raise BadInput(f"--csv: {csv} is not a folder. Name a folder for the CSV files.")
    made = make_report(
        records,
        csv_folder=csv,
        csv_link=os.path.relpath(csv, output.absolute().parent) if csv else "",
        on_progress=_show_progress if sys.stderr.isatty() and not quiet and not json else lambda step, pages: None,
    )
    write_page(output, made.page)
    figures = made.figures
    if json:
        terminal.print_result(
            json_module.dumps(
                {
                    "report": str(output),
                    "pages": figures.pages,
                    "failed": figures.failed,
                    "skipped": figures.skipped,
                    "broken_urls": figures.broken_total,
                    "csv": [str(path) for path in made.csv_files],
                    "notes": made.notes,
                }
            )
        )
    elif not quiet:
        for note in made.notes:
            terminal.say(note)
        terminal.print_result(f"{counted(figures.pages, 'page')}, {figures.failed:,} failed: {output}")


def _show_progress(step: str, pages: int) -> None:
    """Show on the terminal how far the report is, on one line."""
    sys.stderr.write(f"\r{step}: {pages:,} \x1b[K")
    sys.stderr.flush()

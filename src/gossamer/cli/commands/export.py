"""`gossamer export`: converts an output of a crawl into another format. `gossamer report`: makes a page about a crawl
from its records.

Fixed: flags, exit codes, and the fields of `--json`, which scripts read; fields may be added.
"""

import asyncio
import contextlib
import json as json_module
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput, OutputClosed
from gossamer.net.credentials import hide_secrets_in
from gossamer.policy.words import counted
from gossamer.sinks.assets import MANIFEST
from gossamer.sinks.export import Exported, ExportOptions, ExportStopped, export_to, open_source
from gossamer.sinks.open import CSV, ENDINGS, ending_of
from gossamer.sinks.read import Source

# Intervals of progress on a terminal and elsewhere. Shorter ones elsewhere fill logs.
_TERMINAL_SECONDS = 0.5
_PLAIN_SECONDS = 10.0

_COPIED_BYTES = 1 << 20
"""Bytes that are copied at once. More take memory, fewer take longer."""
_ABANDONED = "nothing was written"
"""Message after Ctrl-C."""


def export(
    source: Annotated[
        str, argument(metavar="FROM", help="Output of a crawl: a file, an fsspec URL, or - for standard input.")
    ],
    target: Annotated[
        str,
        argument(
            metavar="TO",
            help="File or fsspec URL to write; the ending selects the format. Or a database (postgresql://…). "
            "-: standard output.",
        ),
    ],
    *,
    items: Annotated[bool, option("--items", help="Write only the items.")] = False,
    pages: Annotated[bool, option("--pages", help="Write only the pages.")] = False,
    force: Annotated[bool, option("--force", "-f", help="Replace TO if it exists.")] = False,
    csv_guard: Annotated[
        bool,
        option("--csv-guard", help="Write a single quote before each cell that a spreadsheet would run as a formula."),
    ] = False,
    output_format: Annotated[
        str, option("--format", metavar="FORMAT", help="Format of standard output, such as csv.")
    ] = "jsonl",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert an output of a crawl into another format.

    The formats are those of `gossamer crawl -o`. CSV, JSON and databases take the items, or the pages if there are no
    items; the other formats take both. What the new format cannot hold is said with counts.

    gossamer export pages.jsonl items.csv

    gossamer export pages.jsonl.zst - --format csv --pages | head

    Exit code: 0 converted; 1 the target could not be written; 2 bad input; 130 interrupted.
    """
    if csv_guard and _ending(target, output_format) != CSV:
        raise BadInput(f"--csv-guard: {target} is no CSV file. Name one, for example items.csv, or omit the option.")
    choices = ExportOptions(csv_guard=csv_guard)
    if items or pages:
        choices.records = "all" if items and pages else "items" if items else "pages"
    done = run_loop(_export(source, target, choices, force=force, output_format=output_format, quiet=quiet))
    _report(done, source, target, as_json=json, quiet=quiet)


async def _export(
    source: str, target: str, choices: ExportOptions, *, force: bool, output_format: str, quiet: bool
) -> Exported:
    """Convert in a thread, so that Ctrl-C ends the export and removes what it began."""
    stopped = threading.Event()
    progress = _Progress(stopped, quiet=quiet or target == "-")
    choices.on_progress = progress.update
    with Interruption(None, terminal.say) as interruption:
        interruption.message_before_work = _ABANDONED
        work = asyncio.create_task(asyncio.to_thread(_convert, source, target, choices, force, output_format))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            with contextlib.suppress(ExportStopped):
                await work
            raise
        finally:
            progress.clear()


class _Progress:
    """Shows the number of records on standard error, and ends the export when it is stopped."""

    def __init__(self, stopped: threading.Event, *, quiet: bool) -> None:
        self._stopped = stopped
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = time.monotonic()
        self._has_shown = False

    def update(self, records: int) -> None:
        """Show this number of records, not too often. Raises ExportStopped if the person wants to stop."""
        if self._stopped.is_set():
            raise ExportStopped
        now = time.monotonic()
        if self._quiet or now - self._shown_at < (_TERMINAL_SECONDS if self._is_terminal else _PLAIN_SECONDS):
            return
        self._shown_at = now
        if self._is_terminal:
            self._has_shown = True
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r{records:,} records read")
                sys.stderr.flush()
        else:
            terminal.say(f"{records:,} records read")

    def clear(self) -> None:
        """Remove the progress from the terminal."""
        if self._has_shown:
            with contextlib.suppress(OSError):
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()


def _convert(source: str, target: str, choices: ExportOptions, force: bool, output_format: str) -> Exported:
    """Convert, with temporary files for what is not a local file."""
    ending = _ending(target, output_format)
    if target == "-":
        terminal.check_open(1)
    with tempfile.TemporaryDirectory(prefix="gossamer-export-") as folder:
        opened = _open_source(source, Path(folder))
        try:
            return export_to(opened, target, ending, choices, Path(folder), replace=force)
        except OutputClosed:  # the reader has enough, as `head` does
            raise SystemExit(0) from None


def _ending(target: str, output_format: str) -> str:
    """Return the ending that selects the format of the target; for standard output, that of --format."""
    if target != "-":
        return ending_of(target)
    ending = "." + output_format.lstrip(".").lower()
    if ending not in ENDINGS:
        known = ", ".join(ending[1:] for ending in ENDINGS)
        raise BadInput(f"--format: cannot write {output_format!r}. Known are {known}.")
    return ending


def _open_source(source: str, folder: Path) -> Source:
    """Return the input. Standard input is copied to a temporary file first, because some formats are read twice."""
    if source != "-":
        return open_source(source, folder)
    terminal.check_open(0)
    path = folder / "input"
    with path.open("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream, _COPIED_BYTES)
    return Source(path, name="standard input")


def _report(done: Exported, source: str, target: str, *, as_json: bool, quiet: bool) -> None:
    """Print the counts and what was lost: on standard error, if the records went to standard output."""
    if as_json:
        values = {"pages": done.pages, "failed": done.failed, "items": done.items, "losses": done.losses}
        terminal.print_result(json_module.dumps(values), on_stderr=target == "-")
        return
    if quiet:
        return
    text = "\n  ".join(done.sentences("standard input" if source == "-" else source, target))
    terminal.print_result(hide_secrets_in(text), on_stderr=target == "-")


DEFAULT_PAGE = Path("report.html")
"""The page if -o is not given. A documented name: must not change."""


def report(
    records: Annotated[
        list[Path], argument(metavar="RECORDS...", help="Outputs of a crawl that have pages.", show_default=False)
    ],
    output: Annotated[Path, option("-o", "--output", metavar="PATH", help="Where to write the page.")] = DEFAULT_PAGE,
    force: Annotated[bool, option("--force", "-f", help="Replace the page and the CSV files that exist.")] = False,
    csv: Annotated[
        Path | None,
        option("--csv", metavar="DIR", help="Folder for the tables as CSV files. Unset: none are written."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a page about a crawl from its records. First comes what failed and why, then everything else.

    The page is one HTML file that loads nothing. Any output with pages will do, also one that a running crawl still
    writes.

    gossamer report pages.jsonl

    Exit code: 0 the page was written; 2 bad input.
    """
    from gossamer.report.page import check_target, make_report, write_page  # late: `gossamer export` needs no Jinja2

    check_target(output, records)
    _check_report(output, records, csv, force=force)
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
        if made.csv_files:
            terminal.print_result(f"{counted(len(made.csv_files), 'table')} as CSV: {csv}")


def _check_report(output: Path, records: list[Path], csv: Path | None, *, force: bool) -> None:
    """Raise BadInput if the page or a CSV file exists and may not be replaced, or a file lists assets."""
    from gossamer.report.page import csv_paths

    if output == Path("-"):
        raise BadInput("-o: a report is not written to standard output. Name a file, for example report.html.")
    if output.exists() and not force:
        raise BadInput(f"{output} exists. Name another file, or replace it with -f.")
    if csv is not None:
        if csv.exists() and not csv.is_dir():
            raise BadInput(f"--csv: {csv} is not a folder. Name a folder for the CSV files.")
        found = next((path for path in csv_paths(csv) if path.exists()), None)
        if found is not None and not force:
            raise BadInput(f"--csv: {found} exists. Name another folder, or replace its tables with -f.")
    for path in records:
        _refuse_manifest(path)


def _refuse_manifest(path: Path) -> None:
    """Raise BadInput for the list of assets in their folder, whose lines look like pages."""
    if path.name != MANIFEST or not path.is_file():
        return
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        line = json_module.loads(file.readline())
        if isinstance(line, dict) and {"sha256", "referrer"} <= line.keys():
            raise BadInput(f"{path} lists assets, not pages. Name an output of the crawl that has its pages.")


def _show_progress(step: str, pages: int) -> None:
    """Show on the terminal how far the report is, on one line."""
    sys.stderr.write(f"\r{step}: {pages:,} \x1b[K")
    sys.stderr.flush()

"""The report as tables: for a terminal and, the same rows, as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable

from bench.results import PEERS, CrawlRow, Figure, Report, SiteResult, ratios

_NOTHING = "–"
_PEER_TITLES = {
    "bare-rust": "Rust",
    "bare-go": "Go",
    "spider": "spider",
    "colly": "colly",
    "scrapy": "Scrapy",
    "scrapy-redis": "s.-redis",
    "floor": "floor",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header and rows of text; all but the first column are figures unless `texts` names them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: frozenset[int] = frozenset({0})


def tables(report: Report) -> list[Table]:
    """Everything that was measured."""
    found = []
    for site in report.sites:
        found += [_crawls(site), _times(site)]
    if report.frontier:
        found.append(_figures("The frontier alone", report.frontier))
    if report.service:
        found.append(_figures("The service", report.service))
    return found


def _crawls(site: SiteResult) -> Table:
    header = ["", "pages", "pages/s", "pages/CPU-s", "CPU s", "start-up", "web CPU s", "Valkey CPU s", "peak MB", ""]
    rows = []
    for row in site.rows:
        cells = [row.title]
        if row.measured:
            cells += [
                f"{row.pages:,}",
                f"{row.pages_per_second:,.0f}",
                f"{row.pages_per_cpu_second:,.0f}",
                f"{row.cpu_seconds:.2f}",
                f"{row.startup_cpu_seconds:.2f}",
                f"{row.web_cpu_seconds:.2f}",
                f"{row.store_cpu_seconds:.2f}" if row.store_cpu_seconds else _NOTHING,
                f"{row.peak_bytes / 1e6:,.0f}",
            ]
        else:
            cells += [_NOTHING] * 8
        rows.append([*cells, row.note])
    title = f"Site {site.name}: {site.description}, served by {site.server}"
    return Table(title, header, rows, frozenset({0, len(header) - 1}))


def _times(site: SiteResult) -> Table:
    """Each row against each peer: everything included, and without start and end in brackets."""
    header = [f"Site {site.name}, per CPU-second", *(f"x {_PEER_TITLES[peer]}" for peer in PEERS)]
    return Table("", header, [[row.title, *_ratio_cells(row, site.rows)] for row in site.rows if row.measured])


def _ratio_cells(row: CrawlRow, rows: Sequence[CrawlRow]) -> list[str]:
    whole, running = ratios(row, rows), ratios(row, rows, running=True)
    cells = []
    for peer in PEERS:
        cell = f"{whole[peer]:.2f}" if peer in whole else _NOTHING
        if peer in running:
            cell += f" ({running[peer]:.2f})"
        cells.append(cell)
    return cells


def _figures(title: str, figures: Sequence[Figure]) -> Table:
    rows = [[f.name, number(f.value), f.unit, f.wanted, f.note] for f in figures]
    return Table(title, ["", "measured", "unit", "promised", ""], rows, frozenset({0, 2, 3, 4}))


def number(value: float) -> str:
    """With as many digits as mean something."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def show(report: Report, console: Console) -> None:
    """Print it for a person."""
    console.print(report.machine)
    for table in tables(report):
        shown = RichTable(title=table.title or None, title_justify="left", title_style="bold")
        with_notes = table.header[-1:] != [""] or any(row[-1] for row in table.rows)
        for index, name in enumerate(table.header if with_notes else table.header[:-1]):
            is_text = index in table.texts
            shown.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text or index == 0)
        for row in table.rows:
            shown.add_row(*(row if with_notes else row[:-1]))
        console.print(shown)
    console.print(
        "pages/CPU-s and ratios: pages per CPU-second of the crawling processes and of the Valkey beside them, all "
        "included; in brackets without start-up."
    )


def markdown(report: Report) -> str:
    """Return the tables as Markdown."""
    parts = [report.machine]
    for table in tables(report):
        lines = [f"**{table.title}**\n"] if table.title else []
        lines.append("| " + " | ".join(table.header) + " |")
        lines.append(
            "|" + "|".join("---" if index in table.texts else "---:" for index in range(len(table.header))) + "|"
        )
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"

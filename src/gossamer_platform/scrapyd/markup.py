"""HTML of tables, times and links on the pages for people. Text is escaped unless it is `Html`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from urllib.parse import quote, urlencode

from gossamer.web.html import Html, html_of
from gossamer_platform.scrapyd.frame import PageFrame


def long_text(text: str) -> Html:
    """Return a text. Of one with several lines, such as a traceback, the last line is open."""
    *before, last = text.strip().splitlines() or [""]
    return (
        Html(f"<details><summary>{html_of(last)}</summary><pre>{html_of(text)}</pre></details>")
        if before
        else html_of(last)
    )


def link(frame: PageFrame, path: str, text: object) -> Html:
    """Return a link to a path of this server, which is quoted already."""
    return Html(f'<a href="{frame.address(path)}">{html_of(text)}</a>')


def file_link(frame: PageFrame, path: str | None, text: str) -> Html:
    """Return a link to a file of this server by its plain path. None: an empty text."""
    return Html("") if path is None else link(frame, quote(path), text)


def job_link(frame: PageFrame, number: int) -> Html:
    """Return a link to the page of a job."""
    return link(frame, f"/jobs/{number}", number)


def state(word: str, text: object = None) -> Html:
    """Return a state in its colour. `text`: what is shown in place of the word."""
    return Html(f'<span class="{html_of(word)}">{html_of(word if text is None else text)}</span>')


def time(at: float | None, zone: tzinfo = UTC) -> Html:
    """Return a time, in seconds since 1970, with its zone. None: an empty text."""
    if at is None:
        return Html("")
    shown = datetime.fromtimestamp(int(at), zone)
    return Html(f'<time datetime="{shown.isoformat()}">{shown:%Y-%m-%d %H:%M:%S} {html_of(str(zone))}</time>')


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    return str(timedelta(seconds=max(0, int(seconds))))


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, which a narrow window shows as a list."""
    head = "".join(f"<th>{html_of(title)}</th>" for title in titles)
    lines = (
        "<tr>"
        + "".join(
            f'<td data-title="{html_of(title)}">{html_of(value)}</td>' for title, value in zip(titles, row, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="list">\n<thead>\n<tr>{head}</tr>\n</thead>\n'
        f"<tbody>\n{''.join(lines)}</tbody>\n</table></div>\n"
    )


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names with their values, without those that have none (None or an empty text)."""
    shown = ((name, html_of(value)) for name, value in pairs)
    return (
        "<dl>\n" + "".join(f"<dt>{html_of(name)}</dt><dd>{value}</dd>\n" for name, value in shown if value) + "</dl>\n"
    )


def pager(frame: PageFrame, path: str, query: Mapping[str, str], *, after: object, is_first: bool) -> str:
    """Return links to the first and to the next page. `after`: cursor of the next page; None or empty: this is the
    last one."""
    first = [] if is_first else [link(frame, _with_query(path, query), "First page")]
    following = [link(frame, _with_query(path, {**query, "after": str(after)}), "Next page")] if after else []
    return f'<p class="more">{"".join([*first, *following])}</p>\n' if first or following else ""


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path

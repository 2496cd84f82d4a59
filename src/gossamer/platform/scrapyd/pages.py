"""Scrapyd's pages `/` and `/jobs`.

ScrapydWeb and other clients read them with regular expressions. Fixed: the heading of /jobs, the order of its columns
up to `Items`, cells without attributes, one cell a line, times without fractions, and `<th colspan>` in the rows with
titles. Columns may be added at the end, and the style may be changed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any

from sqlalchemy import Row

from gossamer.platform.lifecycle import JobState
from gossamer.platform.scrapyd.config import ScrapydConfig
from gossamer.platform.scrapyd.files import ServedFiles

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Scrapyd</title>
    <style>
        body { font-family: system-ui, sans-serif; }
        table { border-collapse: collapse; }
        th, td { border: 1px solid #999; padding: .4rem; text-align: left; vertical-align: top; }
        tbody > tr:first-child { background-color: #eee; }
        td:nth-child(2), td:nth-child(3) { word-break: break-all; }
        form { margin: 0; }
    </style>
</head>
<body>
"""


def home(projects: Sequence[str], config: ScrapydConfig, prefix: str) -> str:
    """Return the page `/`. `prefix`: path below which a proxy serves this server."""
    links = [("jobs", "Jobs")]
    links += [("items/", "Items")] if config.has_local_items else []
    links += [("logs/", "Logs")] if config.logs_dir else []
    listed = "\n".join(f'    <li><a href="{escape(prefix)}/{path}">{title}</a></li>' for path, title in links)
    names = "\n".join(f"    <li>{escape(name)}</li>" for name in sorted(projects))
    known = f"<p>Scrapy projects:</p>\n<ul>\n{names}\n</ul>" if projects else "<p>No Scrapy projects yet.</p>"
    return f"""{_HEAD}<h1>Scrapyd</h1>
<p>Served by Gossamer on {escape(config.node_name)}.</p>
<ul>
{listed}
</ul>
{known}
<p>Deploy projects and schedule jobs with a client of Scrapyd, or with curl:</p>
<p><code>curl http://localhost:{config.http_port}/schedule.json -d project=default -d spider=somespider</code></p>
</body>
</html>
"""


class JobsPage:
    """The page `/jobs`."""

    def __init__(self, config: ScrapydConfig, files: ServedFiles, prefix: str) -> None:
        self._files = files
        self._prefix = escape(prefix)
        self._with_cancel = "cancel.json" in config.services
        self._columns = ["Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log"]
        self._columns += ["Items"] if config.has_local_items else []
        self._columns += ["Cancel"] if self._with_cancel else []
        self._columns += ["Result"]

    def render(self, live: Sequence[Row[Any]], ended: Iterable[Row[Any]], now: float) -> str:
        """Return the page. `live`: jobs that have not ended."""
        pending = [job for job in live if job.started_at is None]
        running = [job for job in live if job.started_at is not None]
        titles = "".join(f"            <th>{name}</th>\n" for name in self._columns)
        sections = [("Pending", pending), ("Running", running), ("Finished", ended)]
        bodies = "".join(self._section(title, jobs, now) for title, jobs in sections)
        return f"""{_HEAD}<h1>Jobs</h1>
<p><a href="./">Go up</a></p>
<table id="jobs">
    <thead>
        <tr>
{titles}        </tr>
    </thead>
{bodies}</table>
</body>
</html>
"""

    def _section(self, title: str, jobs: Iterable[Row[Any]], now: float) -> str:
        rows = "".join(self._row(job, now) for job in jobs)
        head = f'        <tr>\n            <th colspan="{len(self._columns)}">{title}</th>\n        </tr>\n'
        return f"    <tbody>\n{head}{rows}    </tbody>\n"

    def _row(self, job: Row[Any], now: float) -> str:
        cells = self._cells(job, now)
        return (
            "        <tr>\n" + "".join(f"            <td>{cells.get(name, '')}</td>\n" for name in self._columns)
        ) + "        </tr>\n"

    def _cells(self, job: Row[Any], now: float) -> dict[str, str]:
        cells = {"Project": escape(job.project), "Spider": escape(job.spider), "Job": escape(job.name)}
        started, ended = job.started_at, job.ended_at
        if ended is not None and started is None:
            started = ended  # it could not be started
        if started is not None:
            cells["Start"] = _seconds(started)
            cells["Runtime"] = str(timedelta(seconds=max(0, int((now if ended is None else ended) - started))))
            cells["Log"] = self._link(self._files.log_url(job), "Log")
            cells["Items"] = self._link(self._files.items_url(job), "Items")
        if ended is None:
            cells["PID"] = str(job.pid) if started is not None else ""
            cells["Cancel"] = self._cancel_button(job) if self._with_cancel else ""
            cells["Result"] = "stopping" if job.state == JobState.STOPPING else ""
        else:
            cells["Finish"] = _seconds(ended)
            cells["Result"] = escape(f"{job.state}: {job.reason}" if job.reason else job.state)
        return cells

    def _link(self, url: str | None, title: str) -> str:
        return "" if url is None else f'<a href="{self._prefix}{escape(url)}">{title}</a>'

    def _cancel_button(self, job: Row[Any]) -> str:
        return f"""
            <form method="post" action="{self._prefix}/cancel.json" onsubmit="return confirm('Are you sure?');">
            <input type="hidden" name="project" value="{escape(job.project)}">
            <input type="hidden" name="job" value="{escape(job.name)}">
            <input type="submit" value="Cancel">
            </form>
            """


def _seconds(at: float) -> str:
    return datetime.fromtimestamp(int(at)).strftime("%Y-%m-%d %H:%M:%S")  # local time, as Scrapyd's

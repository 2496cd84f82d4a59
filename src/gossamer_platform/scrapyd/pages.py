"""Scrapyd's pages `/` and `/jobs`.

ScrapydWeb and other clients read them with regular expressions. Fixed: the heading of /jobs, `<thead>` and `<tr>`
without attributes, the order of the columns up to `Items`, their cells without attributes and on one line, times
without fractions, and `<th colspan>` in the rows with titles. A cell behind them needs an attribute, or clients take it
for an earlier one that is missing. Columns may be added at the end. The style shows the last one, the number, first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import quote

from gossamer.web.html import html_of
from gossamer_platform.lifecycle import JobState
from gossamer_platform.scrapyd import markup
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.files import ServedFiles
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.state.jobs import Job

_SCRIPT: Final = """
<script>
const jobs = document.getElementById("jobs"), search = document.getElementById("search");
const refresh = document.getElementById("refresh");
function filter() {
  const words = search.value.toLowerCase().split(/\\s+/);
  for (const row of document.querySelectorAll("#jobs tbody tr:has(td)"))
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
}
async function load() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const name of ["jobs", "counts"])
    document.getElementById(name).innerHTML = page.getElementById(name).innerHTML;
  filter();
}
search.addEventListener("input", filter);
jobs.addEventListener("submit", async event => {
  event.preventDefault();
  const form = event.target;
  if (!confirm(`Cancel the job ${form.elements.job.value} of ${form.elements.project.value}?`)) return;
  const fields = new URLSearchParams(new FormData(form));
  const answer = await (await fetch(form.action, {method: "POST", body: fields})).json();
  if (answer.status !== "ok") alert(answer.message);
  load();
});
setInterval(() => { if (refresh.checked && !document.hidden) load().catch(() => {}); }, 3000);
document.querySelector(".tools").hidden = false;
</script>"""
"""Filters rows, refreshes the table, and cancels jobs without leaving the page."""


class ProjectSummary(NamedTuple):
    """A project as the page `/` shows it."""

    name: str
    versions: Sequence[str]
    """Names of the versions that jobs can run, the latest last."""


def count_states(live: Iterable[Job], ended: Iterable[Job]) -> Mapping[str, int]:
    """Return the number of jobs by the state that the pages show. `live`: jobs that have not ended."""
    shown = ["pending" if job.started_at is None else "running" for job in live] + [job.state for job in ended]
    return Counter(shown)


def home(projects: Sequence[ProjectSummary], counts: Mapping[str, int], frame: PageFrame, *, more: str) -> str:
    """Return the page `/`. `counts`: see `count_states`; `more`: last project of the page if others follow, or
    nothing."""
    rows = [
        (
            markup.link(frame, f"/projects/{quote(each.name, safe='')}", each.name),
            each.versions[-1] if each.versions else "",
            len(each.versions),
        )
        for each in projects
    ]
    known = (
        markup.table(("Project", "Latest version", "Versions"), rows)
        + markup.pager(frame, "/", {}, after=more, is_first=True)
        if projects
        else '<p class="soft">No Scrapy projects yet. Deploy one as below, or with <code>scrapyd-deploy</code>.</p>'
    )
    server = frame.server
    body = f"""{_introduction(frame)}
{_counts(counts)}
<h2>Projects</h2>
{known}
<h2>Deploy and run</h2>
<p class="soft">In the folder of a Scrapy project:</p>
<pre>gossamer deploy {server}
gossamer schedule SPIDER --target {server} --follow
gossamer jobs --target {server}
gossamer job NUMBER --target {server} --log</pre>
<p class="soft">Without an address, commands use the section <code>[deploy]</code> of scrapy.cfg. NUMBER is
in the first column of <a href="{frame.address("/jobs")}">/jobs</a>. Clients of Scrapyd work, too:</p>
<pre>curl {server}/schedule.json -d project=PROJECT -d spider=SPIDER</pre>
<p class="soft">The platform's own API is described in
<a href="{frame.address("/v1/openapi.json")}">/v1/openapi.json</a>.</p>"""
    return frame.page("Gossamer", body)


def _introduction(frame: PageFrame) -> str:
    if not frame.is_manager:
        return """<h1>Scrapyd</h1>
<p class="soft">Served by Gossamer. Clients of Scrapyd work with this server.</p>"""
    places = "".join(
        f"<li>{markup.link(frame, each.path, each.name)}: {each.content}</li>\n" for each in frame.places()
    )
    return f"""<h1>Gossamer</h1>
<p class="soft">A manager of Scrapy projects: it accepts projects and jobs, and nodes run the jobs. Clients of Scrapyd
work with it.</p>
<ul>
{places}</ul>"""


def _counts(counts: Mapping[str, int]) -> str:
    shown = ("pending", "running", "finished", "failed", "cancelled")
    cells = "".join(f"<li><b>{counts.get(name, 0)}</b>{name}</li>" for name in shown)
    return f'<ul class="counts" id="counts">{cells}</ul>'


class JobsPage:
    """The page `/jobs`."""

    def __init__(self, config: ScrapydConfig, files: ServedFiles, frame: PageFrame) -> None:
        self._files = files
        self._frame = frame
        self._with_cancel = "cancel.json" in config.services
        self._columns = ["Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log"]
        self._columns += ["Items"] if config.has_local_items else []
        self._read_by_clients = len(self._columns)
        self._columns += ["Cancel"] if self._with_cancel else []
        self._columns += ["Result", "Number"]

    def render(self, live: Sequence[Job], ended: Sequence[Job], now: float) -> str:
        """Return the page. `live`: jobs that have not ended."""
        pending = [job for job in live if job.started_at is None]
        running = [job for job in live if job.started_at is not None]
        titles = "".join(f"            <th>{name}</th>\n" for name in self._columns)
        sections = [("Pending", pending), ("Running", running), ("Finished", ended)]
        bodies = "".join(self._section(title, jobs, now) for title, jobs in sections)
        zone = datetime.fromtimestamp(now).astimezone()
        body = f"""<h1>Jobs</h1>
{_counts(count_states(live, ended))}
<p class="soft">Times are local to the server, {html_of(zone.strftime("%Z (UTC%z)"))}.</p>
<div class="tools" hidden>
<input type="search" id="search" placeholder="Filter" aria-label="Filter by project, spider, job, result or number">
<label><input type="checkbox" id="refresh" checked> Refresh every 3 seconds</label>
</div>
<div class="scroll">
<table id="jobs" style="--columns: {len(self._columns)}">
    <thead>
        <tr>
{titles}        </tr>
    </thead>
{bodies}</table>
</div>
{_SCRIPT}"""
        return self._frame.page("Jobs", body, here="/jobs")

    def _section(self, title: str, jobs: Iterable[Job], now: float) -> str:
        width = len(self._columns)
        rows = "".join(self._row(job, now) for job in jobs)
        rows = (
            rows
            or f'        <tr class="none">\n            <td class="none" colspan="{width}">None</td>\n        </tr>\n'
        )
        head = f'        <tr>\n            <th colspan="{width}">{title}</th>\n        </tr>\n'
        return f"    <tbody>\n{head}{rows}    </tbody>\n"

    def _row(self, job: Job, now: float) -> str:
        cells = self._cells(job, now)
        read = "".join(
            f"            <td>{cells.get(name, '')}</td>\n" for name in self._columns[: self._read_by_clients]
        )
        cancel = f'            <td class="cancel">{cells["Cancel"]}</td>\n' if self._with_cancel else ""
        state = _shown_state(job)
        result = f'            <td class="result {state}">{cells["Result"]}</td>\n'
        page = f'<a class="job" href="{self._frame.address(f"/jobs/{job.id}")}">{job.id}</a>'  # gossamer job takes it
        number = f'            <td class="number">{page}</td>\n'
        return f"        <tr>\n{read}{cancel}{result}{number}        </tr>\n"

    def _cells(self, job: Job, now: float) -> dict[str, str]:
        cells = {"Project": html_of(job.project), "Spider": html_of(job.spider), "Job": html_of(job.name), "Cancel": ""}
        started, ended = job.started_at, job.ended_at
        if ended is not None and started is None:
            started = ended  # it could not be started
        if started is not None:
            cells["Start"] = _seconds(started)
            cells["Runtime"] = str(timedelta(seconds=max(0, int((now if ended is None else ended) - started))))
            cells["Log"] = self._link(self._files.log_url(job), "Log")
            cells["Items"] = self._link(self._files.items_url(job), "Items")
        state = _shown_state(job)
        cells["Result"] = html_of(f"{state}: {job.reason}" if job.reason else state)
        if ended is None:
            cells["PID"] = str(job.pid) if started is not None else ""
            cells["Cancel"] = self._cancel_button(job) if self._with_cancel else ""
        else:
            cells["Finish"] = _seconds(ended)
        return cells

    def _link(self, url: str | None, title: str) -> str:
        return "" if url is None else f'<a href="{self._frame.address(quote(url))}">{title}</a>'

    def _cancel_button(self, job: Job) -> str:
        return f"""
            <form method="post" action="{self._frame.address("/cancel.json")}">
            <input type="hidden" name="project" value="{html_of(job.project)}">
            <input type="hidden" name="job" value="{html_of(job.name)}">
            <input type="submit" value="Cancel">
            </form>
            """


def _shown_state(job: Job) -> str:
    """Return the state; of a job that has not ended, what the section does not say, or an empty text."""
    if job.ended_at is None and job.state != JobState.STOPPING:
        return "starting" if job.state == JobState.STARTING else ""
    return job.state


def _seconds(at: float) -> str:
    return datetime.fromtimestamp(int(at)).strftime("%Y-%m-%d %H:%M:%S")  # local time, as Scrapyd's

"""Frame of the pages for people: head, style, navigation. Every page of Scrapyd's interface is put into it.

A page loads nothing from elsewhere and works without scripts. The style must not depend on attributes of rows and cells
which clients read with regular expressions (`pages.py` and `listing.py` name them).
"""

from typing import Final, NamedTuple

from gossamer.web.html import html_of
from gossamer_platform.scrapyd.config import ScrapydConfig

_STYLE: Final = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #5d6b7e; --line: #dfe4ea;
  --accent: #1f5fbf; --good: #1a7f4b; --bad: #c0322b; --warn: #96620a; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --card: #1a2029; --text: #e4e9f0; --soft: #95a3b6;
  --line: #2d3642; --accent: #7fb0ff; --good: #5ccb92; --bad: #ff8a80; --warn: #e6b45c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
header { display: flex; gap: 1.5rem; align-items: baseline; flex-wrap: wrap; padding: .8rem 1.5rem;
  background: var(--card); border-bottom: 1px solid var(--line); }
header .node { color: var(--soft); margin-left: auto; }
header a { color: var(--soft); padding-bottom: .2rem; }
header a.here { color: var(--text); border-bottom: 2px solid var(--accent); }
header .name { color: var(--text); font-weight: 650; }
main { max-width: 1500px; margin: 0 auto; padding: 1rem 1.5rem 3rem; }
h1 { font-size: 1.5rem; margin: .6rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.soft { color: var(--soft); }
.counts { display: flex; gap: .8rem; flex-wrap: wrap; margin: 0 0 1.2rem; padding: 0; list-style: none; }
.counts li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .5rem 1rem;
  color: var(--soft); }
.counts b { display: block; font-size: 1.4rem; color: var(--text); line-height: 1.3; }
.tools { display: flex; gap: 1rem; align-items: center; flex-wrap: wrap; margin-bottom: .8rem; color: var(--soft); }
.tools input[type=search] { width: 16rem; max-width: 100%; }
input[type=search], input[type=submit], select { font: inherit; padding: .25rem .6rem; border: 1px solid var(--line);
  border-radius: 6px; background: var(--card); color: var(--text); }
input[type=submit] { font-size: .85rem; cursor: pointer; }
input[type=submit]:hover { border-color: var(--bad); color: var(--bad); }
form { margin: 0; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; white-space: nowrap; }
tbody th { background: var(--back); font-weight: 600; }
tbody:last-child tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: color-mix(in srgb, var(--accent) 5%, transparent); }
td.none { color: var(--soft); }
.finished, .online, .ready { color: var(--good); }
.failed, .lost, .offline, .broken { color: var(--bad); font-weight: 600; }
.cancelled, .stopping, .draining, .paused { color: var(--warn); }
.running, .building { color: var(--accent); }
td { overflow-wrap: break-word; }
dd { overflow-wrap: anywhere; }
time { white-space: nowrap; }
dl { display: grid; grid-template-columns: minmax(7rem, auto) 1fr; gap: .3rem 1.2rem; margin: 0; padding: .8rem 1rem;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
dt { color: var(--soft); }
dd { margin: 0; }
summary { cursor: pointer; }
progress { width: 7rem; accent-color: var(--good); }
.more { display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  overflow-x: auto; }
#jobs th, #jobs td { padding-left: .6rem; padding-right: .6rem; }
#jobs td { white-space: nowrap; }
#jobs td:nth-child(-n+2):not(.none) { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
#jobs td:nth-child(3) { white-space: normal; overflow-wrap: anywhere; min-width: 9rem;
  font: .85em/1.7 ui-monospace, monospace; }
#jobs td.result { white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
@media (min-width: 641px) { @supports (grid-template-columns: subgrid) {
  #jobs { display: grid; grid-template-columns: repeat(var(--columns), auto); }
  #jobs thead, #jobs tbody, #jobs tr { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; }
  #jobs tr[hidden] { display: none; }
  #jobs [colspan] { grid-column: 1 / -1; }
  #jobs .number, #jobs thead th:last-child { order: -1; } } }
@media (max-width: 640px) {
  header, main { padding-left: .8rem; padding-right: .8rem; }
  header { gap: .4rem 1rem; }
  dl { grid-template-columns: 6rem 1fr; gap: .2rem .6rem; padding: .5rem .8rem; }
  dl time { white-space: normal; }
  .list thead { display: none; }
  .list, .list tbody, .list tr, .list td { display: block; }
  .list tr { padding: .5rem .8rem; border-bottom: 1px solid var(--line); }
  .list td { padding: 0; border: 0; overflow-wrap: anywhere; }
  .list td:empty { display: none; }
  .list td::before { content: attr(data-title) " "; color: var(--soft); }
  .counts { gap: .4rem; }
  .counts li { padding: .3rem .6rem; font-size: .85rem; }
  #jobs thead { display: none; }
  #jobs, #jobs tbody { display: block; }
  #jobs tr { display: flex; flex-wrap: wrap; gap: .1rem .8rem; padding: .5rem .8rem;
    border-bottom: 1px solid var(--line); }
  #jobs tr[hidden], #jobs td:empty { display: none; }
  #jobs th, #jobs td { padding: 0; border: 0; min-width: 0; background: none; }
  #jobs td:nth-child(3) { flex-basis: 100%; }
  #jobs td:nth-child(4):not(:empty)::before { content: "PID "; color: var(--soft); }
  #jobs td:nth-child(5):not(:empty)::before { content: "Start "; color: var(--soft); }
  #jobs td:nth-child(6):not(:empty)::before { content: "Runtime "; color: var(--soft); }
  #jobs td:nth-child(7):not(:empty)::before { content: "Finish "; color: var(--soft); }
  #jobs .number { order: -2; }
  #jobs .result { order: 1; } }
"""


class SitePlace(NamedTuple):
    """A page in the navigation."""

    path: str
    name: str
    content: str


class PageFrame(NamedTuple):
    """Frame of all pages of one server. `prefix`: path below which a proxy serves it."""

    config: ScrapydConfig
    prefix: str
    host: str = ""
    """Name and port by which the client knows this server."""
    is_manager: bool = False
    """True: nodes on other machines run the jobs."""

    @property
    def server(self) -> str:
        """Address of this server for commands, as HTML."""
        return f"http://{html_of(self.host)}{self.address('')}"

    def places(self) -> list[SitePlace]:
        """Return the pages in the navigation."""
        config = self.config
        return [
            SitePlace("/jobs", "Jobs", "jobs that wait or run, and those that ended last"),
            SitePlace("/history", "History", "all jobs, by project, spider and state"),
            SitePlace("/groups", "Groups", "jobs that one command has made, with their progress"),
            SitePlace("/schedules", "Schedules", "times at which jobs are made"),
            *([SitePlace("/nodes", "Nodes", "the machines that run the jobs")] if self.is_manager else []),
            *([SitePlace("/logs/", "Logs", "logs as files")] if config.logs_dir else []),
            *([SitePlace("/items/", "Items", "items as files")] if config.has_local_items else []),
        ]

    def page(self, title: str, body: str, *, here: str = "") -> str:
        """Return a whole page. `body`: HTML; `here`: path of the page in the navigation."""
        node = html_of(self.config.node_name)
        links = "\n".join(
            f'<a class="{"here" if place.path == here else "page"}" href="{self.address(place.path)}">{place.name}</a>'
            for place in self.places()
        )
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html_of(title)} · {node}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<a class="name" href="{self.address("/")}">Gossamer</a>
{links}
<span class="node">{node}</span>
</header>
<main>
{body}
</main>
</body>
</html>
"""

    def problem(self, title: str, reason: str) -> str:
        """Return a page in place of one that cannot be shown."""
        home = f'<p><a class="page" href="{self.address("/")}">Home</a></p>'
        return self.page(title, f"<h1>{html_of(title)}</h1>\n<p>{html_of(reason)}</p>\n{home}")

    def address(self, path: str) -> str:
        """Return the address of a path of this server, for an attribute."""
        return html_of(f"{self.prefix}{path}")

"""Frame of the pages for people: head, style, navigation. Every page of Scrapyd's interface is put into it.

A page loads nothing from elsewhere and works without scripts. The style may be changed; it must not depend on
attributes of rows and cells which clients read with regular expressions (`pages.py` and `listing.py` name them).
"""

from html import escape
from typing import Final, NamedTuple

from gossamer.platform.scrapyd.config import ScrapydConfig

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
.tools input[type=search] { min-width: 16rem; }
input[type=search], input[type=submit] { font: inherit; padding: .25rem .6rem; border: 1px solid var(--line);
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
td.finished { color: var(--good); }
td.failed { color: var(--bad); font-weight: 600; }
td.cancelled, td.stopping { color: var(--warn); }
td.running { color: var(--accent); }
#jobs td { white-space: nowrap; }
#jobs td:nth-child(3) { white-space: normal; overflow-wrap: anywhere; min-width: 9rem;
  font: .85em/1.7 ui-monospace, monospace; }
@media (min-width: 1400px) { #jobs td:nth-child(3) { min-width: 17rem; } }
#jobs td:last-child:not(:first-child) { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  overflow-x: auto; }
"""


class PageFrame(NamedTuple):
    """Frame of all pages of one server. `prefix`: path below which a proxy serves it."""

    config: ScrapydConfig
    prefix: str

    def page(self, title: str, body: str, *, here: str = "") -> str:
        """Return a whole page. `body`: HTML; `here`: path of the page in the navigation."""
        config = self.config
        places = [("/jobs", "Jobs")]
        places += [("/logs/", "Logs")] if config.logs_dir else []
        places += [("/items/", "Items")] if config.has_local_items else []
        links = "\n".join(self._link(path, name, here) for path, name in places)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · {escape(config.node_name)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<a class="name" href="{self.address("/")}">Gossamer</a>
{links}
<span class="node">{escape(config.node_name)}</span>
</header>
<main>
{body}
</main>
</body>
</html>
"""

    def address(self, path: str) -> str:
        """Return the address of a path of this server, for an attribute."""
        return escape(f"{self.prefix}{path}")

    def _link(self, path: str, name: str, here: str) -> str:
        kind = ' class="here"' if path == here else ""
        return f'<a{kind} href="{self.address(path)}">{name}</a>'

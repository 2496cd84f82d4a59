"""Pages of the documentation with commands: which of them are not run, which take long, and a check of one command."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.servers.printed import Shell, Typed, typed_commands
from tests.servers.valkey import free_ports

DOCS = Path(__file__).parents[2] / "docs"
_INSTALLS = "installs packages"
_OF_README = "tests/first_commands.py runs it"
_ENDLESS = "runs until it is stopped"
_FOLLOWS = "follows until a person leaves"
_OF_READER = "names machines or accounts of the reader"
_REAL_SITE = "a real site"
_DATABASE = "needs a database server; tests/stores has them"
_PRACTICE = "gossamer crawl http://site0.test:8080/ --resolve site0.test:127.0.0.1 --rate"


LEFT: dict[str, dict[str, str]] = {
    "../README.md": {
        "python3 -m venv": _OF_README,
        "GOSSAMER_NATIVE=0 pip": _OF_README,
        "gossamer crawl https://example.com": _REAL_SITE,
    },
    "explanation/five-minutes.md": {"python shop.py": "needs Crawlee"},
    "howto/analyse.md": {
        **dict.fromkeys(("python3 -m venv", "source", "pip"), _INSTALLS),
        "cp /path/to/the/checkout": "for Spark, which needs Java",
        "make analytics": "needs Java and Maven",
    },
    "howto/assets.md": {},
    "howto/dashboard.md": {"gossamer up": "the test has started it"},
    "howto/distribute.md": {},
    "howto/extract.md": {},
    "howto/fakeweb.md": {
        "http_proxy=": "needs a project",
        "gossamer crawl http://hostile.test": "takes minutes; `make hostile` crawls these hosts",
    },
    "howto/fresh.md": {},
    "howto/from-scrapy-cloud.md": {},
    "howto/from-scrapy-cluster.md": {"pip": _INSTALLS},
    "howto/from-scrapy-redis.md": {"pip": _INSTALLS},
    "howto/from-scrapyd.md": {"cd /srv/scrapyd": _OF_READER, "gossamer scrapyd": "the test has started it"},
    "howto/from-scrapydweb.md": {
        "logparser": "tests/integration/platform/test_scrapydweb.py runs LogParser",
        "find /srv/scrapyd": _OF_READER,
    },
    "howto/frontier.md": {"GOSSAMER_SHARDS=64": _OF_READER},
    "howto/install.md": dict.fromkeys(
        ("uv", "PIPX", "pipx", "pip install dist/"), "tests/servers/wheel installs so, for a release"
    ),
    "howto/job-files.md": {
        "gossamer jobs log 17 -f": _FOLLOWS,
        "export": _OF_READER,
        "gossamer manager": _ENDLESS,
    },
    "howto/learning-scrapy.md": dict.fromkeys(("python3 -m venv", "source", "pip"), _INSTALLS),
    "howto/limits.md": {},
    "howto/login.md": {
        "gossamer crawl https://example.com --session cookies": _REAL_SITE,
        "gossamer crawl --session shop.yaml --spider": "needs the fields of the reader's site",
        "pip": _INSTALLS,
    },
    "howto/lost-frontier.md": {
        "gossamer dump": "needs a service",
        "gossamer crawls rebuild --request": "needs a service",
        "gossamer crawls export": _OF_READER,
        "gossamer crawls import": _OF_READER,
    },
    "howto/operations.md": {},
    "howto/outputs.md": {
        "export MYSQL_PWD": _DATABASE,
        f"{_PRACTICE} 100/1 --field title=h1 --crawl-id": _DATABASE,
        "mariadb": _DATABASE,
        "GOSSAMER_CRAWL__OUTPUT=ftp": _OF_READER,
        "gossamer crawl https://example.com -o s3": _OF_READER,
    },
    "howto/performance.md": {},
    "howto/pipelines.md": {"pip": _INSTALLS},
    "howto/politely.md": {"gossamer crawl https://example.com": _REAL_SITE},
    "howto/production.md": {
        **dict.fromkeys(("python3 -m venv", "/opt/gossamer/bin/pip"), _INSTALLS),
        **dict.fromkeys(("useradd", "systemctl"), "changes the machine"),
    },
    "howto/proxy.md": {"pip": _INSTALLS, "gossamer variables set": "needs a platform; the page about secrets has it"},
    "howto/render.md": {"apt-get": _INSTALLS, "docker": "needs Docker"},
    "howto/report.md": {"gossamer report machine-1.jsonl": _OF_READER},
    "howto/rest.md": {
        "curl -N": _FOLLOWS,
        'curl -X POST "$api/v1/crawls/shop/prices/retry': "nothing has failed",
        "GOSSAMER_SERVICE__TOKEN": _ENDLESS,
        "curl http://api.example": _OF_READER,
    },
    "howto/resume.md": {},
    "howto/schedules.md": {
        "export SCRAPYD_CRAWL_SERVICE_TOKEN": _OF_READER,
        "gossamer manager": _ENDLESS,
        "gossamer schedules add weekly --crawl": "needs a crawl service",
        "gossamer schedules add prices --crawl": "needs a crawl service",
        "gossamer schedules show prices": "needs a crawl service",
    },
    "howto/scrapy.md": {"pip": _INSTALLS},
    "howto/secrets.md": {"GOSSAMER_SECRET_KEYS_FILE=": _ENDLESS},
    "howto/service.md": {
        "pip": _INSTALLS,
        "gossamer up": "the test has started it",
        "gossamer serve": _OF_READER,
        "gossamer worker": _OF_READER,
    },
    "howto/share.md": {},
    "howto/spider.md": {"gossamer shell": "a prompt"},
    "howto/text.md": {"pip": _INSTALLS, "gossamer feed": "needs a service"},
    "howto/versions.md": {
        "gossamer deploy --version 1.3 --environment isolated": "builds an environment",
        "gossamer projects set environment=isolated": "builds environments from then on",
        "curl 'http://localhost:6800/v1/environments/log": "no environment is built",
    },
    "howto/webhooks.md": {"GOSSAMER_WEBHOOK_NETWORKS": _ENDLESS},
    "howto/why.md": {},
    "index.md": {"": "howto/install.md and ../README.md have its commands"},
    "tutorial/first-crawl.md": dict.fromkeys(("python3 -m venv", "source", "pip"), _INSTALLS),
    "tutorial/fresh.md": {},
    "tutorial/scheduled-job.md": dict.fromkeys(("python3 -m venv", "source", "pip"), _INSTALLS),
}
"""Every page with commands: beginnings of those that are not run, and why."""

LONG = frozenset(
    {"howto/install.md", "howto/learning-scrapy.md", "howto/performance.md", "howto/pipelines.md", "howto/render.md"}
)
"""Pages whose commands take more than a few seconds of CPU: `make printed` runs them, and `make test` does not."""
PORTS = re.compile(r"(?:--port |http\.server |\.test:|localhost:|127\.0\.0\.1:)(\d{4,5})\b")


def runs(*pages: str) -> pytest.MarkDecorator:
    """Run a test once for each of these pages, its parameter `page`."""
    marks = (pytest.mark.long, pytest.mark.timeout(600))
    return pytest.mark.parametrize("page", [pytest.param(page, marks=marks if page in LONG else ()) for page in pages])


def text_of(page: str) -> str:
    """Return the page as it is printed."""
    return (DOCS / page).read_text()


def commands_of(page: str) -> Iterator[Typed]:
    """Yield the commands of a page that are run."""
    yield from (each for each in typed_commands(text_of(page)) if not each.command.startswith((*LEFT[page],)))


def check(shell: Shell, typed: Typed, *, answer: str = "") -> str:
    """Run a command and compare what it prints with the page; return it. `answer`: what a person types."""
    shown_file = shell.folder / typed.command.removeprefix("cat ")
    if re.fullmatch(r"cat \S+", typed.command) and not shown_file.exists():  # the reader has written it
        shown_file.write_text(shell.here("".join(f"{line}\n" for line in typed.shown)))
    done = shell.run(typed.command, typed=answer, until=_has_begun(shell) if typed.is_interrupted else None)
    said = f"{typed.command}\n{done.stdout}{done.stderr}"
    assert shell.missing(typed, done) == [], said
    shows_an_error = any(line.startswith("gossamer: ") for line in typed.shown)
    assert done.returncode == 0 or shows_an_error or typed.is_interrupted, said
    return done.stdout


def _has_begun(shell: Shell) -> Callable[[], bool]:
    """Whether the running command has printed something, or a crawl has fetched pages."""
    return lambda: (
        bool(shell.printed.stat().st_size)
        or any(path.read_text().count("\n") > 1 for path in shell.folder.glob("*.jsonl"))
    )


def swaps_of(commands: Iterable[Typed]) -> dict[str, str]:
    """Return a free port for each that the commands name, by what the page prints."""
    printed = sorted(set(PORTS.findall("\n".join("\n".join((each.command, *each.shown)) for each in commands))))
    return dict(zip(printed, map(str, free_ports(len(printed))), strict=True))

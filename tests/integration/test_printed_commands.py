"""Commands of the how-tos run as they are printed, and print what the page shows.

Only ports, ids and the site differ: https://example.com is a small web on this machine. `LEFT` has the commands of
these pages that are not run, and `NOT_RUN` the pages of which none is, with the reasons.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.valkey.embedded import find_server
from tests.servers.printed import Done, Shell, Typed, typed_commands
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, project_wheel, scrapyd, spider
from tests.servers.service import up
from tests.servers.valkey import free_ports, wait_until

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_INSTALLS = "installs packages"
_ENDLESS = "runs until it is stopped"
_FOLLOWS = "follows until a person leaves"
_OF_READER = "names machines or accounts of the reader"
_REAL_SITE = "a real site"
_DATABASE = "needs a database server; tests/stores has them"
_RESOLVE = {"GOSSAMER_FETCH__RESOLVE": '{"site0.test": "127.0.0.1"}'}
_PRACTICE = "gossamer crawl http://site0.test:8080/ --resolve site0.test:127.0.0.1 --rate"

LEFT: dict[str, dict[str, str]] = {
    "../README.md": {"python3 -m venv": _INSTALLS, "pip": _INSTALLS, "gossamer crawl https://example.com": _REAL_SITE},
    "howto/assets.md": {},
    "howto/dashboard.md": {"gossamer up": "the test has started it"},
    "howto/extract.md": {},
    "howto/fakeweb.md": {
        "http_proxy=": "needs a project",
        "gossamer crawl http://hostile.test": "takes minutes; `make hostile` crawls these hosts",
    },
    "howto/from-scrapyd.md": {"cd /srv/scrapyd": _OF_READER, "gossamer scrapyd": "the test has started it"},
    "howto/from-scrapydweb.md": {
        "logparser": "tests/integration/platform/test_scrapydweb.py runs LogParser",
        "find /srv/scrapyd": _OF_READER,
    },
    "howto/frontier.md": {"GOSSAMER_SHARDS=64": _OF_READER},
    "howto/install.md": dict.fromkeys(("python3 -m venv", "source", "pip", "uv"), _INSTALLS),
    "howto/job-files.md": {
        "gossamer jobs log 17 -f": _FOLLOWS,
        "export": _OF_READER,
        "gossamer manager": _ENDLESS,
    },
    "howto/limits.md": {},
    "howto/lost-frontier.md": {
        "gossamer dump": "needs a service",
        "gossamer rebuild --request": "needs a service",
        "gossamer crawls export": _OF_READER,
        "gossamer crawls import": _OF_READER,
    },
    "howto/login.md": {
        "gossamer crawl https://example.com --session cookies": _REAL_SITE,
        "gossamer crawl --session shop.yaml --spider": "needs the fields of the reader's site",
        "pip": _INSTALLS,
    },
    "howto/outputs.md": {
        "export MYSQL_PWD": _DATABASE,
        f"{_PRACTICE} 100/1 --field title=h1 --crawl-id": _DATABASE,
        "mariadb": _DATABASE,
        "GOSSAMER_CRAWL__OUTPUT=ftp": _OF_READER,
        "gossamer crawl https://example.com -o s3": _OF_READER,
    },
    "howto/politely.md": {"gossamer crawl https://example.com": _REAL_SITE},
    "howto/proxy.md": {"pip": _INSTALLS, "gossamer variables set": "needs a platform; the page about secrets has it"},
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
    "howto/why.md": {
        "gossamer crawl http://site0.test:8082/ --resolve '*.test:127.0.0.1' --rate 20/1": "takes 20 seconds",
        "jq -r 'select(.success == false)": "reads the file of the crawl of 20 seconds",
    },
}
"""Beginnings of commands that are not run, on each page whose other commands are."""

NOT_RUN = {
    "explanation/architecture.md": "no commands of a reader",
    "explanation/five-minutes.md": "compares with programs that are not installed here",
    "howto/analyse.md": "tests/integration/test_analyse.py runs its programs; the rest needs Java and Maven",
    "howto/distribute.md": "needs several servers; tests/integration/platform/test_distributed_links.py",
    "howto/fetcher.md": "needs a package with a fetcher; tests/integration/test_fetch_foreign.py has one",
    "howto/fresh.md": "crawls that run for ever; tests/integration/test_tutorials.py runs a round",
    "howto/from-scrapy-cloud.md": "tests/integration/platform/test_cloud_clients.py runs shub",
    "howto/from-scrapy-cluster.md": "needs Kafka; tests/integration/scrapy_lane/test_from_scrapy_cluster.py",
    "howto/from-scrapy-redis.md": "needs a queue; tests/integration/scrapy_lane/test_migration.py has one",
    "howto/learning-scrapy.md": "takes a quarter of an hour; tests/acceptance/test_properties.py has the project",
    "howto/operations.md": "needs several machines; tests/integration/platform/test_nodes.py",
    "howto/performance.md": "measures for minutes; `make bench-cases` runs them",
    "howto/pipelines.md": "tests/unit/docs/test_pipelines_page.py runs its code",
    "howto/production.md": "needs a cluster; tests/unit/deploy checks the files",
    "howto/python.md": "tests/integration/python_api/test_howto.py runs its programs",
    "howto/render.md": "needs Chromium; tests/integration/render has it",
    "howto/scrapy.md": "needs a project; tests/integration/scrapy_lane has some",
    "tutorial/first-crawl.md": "tests/integration/test_tutorials.py",
    "tutorial/fresh.md": "tests/integration/test_tutorials.py",
    "tutorial/scheduled-job.md": "tests/integration/platform/test_tutorial_scheduled_job.py",
}
"""Pages of which nothing is run here."""

_FILES = {
    "howto/extract.md": ("fields.yaml", "yaml", "--extract fields.yaml"),
    "howto/spider.md": ("shop.py", "python", "--spider shop.py"),
}
"""The file that the reader of a page writes, the language of its first block, and the option that reads it."""
_BEFORE = {
    "howto/assets.md": """mkdir site && echo 1 > site/a.png && echo 2 > site/b.pdf
        echo '<p>A page. <img src="/a.png"> <a href="/b.pdf">a</a>' > site/index.html""",
    "howto/lost-frontier.md": """gossamer crawl https://example.com --rate 5/1 -o docs.jsonl
        sed -i 20q docs.jsonl; rm -r .gossamer""",
}
"""What a page takes for granted: files of the reader's site, and a crawl whose frontier has been lost."""
_WEB = "python -m gossamer.fakeweb --port 8080 --hosts 1 --pages 30 --page-bytes 2000"
"""The practice site of a page that starts none."""
_WEBS = {"howto/assets.md": "python -m http.server 8080 --directory site"}
"""The site of a page that needs another one."""
_SITES = re.compile(r"python3? -m (?:gossamer\.fakeweb|http\.server)\b")
_SERVERS = re.compile(rf"{_SITES.pattern}|python3? -m gossamer\.valkey\b|valkey-server\b|proxy\b")
_PORTS = re.compile(r"(?:--port |http\.server |\.test:|localhost:|127\.0\.0\.1:)(\d{4,5})\b")
_OF_PLATFORM = (
    *("limits", "schedules", "job-files", "versions", "secrets"),
    *("from-scrapyd", "from-scrapydweb", "webhooks"),
)
_OF_SERVICE = ("rest", "service", "dashboard")
_BY_THEMSELVES = ("login", "resume", "share")
_ALONE = [page for page in LEFT if Path(page).stem not in (*_OF_PLATFORM, *_OF_SERVICE, *_BY_THEMSELVES)]


def _text(page: str) -> str:
    return (DOCS / page).read_text()


def _typed(page: str) -> Iterator[Typed]:
    """Yield the commands of a page that are run."""
    yield from (each for each in typed_commands(_text(page)) if not each.command.startswith((*LEFT[page],)))


def _check(shell: Shell, typed: Typed, *, answer: str = "") -> str:
    """Run a command and compare what it prints with the page; return it. `answer`: what a person types."""
    shown_file = shell.folder / typed.command.removeprefix("cat ")
    if typed.command.startswith("cat ") and not shown_file.exists():  # the reader has written it
        shown_file.write_text(shell.here("".join(f"{line}\n" for line in typed.shown)))
    done = shell.run(typed.command, typed=answer, until=_has_fetched(shell) if typed.is_interrupted else None)
    said = f"{typed.command}\n{done.stdout}{done.stderr}"
    assert shell.missing(typed, done) == [], said
    shows_an_error = any(line.startswith("gossamer: ") for line in typed.shown)
    assert shows_an_error or done.returncode == 0, said
    return done.stdout


def _has_fetched(shell: Shell) -> Callable[[], bool]:
    return lambda: any(path.read_text().count("\n") > 1 for path in shell.folder.glob("*.jsonl"))


def _swaps(commands: Iterable[Typed]) -> dict[str, str]:
    """Return a free port for each that the commands name."""
    printed = sorted(set(_PORTS.findall("\n".join("\n".join((each.command, *each.shown)) for each in commands))))
    return dict(zip(printed, map(str, free_ports(len(printed))), strict=True))


def test_every_page_with_commands_is_run_or_says_why_not() -> None:
    pages = [path for folder in ("howto", "tutorial", "explanation") for path in (DOCS / folder).glob("*.md")]
    with_commands = {path.relative_to(DOCS).as_posix() for path in pages if "```" in path.read_text()}
    assert {*LEFT, *NOT_RUN} == {*with_commands, "../README.md"}
    assert not {*LEFT} & {*NOT_RUN}


def test_every_reason_is_for_a_command_and_names_files_that_exist() -> None:
    for page, left in LEFT.items():
        commands = [each.command for each in typed_commands(_text(page))]
        assert [words for words in left if not any(one.startswith(words) for one in commands)] == [], page
    for page, reason in NOT_RUN.items():
        for path in re.findall(r"tests/[\w/.]+", reason):
            assert (ROOT / path).exists(), f"{page}: {path}"


@pytest.mark.parametrize("page", _ALONE)
def test_a_page_with_a_practice_site(page: str, tmp_path: Path) -> None:
    commands = list(_typed(page))
    if not any(_SITES.match(each.command) for each in commands):
        commands.insert(0, Typed(_WEBS.get(page, _WEB)))
    ports = _swaps(commands)
    [of_site, *_] = [_PORTS.findall(each.command)[0] for each in commands if _SITES.match(each.command)]
    swaps = {
        **ports, "https://example.com": f"http://site0.test:{ports[of_site]}/", "example.com.jsonl": "site0.test.jsonl",
        "example.com-": "site0.test-", "--rate 5/1": "--rate 100/1", "valkey-server": str(find_server()),
    }  # fmt: skip
    shell = Shell(tmp_path, swaps, _RESOLVE)
    name, language, option = _FILES.get(page, ("", "", "no file"))
    before = _BEFORE.get(page, "")
    with ExitStack() as servers:
        for typed in commands:
            if option in typed.command:
                [code, *_] = re.findall(rf"```{language}\n(.*?)```", _text(page), re.DOTALL)
                (tmp_path / name).write_text(code)
            if _SERVERS.match(typed.command):
                log = servers.enter_context(shell.started(typed.command))
                assert shell.missing(typed, Done([], 0, log.read_text(), "")) == []
                continue
            if before:
                _check(shell, Typed(before))
            before = ""
            _check(shell, typed)


def test_the_page_about_resuming(tmp_path: Path) -> None:
    """A person presses Ctrl-C, and the site is away for a while."""
    web, *commands = _typed("howto/resume.md")
    swaps = {**_swaps([web]), "--rate 5/1": "--rate 20/1"}
    shell = Shell(tmp_path, swaps)
    with ExitStack() as servers:
        servers.enter_context(shell.started(web.command))
        for typed in commands:
            if "--retries 0" in typed.command:
                servers.close()  # "Stop the practice web for the first command, and start it again for the second"
            printed = _check(shell, typed)
            if "--retries 0" in typed.command:
                servers.enter_context(shell.started(web.command))
            if typed.is_interrupted:
                [swaps["site0.test-ea0f9756"]] = re.findall(r"The crawl (\S+) was interrupted", printed)


def test_the_page_about_a_shared_crawl(tmp_path: Path) -> None:
    """Two processes run the same command at once, each in a folder of its own."""
    web, frontier, crawl = _typed("howto/share.md")
    swaps = _swaps((web, frontier))
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    shells = [Shell(folder, swaps) for folder in folders]
    with shells[0].started(web.command), shells[0].started(frontier.command), ThreadPoolExecutor() as both:
        assert all(both.map(lambda shell: _check(shell, crawl), shells))
    assert sum((folder / "site0.test.jsonl").read_text().count("\n") for folder in folders) == 320


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scrapyd, Path]]:
    """A server with a project that has run a job, and the folder of the project."""
    folder = tmp_path_factory.mktemp("project")
    source = spider("prices") + spider("quick")
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n[deploy]\nproject = shop\n")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").write_text("")
    (folder / "shop/settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{FETCHES_NOTHING}")
    (folder / "shop/spiders.py").write_text(f"import scrapy\n{source}")
    (folder / "shop-1.2-py3-none-any.whl").write_bytes(project_wheel(source))
    keys = {"GOSSAMER_SECRET_KEYS": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
    with scrapyd(tmp_path_factory.mktemp("server"), environment=keys) as server:
        assert server.deploy(project_wheel(source), version="1.1")["status"] == "ok"
        server.ended(server.post("schedule", project="shop", spider="prices")["jobid"])
        yield server, folder


@pytest.mark.parametrize("name", _OF_PLATFORM)
def test_a_page_of_the_platform(name: str, platform: tuple[Scrapyd, Path]) -> None:
    server, folder = platform
    swaps = {
        "localhost:6800": f"localhost:{server.port}", "/17": "/1", " 17": " 1", "schedules/3": "schedules/1",
        "alerts.example.com": "127.0.0.1",
    }  # fmt: skip
    shell = Shell(folder, swaps, {"GOSSAMER_PLATFORM_URL": f"http://localhost:{server.port}"})
    for typed in _typed(f"howto/{name}.md"):
        _check(shell, typed, answer="a secret\n")


def test_the_pages_of_a_service(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('{"appid": "mine", "crawlid": "lines", "url": "https://example.com/1"}\n')
    nowhere = {"GOSSAMER_FETCH__RESOLVE": '{"example.com": "127.0.0.1"}'}
    with up(tmp_path, environment=nowhere) as service:
        shell = Shell(tmp_path, {"http://127.0.0.1:5343": service.api})
        for name in _OF_SERVICE:
            for typed in _typed(f"howto/{name}.md"):
                _check(shell, typed)
        [starts] = [each for each in typed_commands(_text("howto/dashboard.md")) if each.command == "gossamer up"]
        assert shell.missing(starts, Done([], 0, service.said(), "")) == []


def test_the_page_about_logins(tmp_path: Path) -> None:
    """From its top to its end; the shop is the practice site for members."""
    page, [port] = "howto/login.md", free_ports(1)
    swaps = {
        "8080": port, "https://shop.example.com/account": f"http://members.test:{port}/p/1",
        "https://shop.example.com": f"http://members.test:{port}", "=…": "=wonderland", "alice@example.com": "alice",
        "{email: user, pass: password}": "{user: user, password: password}",
    }  # fmt: skip
    resolve = {"GOSSAMER_FETCH__RESOLVE": '{"members.test": "127.0.0.1"}'}
    shell = Shell(tmp_path, {name: str(value) for name, value in swaps.items()}, resolve)
    for name, code in re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", _text(page), re.DOTALL):
        (tmp_path / name).write_text(shell.here(code))
    login = {"form": f"http://members.test:{port}/login", "fields": {"user": "user", "password": "password"}}
    accounts = {"alice": {"user": "alice", "password": "wonderland"}}
    (tmp_path / "shop.json").write_text(json.dumps({"accounts": accounts, "login": login}))
    commands = list(_typed(page))
    [web] = [typed for typed in commands if _SERVERS.match(typed.command)]
    with ExitStack() as servers:
        servers.enter_context(shell.started(web.command))
        for typed in commands:
            if typed.command == "gossamer up":
                keys = {**resolve, "GOSSAMER_SECRET_KEYS_FILE": "keys"}
                service = servers.enter_context(up(tmp_path, "--allow-network", "127.0.0.0/8", environment=keys))
                shell.run(f"api={service.api}")
            elif typed != web:
                _check(shell, typed)
            if typed.command.startswith("curl -X DELETE"):
                assert service.stop() == 0  # before the next part of the page
            if typed.command.startswith("gossamer feed"):
                wait_until(lambda: "finished" in shell.run("gossamer info mine one").stdout, "the crawl to finish")

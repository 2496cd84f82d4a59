"""Commands of the documentation run as they are printed, and print what the page shows.

Only ports, ids and the site differ: https://example.com is a small web on this machine. The table of the pages,
`tests/servers/printed_pages.py`, has the commands that are not run, with the reasons.
"""

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.valkey.embedded import find_server
from tests.servers.printed import Done, Shell, Typed, is_command, typed_commands
from tests.servers.printed_pages import DOCS, LEFT, PORTS, check, commands_of, runs, swaps_of, text_of
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, project_wheel, scrapyd, spider
from tests.servers.service import Up, up
from tests.servers.valkey import free_ports, wait_until

_RESOLVE = {"GOSSAMER_FETCH__RESOLVE": '{"site0.test": "127.0.0.1"}'}
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
    "howto/performance.md": """gossamer crawl https://example.com --rate 100/1 --crawl-id prices -o prices.csv
        gossamer bench --pipeline block --pipeline-time 0.1 --items 200 > scrapy.log""",
}
"""What a page takes for granted: files of the reader's site, or a crawl that lost its frontier or was slow."""
_WEB = "python -m gossamer.fakeweb --port 8080 --hosts 1 --pages 30 --page-bytes 2000"
"""The practice site of a page that starts none."""
_WEBS = {"howto/assets.md": "python -m http.server 8080 --directory site"}
"""The site of a page that needs another one."""
_SITES = re.compile(r"python3? -m (?:gossamer\.fakeweb|http\.server)\b")
_SERVERS = re.compile(rf"{_SITES.pattern}|python3? -m gossamer\.valkey\b|valkey-server\b|proxy\b")


def test_every_page_with_commands_is_in_the_table_and_run_by_a_test() -> None:
    folders = ("howto", "tutorial", "explanation", ".")
    pages = [path.relative_to(DOCS).as_posix() for folder in folders for path in (DOCS / folder).glob("*.md")]
    assert {*LEFT} == {page for page in (*pages, "../README.md") if any(typed_commands(text_of(page)))}
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_printed_*.py"))
    assert [page for page in LEFT if any(commands_of(page)) and f'"{page}"' not in tests] == []


@pytest.mark.parametrize("page", LEFT)
def test_each_line_of_a_block_of_commands_begins_with_a_program(page: str) -> None:
    """Else the block has another language: `text` for files and output."""
    assert [each.command for each in typed_commands(text_of(page)) if not is_command(each.command)] == []


@pytest.mark.parametrize("page", LEFT)
def test_every_reason_is_for_a_command_and_names_files_that_exist(page: str) -> None:
    commands = [each.command for each in typed_commands(text_of(page))]
    assert [words for words in LEFT[page] if not any(one.startswith(words) for one in commands)] == []
    paths = re.findall(r"tests/[\w/.]+", " ".join(LEFT[page].values()))
    assert [path for path in paths if not (DOCS.parent / path).exists()] == []


@runs(
    "../README.md",
    "howto/assets.md",
    "howto/extract.md",
    "howto/fakeweb.md",
    "howto/fresh.md",
    "howto/frontier.md",
    "howto/lost-frontier.md",
    "howto/outputs.md",
    "howto/performance.md",
    "howto/politely.md",
    "howto/proxy.md",
    "howto/report.md",
    "howto/spider.md",
    "howto/text.md",
    "howto/why.md",
    "tutorial/fresh.md",
)
def test_a_page_with_a_practice_site(page: str, tmp_path: Path) -> None:
    commands = list(commands_of(page))
    if not any(_SITES.match(each.command) for each in commands):
        commands.insert(0, Typed(_WEBS.get(page, _WEB)))
    ports = swaps_of(commands)
    [of_site, *_] = [PORTS.findall(each.command)[0] for each in commands if _SITES.match(each.command)]
    swaps = {
        **ports, "https://example.com": f"http://site0.test:{ports[of_site]}", "example.com.jsonl": "site0.test.jsonl",
        "example.com-": "site0.test-", "example.com: ": "site0.test: ", "--rate 5/1": "--rate 100/1",
        "valkey-server": str(find_server()),
    }  # fmt: skip
    shell = Shell(tmp_path, swaps, _RESOLVE)
    name, language, option = _FILES.get(page, ("", "", "no file"))
    before = _BEFORE.get(page, "")
    with ExitStack() as servers:
        for typed in commands:
            if option in typed.command:
                [code, *_] = re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)
                (tmp_path / name).write_text(code)
            if _SERVERS.match(typed.command):
                for path in (tmp_path / "site").glob("*"):
                    os.utime(path, (0, 0))  # a Last-Modified has whole seconds, and the page may change these files
                log = servers.enter_context(shell.started(typed.command))
                assert shell.missing(typed, Done([], 0, log.read_text(), "")) == []
                continue
            if before:
                check(shell, Typed(before))
            before = ""
            check(shell, typed)


@runs("howto/install.md")
def test_the_page_about_installing(page: str, tmp_path: Path) -> None:
    """In a copy of the checkout."""
    shell = Shell(tmp_path, {})
    check(shell, Typed(f"(cd {DOCS.parent} && git ls-files -z | tar -c --null --files-from -) | tar -x"))
    for typed in commands_of(page):
        check(shell, typed)


@runs("howto/resume.md")
def test_the_page_about_resuming(page: str, tmp_path: Path) -> None:
    """A person presses Ctrl-C, and the site is away for a while."""
    web, *commands = commands_of(page)
    swaps = {**swaps_of([web]), "--rate 5/1": "--rate 20/1"}
    shell = Shell(tmp_path, swaps)
    with ExitStack() as servers:
        servers.enter_context(shell.started(web.command))
        for typed in commands:
            if "--retries 0" in typed.command:
                servers.close()  # "Stop the practice web for the first command, and start it again for the second"
            printed = check(shell, typed)
            if "--retries 0" in typed.command:
                servers.enter_context(shell.started(web.command))
            if typed.is_interrupted:
                [swaps["site0.test-ea0f9756"]] = re.findall(r"The crawl (\S+) was interrupted", printed)


@runs("howto/share.md")
def test_the_page_about_a_shared_crawl(page: str, tmp_path: Path) -> None:
    """Two processes run the same command at once, each in a folder of its own."""
    web, frontier, crawl = commands_of(page)
    swaps = swaps_of((web, frontier))
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    shells = [Shell(folder, swaps) for folder in folders]
    with shells[0].started(web.command), shells[0].started(frontier.command), ThreadPoolExecutor() as both:
        assert all(both.map(lambda shell: check(shell, crawl), shells))
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


@runs(
    "howto/limits.md",
    "howto/schedules.md",
    "howto/job-files.md",
    "howto/versions.md",
    "howto/secrets.md",
    "howto/from-scrapyd.md",
    "howto/from-scrapydweb.md",
    "howto/webhooks.md",
)
def test_a_page_of_the_platform(page: str, platform: tuple[Scrapyd, Path]) -> None:
    server, folder = platform
    swaps = {
        "localhost:6800": f"localhost:{server.port}", "/17": "/1", " 17": " 1", "schedules/3": "schedules/1",
        "alerts.example.com": "127.0.0.1",
    }  # fmt: skip
    shell = Shell(folder, swaps, {"GOSSAMER_PLATFORM_URL": f"http://localhost:{server.port}"})
    for typed in commands_of(page):
        check(shell, typed, answer="a secret\n")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Path]]:
    """A service, and the folder in which it was started."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "requests.jsonl").write_text('{"appid": "mine", "crawlid": "lines", "url": "https://example.com/1"}\n')
    nowhere = {"GOSSAMER_FETCH__RESOLVE": '{"example.com": "127.0.0.1"}'}
    with up(folder, environment=nowhere) as running:
        yield running, folder


@runs("howto/rest.md", "howto/service.md", "howto/dashboard.md")
def test_a_page_of_a_service(page: str, service: tuple[Up, Path]) -> None:
    running, folder = service
    shell = Shell(folder, {"http://127.0.0.1:5343": running.api})
    for typed in typed_commands(text_of(page)):
        if typed.command == "gossamer up":
            assert shell.missing(typed, Done([], 0, running.said(), "")) == []
    for typed in commands_of(page):
        check(shell, typed)


@runs("howto/login.md")
def test_the_page_about_logins(page: str, tmp_path: Path) -> None:
    """From its top to its end; the shop is the practice site for members."""
    [port] = free_ports(1)
    swaps = {
        "8080": port, "https://shop.example.com/account": f"http://members.test:{port}/p/1",
        "https://shop.example.com": f"http://members.test:{port}", "=…": "=wonderland", "alice@example.com": "alice",
        "{email: user, pass: password}": "{user: user, password: password}",
    }  # fmt: skip
    resolve = {"GOSSAMER_FETCH__RESOLVE": '{"members.test": "127.0.0.1"}'}
    shell = Shell(tmp_path, {name: str(value) for name, value in swaps.items()}, resolve)
    for name, code in re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", text_of(page), re.DOTALL):
        (tmp_path / name).write_text(shell.here(code))
    login = {"form": f"http://members.test:{port}/login", "fields": {"user": "user", "password": "password"}}
    accounts = {"alice": {"user": "alice", "password": "wonderland"}}
    (tmp_path / "shop.json").write_text(json.dumps({"accounts": accounts, "login": login}))
    commands = list(commands_of(page))
    [web] = [typed for typed in commands if _SERVERS.match(typed.command)]
    with ExitStack() as servers:
        servers.enter_context(shell.started(web.command))
        for typed in commands:
            if typed.command == "gossamer up":
                keys = {**resolve, "GOSSAMER_SECRET_KEYS_FILE": "keys"}
                service = servers.enter_context(up(tmp_path, "--allow-network", "127.0.0.0/8", environment=keys))
                shell.run(f"api={service.api}")
            elif typed != web:
                check(shell, typed)
            if typed.command.startswith("curl -X DELETE"):
                assert service.stop() == 0  # before the next part of the page
            if typed.command.startswith("gossamer feed"):
                wait_until(
                    lambda: "finished" in shell.run("gossamer crawls show mine/one").stdout, "the crawl to finish"
                )

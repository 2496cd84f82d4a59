"""Crawls whose outputs are in databases and search servers: killed, with the server killed, and with bad addresses."""

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.extras import install_advice
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, resolving
from tests.servers.program import until
from tests.servers.stores import TYPED, StoreServer, store_server

pytestmark = pytest.mark.timeout(400)  # on a busy machine, a server may take minutes to start
SPEC = WebSpec(hosts=1, pages=40)
SPIDER = """
from gossamer import Spider

class Titles(Spider):
    def parse(self, page):
        for part in range(3):
            yield {"url": f"{page.url}#{part}", "size": "large" if part == 1 else len(page.text)}
        for link in page.links:
            yield page.follow(link.url)
"""


@pytest.fixture(scope="module", params=TYPED)
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with store_server(request.param) as started:
        yield started


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as started:
        yield started


def flags(web: FakeWeb, rate: str) -> list[str]:
    return [*web.seeds(), *resolving(web.resolve_overrides()), "--rate", rate, "--crawl-id", "stores"]


def test_a_crawl_that_is_killed_and_whose_server_is_killed_has_every_record_once(
    server: StoreServer, web: FakeWeb, tmp_path: Path
) -> None:
    (tmp_path / "titles.py").write_text(SPIDER)
    address = server.address()
    watched = tmp_path / "watch.jsonl"
    outputs = ["-o", address, "--pages", "--items", "-o", watched.name, "--pages", "--spider", "titles.py"]
    arguments = command("crawl", *flags(web, "30/1"), *outputs)

    def lines() -> int:
        return watched.read_bytes().count(b"\n") if watched.exists() else 0

    with subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        until(lambda: lines() >= 10 or process.poll() is not None, "the first pages")
        process.kill()
    before = lines()
    said: list[str] = []
    with subprocess.Popen(
        arguments, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        reader = threading.Thread(target=said.extend, args=[process.stderr], daemon=True)
        reader.start()
        until(lambda: lines() > before or process.poll() is not None, "more pages")
        server.kill()
        try:
            until(lambda: any("nothing is lost" in line for line in said) or process.poll() is not None, "the outage")
            assert process.poll() is None, said
        finally:
            server.start()
        summary = process.stdout.read()
        assert process.wait(60) == 0, said
        reader.join(60)
    assert any("can be written again" in line for line in said)
    assert "s3cret" not in "".join(said) + summary
    urls = set(graph(web.site))
    assert Counter(row["url"] for row in server.rows(address, "pages")) == dict.fromkeys(urls, 1)
    expected = {f"{url}#{part}": 1 for url in urls for part in (0, 2)}
    assert Counter(row["url"] for row in server.rows(address, "items")) == expected
    [path] = (tmp_path / ".gossamer/refused").glob("*.jsonl")
    dead = [json.loads(line) for line in path.read_text().splitlines()]
    assert {one["row"]["url"] for one in dead} == {f"{url}#1" for url in urls}
    assert {(one["field"], one["value"]) for one in dead} == {("size", "large")}
    assert "rows; see refused" in summary


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_fresh_crawl_replaces_its_rows_and_no_others(server: StoreServer, web: FakeWeb, tmp_path: Path) -> None:
    address = server.address()
    shared = [*flags(web, "10000/1")[:-1], "--max-pages", "5", "-o", address]
    for arguments in (["first"], ["second"], ["second", "--fresh"]):
        done = gossamer("crawl", *shared[:-4], arguments[0], *shared[-4:], *arguments[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    crawls = Counter(row["crawlid"] for row in server.rows(address, "pages"))
    assert crawls == {"first": 5, "second": 5}


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_no_command_about_a_crawl_shows_the_password_of_its_store(
    server: StoreServer, web: FakeWeb, tmp_path: Path
) -> None:
    address = server.address()
    assert ":s3cret@" in address
    done = gossamer("crawl", *flags(web, "10000/1"), "--max-pages", "2", "-o", address, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = address.replace("s3cret", "***")
    for words in (
        ["list"],
        ["list", "--json"],
        ["show", "stores"],
        ["show", "stores", "--json"],
        ["delete", "stores", "-y"],
    ):
        said = gossamer("crawls", *words, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert shown in said.stdout
        assert "s3cret" not in said.stdout + said.stderr


def test_no_driver_is_imported_unless_an_output_needs_it(tmp_path: Path) -> None:
    program = (
        "import sys; import gossamer.crawling.engine, gossamer.cli.commands.crawl;"
        "from gossamer.sinks.open import open_sinks; from pathlib import Path;"
        "open_sinks(['a.jsonl', 'b.sqlite'], spool_dir=Path('s'));"
        "print({'psycopg', 'pymysql', 'opensearchpy', 'redis'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("module", "address", "words"),
    [
        ("psycopg", "postgresql://me:s3cret@h/d", f"needs psycopg: {install_advice('postgresql')}"),
        ("pymysql", "mysql://me:s3cret@h/d", f"needs PyMySQL: {install_advice('mysql')}"),
        ("redis", "redis://:s3cret@h/0?table=a", f"needs redis: {install_advice('redis')}"),
        ("opensearchpy", "opensearch://me:s3cret@h", f"needs opensearch-py: {install_advice('opensearch')}"),
    ],
)
def test_a_missing_driver_is_named_with_its_package(module: str, address: str, words: str, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None; from gossamer.__main__ import main;"
        f"sys.argv = ['gossamer', 'crawl', 'http://a.test/', '-o', {address!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "s3cret" not in done.stderr


def test_a_password_of_mysql_8_without_the_package_for_it_is_told_in_one_line(tmp_path: Path) -> None:
    """MySQL 8 wants its passwords encrypted. The other side here answers a login as it does."""

    def packet(number: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "little") + bytes([number]) + payload

    plugin = b"caching_sha2_password\0"
    greeting = (
        b"\x0a8.0.36\0"
        + bytes(4)
        + b"a" * 8
        + b"\0\x08\x82\x2d\x02\0\x28\0\x15"
        + bytes(10)
        + b"b" * 12
        + b"\0"
        + plugin
    )

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(packet(0, greeting))
            connection.recv(65536)
            connection.sendall(packet(2, b"\x01\x04"))
            connection.recv(65536)
            connection.sendall(packet(4, b"\x01-----BEGIN PUBLIC KEY-----"))
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"mysql://me:s3cret@127.0.0.1:{listener.getsockname()[1]}/d"
        program = (
            "import sys; sys.modules['cryptography'] = None; from gossamer.__main__ import main;"
            f"sys.argv = ['gossamer', 'crawl', 'http://a.test/', '-o', {address!r}]; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        thread.join(60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install cryptography, or add tls=true" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_an_output_of_a_finished_crawl_is_exported_into_tables(
    server: StoreServer, web: FakeWeb, tmp_path: Path
) -> None:
    (tmp_path / "titles.py").write_text(SPIDER)
    shared = ["crawl", *flags(web, "10000/1"), "--max-pages", "12", "--spider", "titles.py"]
    first = gossamer(*shared, "-o", "all.jsonl", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    requests = len(web.log())
    address = server.address()
    later = gossamer(*shared, "-o", address, cwd=tmp_path)
    assert later.returncode == 0, later.stderr
    assert "Exported 36 items from all.jsonl to " in later.stdout
    assert "12 rows refused" in later.stdout
    assert "s3cret" not in later.stdout + later.stderr
    assert len(web.log()) == requests
    for _ in range(2):
        pages = gossamer("export", "all.jsonl", address, "--pages", cwd=tmp_path)
        assert pages.returncode == 0, pages.stderr
        assert "Exported 12 pages from all.jsonl to " in pages.stdout
        assert "s3cret" not in pages.stdout + pages.stderr
    assert len(server.rows(address, "items")) == 24
    assert set(Counter(row["url"] for row in server.rows(address, "pages")).values()) == {1}
    assert len(server.rows(address, "pages")) == 12
    back = gossamer("export", address, "x.jsonl", cwd=tmp_path)
    assert back.returncode == 2
    assert "Only files can be converted" in back.stderr

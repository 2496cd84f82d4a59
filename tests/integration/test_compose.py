"""The compose files, part by part: each service starts with its command and settings, is healthy, works, and stops."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from gossamer.fakeweb import Answer, FakeWeb, WebSpec, html
from gossamer.net.resolve import parse_override
from gossamer.valkey.embedded import find_server
from tests.servers.composed import Composed, services
from tests.servers.kafka import Broker, broker
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.program import require, until
from tests.servers.valkey import free_ports

VARIABLES = {
    "GOSSAMER_TOKEN": "a token",
    "VALKEY_PASSWORD": "a/b@c \"d\" 'e' \\f %41",
    "POSTGRES_PASSWORD": "p:q@r/s",
}
_ADDRESSES = {"LOG_DIRS", "LISTENERS", "ADVERTISED_LISTENERS", "CONTROLLER_QUORUM_VOTERS"}
"""Settings of the broker that are this machine's own here."""


@contextmanager
def started(*parts: Composed) -> Iterator[None]:
    """Start services, wait until all are healthy, and stop them; each must end well."""
    with ExitStack() as stack:
        for part in parts:
            part.start()
            stack.callback(part.stop)
        for part in parts:
            until(part.is_healthy, "a service to be healthy")
        yield
        assert [part.stop() for part in parts] == [0] * len(parts), [part.said() for part in parts]


def test_one_machine_crawls_with_the_small_file(tmp_path: Path) -> None:
    [service] = services("compose.small.yaml", VARIABLES).values()
    with FakeWeb.start(WebSpec(hosts=1, pages=3)) as web:
        part = Composed(
            service, tmp_path / "gossamer", {"/data": str(tmp_path / "data")},
            GOSSAMER_FETCH__RESOLVE=json.dumps(dict(map(parse_override, web.resolve_overrides()))),
        )  # fmt: skip
        with started(part):
            _crawl(part.port, web.seeds()[0])
        assert [record.status for record in web.log() if record.path != "/robots.txt"] == [200]


def _crawl(port: int, url: str, crawlid: str = "one", **rules: str) -> None:
    """Crawl a page by the service at a port, and wait for the end of the crawl. `rules`: fields of the request."""
    headers = {"Authorization": f"Bearer {VARIABLES['GOSSAMER_TOKEN']}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        assert httpx.get(f"http://127.0.0.1:{port}/v1/crawls").status_code == 401
        order = {"appid": "shop", "crawlid": crawlid, "url": url, "maxdepth": 0, **rules}
        assert client.post("/v1/crawls", json=order).status_code == 201

        def ended() -> bool:
            return bool(client.get(f"/v1/crawls/shop/{crawlid}").json().get("state") == "finished")

        until(ended, "the end of the crawl")


@contextmanager
def _valkey(service: dict[str, Any], folder: Path) -> Iterator[str]:
    """Run the server of the frontier by its command; yield its address."""
    [port] = free_ports(1)
    _, *arguments = service["command"]
    folder.mkdir()
    command = [find_server(), *arguments, "--port", str(port), "--bind", "127.0.0.1"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _configure(kafka: Broker, service: dict[str, Any]) -> None:
    """Start a broker again with the settings of its container, apart from addresses."""
    settings = {name.removeprefix("KAFKA_"): value for name, value in service["environment"].items()}
    lines = [f"{name.replace('_', '.').lower()}={settings[name]}\n" for name in settings.keys() - _ADDRESSES]
    configure: Callable[[], None] = kafka.configure

    def configured() -> None:
        configure()
        kafka.config.write_text(kafka.config.read_text() + "".join(lines))

    kafka.stop()
    kafka.configure = configured  # type: ignore[method-assign]
    kafka.start()


def _database(server: PostgreSql, service: dict[str, Any]) -> str:
    """Make the user and the database of the container, whose password is asked for; return the place in an address."""
    settings = service["environment"]
    user, password = settings["POSTGRES_USER"], settings["POSTGRES_PASSWORD"]
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
    with psycopg.connect(f"host={server.folder} user=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        connection.execute(f"CREATE DATABASE {settings['POSTGRES_DB']} OWNER {user}")
        connection.execute("SELECT pg_reload_conf()")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"host={server.folder} user={user} dbname={settings['POSTGRES_DB']}")
    return f"@/{settings['POSTGRES_DB']}?host={server.folder}"


def test_the_cluster_file_crawls_renders_and_has_a_platform(tmp_path: Path) -> None:
    require("chromium-headless-shell")
    found = services("compose.cluster.yaml", VARIABLES)
    with ExitStack() as stack:
        web = stack.enter_context(FakeWeb.start(WebSpec(hosts=1, pages=3)))
        web.mount("scripted.test", "/", html("<h1>Hats</h1><script>fetch('/hats.json')</script>"))
        web.mount("scripted.test", "/hats.json", Answer(headers=(("Content-Type", "application/json"),), body=b"[]"))
        valkey = stack.enter_context(_valkey(found["valkey"], tmp_path / "valkey"))
        kafka = stack.enter_context(broker())
        _configure(kafka, found["kafka"])
        database = _database(stack.enter_context(postgresql()), found["postgresql"])
        elsewhere = {
            "valkey:6379": valkey,
            "kafka:9092": kafka.servers,
            "@postgresql/gossamer": database,
            "/blobs": str(tmp_path / "blobs"),
        }
        resolved = {"GOSSAMER_FETCH__RESOLVE": json.dumps(dict(map(parse_override, web.resolve_overrides())))}
        service = Composed(found["service"], tmp_path / "service", elsewhere)
        worker = Composed(found["worker"], tmp_path / "worker", elsewhere, **resolved)
        browser = Composed(found["browser-worker"], tmp_path / "browser", elsewhere, **resolved)
        manager = Composed(found["manager"], tmp_path / "manager", elsewhere | {"/data": str(tmp_path / "store")})
        stack.enter_context(started(service, worker, browser, manager))
        _crawl(service.port, web.seeds()[0])
        _crawl(service.port, f"http://scripted.test:{web.port}/", "built", render="always")
        fetched = [record.path for record in web.log() if record.path != "/robots.txt"]
        assert fetched == [urlsplit(web.seeds()[0]).path, "/", "/hats.json"], (
            "only a browser runs the script of the last"
        )
        _platform(manager, found, tmp_path)


def test_the_database_is_healthy_only_once_it_can_be_reached_by_address() -> None:
    """On its first start, the container has a server that makes the database, and listens at a socket only."""
    kind, *check = services("compose.cluster.yaml", VARIABLES)["postgresql"]["healthcheck"]["test"]
    assert kind == "CMD"
    with postgresql() as server:
        [port] = free_ports(1)
        (server.folder / f".s.PGSQL.{port}").symlink_to(server.folder / ".s.PGSQL.5432")
        variables = {"PGHOST": str(server.folder), "PGPORT": str(port)}
        assert server.run_program("pg_isready", check=False, **variables) == 0
        assert server.run_program(*check, check=False, **variables) != 0


def _platform(manager: Composed, found: dict[str, Any], folder: Path) -> None:
    """Start the nodes with the tokens that the manager makes, as the head of the compose file says."""
    url = f"http://127.0.0.1:{manager.port}"
    nodes = []
    for name in ("node-1", "node-2"):
        assert re.search(f"exec manager gossamer tokens make {name} --scope node", _head())
        token = manager.run("tokens", "make", name, "--scope", "node", "--target", url)
        elsewhere = {"http://manager:6800": url, "/data": str(folder / name)}
        # Not as root's node, whose jobs have users that may not be able to run the Python of the tests.
        options = ("--project-users", "off")
        node = Composed(found[name], folder / f"log-{name}", elsewhere, *options, GOSSAMER_NODE_TOKEN=token)
        nodes.append(node)
    for node in nodes:
        node.start()
    try:
        until(lambda: _online(url, nodes) == {"node-1", "node-2"}, "the nodes to be online")
    finally:
        codes = [node.stop() for node in nodes]
    assert codes == [0, 0], [node.said() for node in nodes]


def _online(url: str, nodes: list[Composed]) -> set[str]:
    """Return the names of the nodes that are online. Raises AssertionError if a node has ended."""
    assert all(node.is_healthy() for node in nodes)
    return {node["name"] for node in httpx.get(f"{url}/v1/nodes").json() if node["state"] == "online"}


def _head() -> str:
    return (Path(__file__).parents[2] / "deploy" / "compose.cluster.yaml").read_text().partition("\nname:")[0]

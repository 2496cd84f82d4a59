"""Each rule of security stands once, in the rooms below crawler and platform (`net/`, `web/`).

A second table of addresses, a second pattern for passwords or a second rule for hosts drifts away from the first, and
the drift is a hole. This test finds what such a twin is made of.
"""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "fakeweb/src").rglob("*.py")])
PASSWORD_IN_ADDRESS = re.compile(r"://.*@")
"""A pattern that matches a scheme and an @."""
HTML = re.compile(
    r"</?(a|b|body|details|div|dl|form|g|h[1-6]|html|i|input|li|p|pre|span|svg|t[dhr]|table|text|ul)\b[ />]?"
)


@functools.lru_cache(maxsize=8)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree, which every rule looks at."""
    return tuple(ast.walk(tree))


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the last name of everything that is called or passed on as a function, and of attributes."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, f".{node.attr}"
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the constants of code, without docstrings."""
    docstrings = {
        id(statement.value)
        for node in nodes_of(tree)
        for statement in (getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ())
        if isinstance(statement, ast.Expr)
    }
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def patterns(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts that `re` compiles, also as parts of f-strings."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "re2")), args=[pattern, *_]):
                yield from texts(pattern)


def address_tables(tree: ast.AST) -> Iterator[int]:
    """Networks written out, and the standard library's opinions of addresses, which differ between its versions."""
    names = {".is_global", ".is_private", ".is_link_local", ".is_reserved", ".is_multicast", ".sixtofour", ".teredo"}
    for line, name in calls(tree):
        if name in names or name.lstrip(".") in ("ip_network", "IPv4Network", "IPv6Network"):
            yield line
    private = re.compile(r"(10|127|169\.254|172\.16|192\.168)\.(/\d+)?|169\.254\.169\.254|.*\.0/\d+")
    yield from (line for line, text in texts(tree) if private.fullmatch(text))


def loopback_rules(tree: ast.AST) -> Iterator[int]:
    """Rules for what this machine is."""
    yield from (line for line, name in calls(tree) if name == ".is_loopback")
    yield from (line for line, text in texts(tree) if text == ".localhost")


def host_rules(tree: ast.AST) -> Iterator[int]:
    """Readers of the headers by which web pages are told from programs."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="get" | "getlist"), args=[ast.Constant(value=str(name)), *_]):
                if name.lower() in ("origin", "sec-fetch-site"):
                    yield node.lineno


def secret_comparisons(tree: ast.AST) -> Iterator[int]:
    """Comparisons of secrets."""
    yield from (line for line, name in calls(tree) if "compare_digest" in name)


def hidden_passwords(tree: ast.AST) -> Iterator[int]:
    """Patterns that find passwords in addresses, and masks for them."""
    yield from (line for line, text in patterns(tree) if PASSWORD_IN_ADDRESS.search(text))
    yield from (line for line, text in texts(tree) if "***" in text)


def control_characters(tree: ast.AST) -> Iterator[int]:
    """Tables of characters that act on a terminal: they have the one that overrides the direction of a text, or those
    below the space."""
    yield from (line for line, text in texts(tree) if "\u202e" in text or "\\u202e" in text)
    yield from (line for line, text in patterns(tree) if "\x00-\x1f" in text or "\\x00-\\x1f" in text)


def html_escapes(tree: ast.AST) -> Iterator[int]:
    """Escapes of texts in HTML or XML. Jinja's own, in `markupsafe`, is the only one."""
    modules = ("html.escape", "xml.sax.saxutils.escape", "cgi.escape")
    yield from (line for line, name in calls(tree) if name in modules)
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="html" | "saxutils"), attr="escape"):
                yield node.lineno


def _is_html(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and HTML.search(node.value) is not None


def html_makers(tree: ast.AST) -> Iterator[int]:
    """Pages made without a template: elements in the parts of texts."""
    for node in nodes_of(tree):
        if isinstance(node, ast.JoinedStr):
            yield from (part.lineno for part in ast.walk(node) if _is_html(part))
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")) if HTML.search(text):
                yield node.lineno


def template_engines(tree: ast.AST) -> Iterator[int]:
    """Environments of Jinja, which may escape or not."""
    yield from (line for line, name in calls(tree) if name.startswith("jinja2."))
    for node in nodes_of(tree):
        match node:
            case ast.Import(names=names) if any(name.name.startswith("jinja2") for name in names):
                yield node.lineno


def problem_forms(tree: ast.AST) -> Iterator[int]:
    """Writers of the error format of HTTP interfaces."""
    yield from (line for line, text in texts(tree) if text in ("application/problem+json", "urn:gossamer:problem:"))


def http_servers(tree: ast.AST) -> Iterator[int]:
    """Servers, and limits of their own for requests: the library, and protocols that answer."""
    modules = ("uvicorn", "hypercorn", "http.server", "socketserver", "wsgiref.simple_server", "aiohttp.web")
    calls_of = ("start_server", "create_server", "start_http_server", "start_wsgi_server", "start_unix_server")
    for node in nodes_of(tree):
        match node:
            case ast.Import(names=names) if any(name.name.startswith(modules) for name in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.startswith(modules):
                yield node.lineno
    yield from (line for line, name in calls(tree) if name.rpartition(".")[2] in calls_of)


def listening_sockets(tree: ast.AST) -> Iterator[int]:
    """Sockets that accept connections."""
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sock" | "socket" | "server" | "listener"), attr="listen"):
                yield node.lineno


def event_streams(tree: ast.AST) -> Iterator[int]:
    """Server-sent events."""
    yield from (line for line, text in texts(tree) if text == "text/event-stream")


def body_limits(tree: ast.AST) -> Iterator[int]:
    """Refusals of bodies that are too slow."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Name(id="Problem" | "HTTPException"), args=[ast.Constant(value=408), *_]):
                yield node.lineno


def remote_files(tree: ast.AST) -> Iterator[int]:
    """Drivers of remote storage, whose errors and uploads differ."""
    for node in nodes_of(tree):
        match node:
            case ast.Import(names=names) if any(name.name.startswith("fsspec") for name in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.startswith("fsspec"):
                yield node.lineno


def durable_files(tree: ast.AST) -> Iterator[int]:
    """Files and names that are forced to the disk."""
    yield from (line for line, name in calls(tree) if name in (".fsync", ".fdatasync", "os.fsync", "os.fdatasync"))


def json_encoders(tree: ast.AST) -> Iterator[int]:
    """Encoders of messages, which fail for texts that others write."""
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="json"), attr="Encoder"):
                yield node.lineno
    yield from (line for line, name in calls(tree) if name in ("json.JSONEncoder", "msgspec.json.Encoder"))


def path_segments(tree: ast.AST) -> Iterator[int]:
    """Names that become parts of addresses."""
    yield from (line for line, name in calls(tree) if name == "urllib.parse.quote")


def install_commands(tree: ast.AST) -> Iterator[int]:
    """Commands that install packages, which differ between pip, pipx and uv."""
    yield from (line for line, text in texts(tree) if re.search(r"\b(pip|pipx|tool) install\b", text))


def result_tables(tree: ast.AST) -> Iterator[int]:
    """Tables of a terminal, whose cells may style it, control it, or fail for a bracket in a name."""
    yield from (line for line, name in calls(tree) if name == "rich.table.Table")


def prints(tree: ast.AST) -> Iterator[int]:
    """Results and sentences that are written to a terminal as others have made them."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno


def sql_connections(tree: ast.AST) -> Iterator[int]:
    """Connections to SQL databases: engines of SQLAlchemy, and the drivers' own."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="sqlite3" | "psycopg" | "pymysql"), attr="connect")):
                yield node.lineno
    drivers = {f"{driver}.connect" for driver in ("sqlite3", "psycopg", "pymysql")}
    for line, name in calls(tree):
        if name in drivers or name.rpartition(".")[2] in ("create_engine", "AsyncConnection"):
            yield line


def documents(tree: ast.AST) -> Iterator[int]:
    """Readers of files that people write, which may lose a key, grow without end or fail with a traceback."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml" | "tomllib"), attr=attr)) if "load" in attr:
                yield node.lineno


Rule = Callable[[ast.AST], Iterator[int]]
RULES: dict[Rule, set[str]] = {
    address_tables: {"net/guard.py"},
    loopback_rules: {"net/loopback.py"},
    host_rules: {"web/access.py"},
    secret_comparisons: {"web/access.py"},
    hidden_passwords: {"net/credentials.py"},
    control_characters: {"controls.py"},
    problem_forms: {"web/problems.py"},
    html_escapes: set(),
    html_makers: set(),
    template_engines: {"web/html.py"},
    http_servers: {"web/server.py", "web/connections.py"},
    listening_sockets: {"net/listening.py"},
    event_streams: {"web/streams.py"},
    body_limits: {"web/bodies.py"},
    remote_files: {"storage/remote.py"},
    json_encoders: {"model/json_codec.py"},
    durable_files: {"storage/files.py"},
    path_segments: {"net/paths.py"},
    install_commands: {"extras.py"},
    documents: {"storage/documents.py"},
    result_tables: {"cli/tables.py"},
    prints: set(),
    sql_connections: {"storage/sql/database.py", "storage/sqlite.py"},
}
FALSE_ALARMS = {
    ("address_tables", "crawling/work.py"),  # is_private: a file that only this crawl writes
    ("address_tables", "fakeweb/src/gossamer_fakeweb/hostile/addresses.py"),  # addresses that a crawl may not call
    ("control_characters", "sinks/stores/address.py"),  # characters that a name may not have
    ("html_makers", "extract/assets.py"),  # a pattern
    ("html_escapes", "src/gossamer_platform/v1/exports.py"),  # XML
    ("hidden_passwords", "web/access.py"),  # an Origin, in which there must be no user
    ("http_servers", "fetch/contract.py"),  # answers that are wrong on purpose
    ("http_servers", "telemetry/metrics_server.py"),  # threads, which answer while the event loop of a worker is busy
    ("http_servers", "fakeweb/serving.py"),  # the practice web, whose servers are slow or wrong on purpose
    ("http_servers", "fakeweb/benchmark.py"),
    ("http_servers", "fakeweb/src/gossamer_fakeweb/hostile/gates.py"),
    ("http_servers", "valkey/__main__.py"),  # tries whether the port is free
    ("path_segments", "policy/refusals.py"),  # an address as a page may spell it
    ("path_segments", "policy/page_fingerprints.py"),  # the same
    ("durable_files", "wiring/frontier.py"),  # a setting
    ("durable_files", "src/gossamer_platform/node/build.py"),  # programs that run without this package
    ("durable_files", "src/gossamer_platform/node/shim.py"),
    ("json_encoders", "fakeweb/control_answers.py"),
    ("json_encoders", "fakeweb/journal.py"),
    ("json_encoders", "api/domains.py"),  # sorted, for versions
    ("json_encoders", "sinks/stores/mysql.py"),  # whole columns at a time
    ("event_streams", "api/events.py"),  # its description
    ("path_segments", "extract/values.py"),  # a fragment
    ("path_segments", "fetch/robots_rules.py"),  # a pattern
    ("path_segments", "report/page.py"),  # a file
    ("path_segments", "session/redaction.py"),  # a secret as a site may spell it
    ("path_segments", "scrapy/pipelines/lookup.py"),  # a value anywhere in an address
    ("path_segments", "scrapy/redis/connection.py"),  # a password, as in the next one
    ("path_segments", "valkey/address.py"),
    ("path_segments", "valkey/datadir.py"),  # the path of a socket
    ("path_segments", "src/gossamer_platform/scrapyd/frame.py"),  # paths and queries of Scrapyd's pages
    ("path_segments", "src/gossamer_platform/scrapyd/listing.py"),
    ("path_segments", "src/gossamer_platform/scrapyd/pages.py"),
    ("documents", "control/domains.py"),  # texts of requests
    ("documents", "dashboard/texts.py"),  # of the package
    ("documents", "platform_client/packaging.py"),  # a project's pyproject.toml
    ("documents", "settings/groups.py"),  # gossamer.toml, before other modules are loaded
    ("prints", "extract/content_process.py"),  # processes of our own, whose parent reads what they print
    ("prints", "valkey/__main__.py"),
    ("prints", "src/gossamer_platform/node/build.py"),
    ("prints", "scrapy/monitor.py"),  # a command of Scrapy
    ("sql_connections", "sinks/stores/mysql.py"),  # stores of records, each with the driver of its server
    ("sql_connections", "sinks/stores/postgresql.py"),
    ("sql_connections", "platform_client/batches.py"),  # beside storage/
    ("sql_connections", "src/gossamer_platform/state/database.py"),  # waits for notices for ever
    ("body_limits", "src/gossamer_platform/v1/uploads.py"),  # the time for which a call has one of a few places
}


@functools.cache
def _places() -> dict[str, dict[str, list[int]]]:
    """Return the lines that each rule finds, by rule and file. Each file is parsed once."""
    found: dict[str, dict[str, list[int]]] = {rule.__name__: {} for rule in RULES}
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        for rule in RULES:
            if lines := list(rule(tree)):
                found[rule.__name__][path.relative_to(ROOT).as_posix().removeprefix("src/gossamer/")] = lines
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule_of_security_stands_once(rule: Rule) -> None:
    found, homes = _places()[rule.__name__], RULES[rule]
    assert homes <= found.keys(), "the home has moved; name it here"
    known = homes | {place for name, place in FALSE_ALARMS if name == rule.__name__}
    if rule in (html_makers, prints):  # practice webs are hostile on purpose
        known |= {place for place in found if "fakeweb/" in place}
    better = ", ".join(homes) or "a template"
    assert not {place: lines for place, lines in found.items() if place not in known}, f"use {better} instead"


@pytest.mark.parametrize(
    ("rule", "twin"),
    [
        (address_tables, 'from ipaddress import ip_network\nx = ip_network("10.0.0.0/8")'),
        (address_tables, "import ipaddress\nx = list(map(ipaddress.IPv6Network, y))"),
        (address_tables, "def f(a): return a.is_global"),
        (address_tables, 'def f(a): return a.startswith(("10.", "192.168."))'),
        (loopback_rules, "def f(a): return a.is_loopback or n.endswith('.localhost')"),
        (host_rules, 'def f(h): return h.get("Origin", "")'),
        (host_rules, 'def f(h): return h.getlist("sec-fetch-site")'),
        (secret_comparisons, "import hmac\nhmac.compare_digest(a, b)"),
        (secret_comparisons, "from secrets import compare_digest"),
        (hidden_passwords, 'import re\nx = re.sub(r"(://[^/@:]*):[^/@]*@", r"x", y)'),
        (hidden_passwords, 'import re\nx = re.compile(r"(?<=://)([^/?#@:]*):[^/?#]*@")'),
        (control_characters, 'import re\nx = re.compile(r"[\\x00-\\x1f\\u202a-\\u202e]")'),
        (control_characters, 'import re\nx = re.sub(r"[\\x00-\\x1f\\x7f]", "?", y)'),
        (html_escapes, "from html import escape"),
        (html_escapes, "import html\nx = html.escape(y)"),
        (html_makers, 'def f(title): return f"<h1>{title}</h1>"'),
        (html_makers, "x = '<a href=\"{}\">x</a>'.format(y)"),
        (template_engines, "from jinja2 import Environment"),
        (template_engines, "import jinja2\nx = jinja2.Template(y)"),
        (problem_forms, 'def f(name): return {"type": f"urn:gossamer:problem:{name}"}'),
        (hidden_passwords, 'def f(user, host): return f"{user}:***@{host}"'),
        (http_servers, "import uvicorn\nuvicorn.run(app)"),
        (http_servers, "from uvicorn.protocols.http.h11_impl import H11Protocol"),
        (http_servers, "import asyncio\nasync def f(): await asyncio.start_server(answer, 'localhost', 80)"),
        (listening_sockets, "def f(sock): sock.listen(128)"),
        (event_streams, 'def f(parts): return StreamingResponse(parts, media_type="text/event-stream")'),
        (remote_files, "def f(): import fsspec"),
        (json_encoders, "import msgspec\n_encode = msgspec.json.Encoder().encode"),
        (remote_files, "from fsspec.core import url_to_fs"),
        (durable_files, "import os\nwith open(x, 'wb') as f: os.fsync(f.fileno())"),
        (path_segments, "from urllib.parse import quote\ndef f(crawl): return f'/v1/crawls/{quote(crawl, safe=\"\")}'"),
        (install_commands, 'def f(): raise BadInput("redis is missing: pip install redis")'),
        (body_limits, 'def f(): raise HTTPException(408, "too slow")'),
        (documents, "import yaml\nx = yaml.safe_load(text)"),
        (result_tables, "from rich.table import Table"),
        (prints, 'def f(crawl): print(f"Stopped {crawl}")'),
        (sql_connections, "import sqlite3\nx = sqlite3.connect(path)"),
        (sql_connections, "from sqlalchemy import create_engine"),
        (sql_connections, "from psycopg import connect"),
    ],
)
def test_a_twin_is_found(rule: Rule, twin: str) -> None:
    """The twins that there were."""
    assert list(rule(ast.parse(twin)))

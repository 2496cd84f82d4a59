"""Every endpoint of the platform with every scope: none gets through that should not, and none is refused that should.

The endpoints come from the routes, so one that is added fails here until its scope is written down.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.storage.audit import AuditFilter
from gossamer_platform.cloud.app import CloudApp
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.operations import Manager
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import SERVICES, load
from gossamer_platform.scrapyd.files import ScrapydFiles
from gossamer_platform.serving.services import platform_app
from gossamer_platform.state import audit, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.app import ROUTERS, routes

_SCOPES = ("read", "run", "deploy", "admin")
_RUN = ("POST /v1/jobs", "POST /v1/jobs/{job_id}/cancel", "POST /v1/inputs", "POST /v1/groups",
        "POST /v1/groups/{group_id}/cancel", "POST /v1/schedules", "PATCH /v1/schedules/{schedule_id}",
        "DELETE /v1/schedules/{schedule_id}", "POST /v1/schedules/{schedule_id}/run")  # fmt: skip
_DEPLOY = ("PUT /v1/projects/{project}/default", "DELETE /v1/projects/{project}/default",
           "POST /v1/projects/{project}/rollback", "POST /v1/versions", "DELETE /v1/versions",
           "PUT /v1/projects/{project}/variables/{name}", "DELETE /v1/projects/{project}/variables/{name}",
           "GET /v1/projects/{project}/secrets")  # fmt: skip
_ADMIN = ("PATCH /v1/projects/{project}", "POST /v1/tokens", "GET /v1/tokens", "DELETE /v1/tokens/{token_id}",
          "POST /v1/tokens/{token_id}/release", "GET /v1/audit", "PUT /v1/projects/{project}/policies/{spider}",
          "DELETE /v1/projects/{project}/policies/{spider}", "POST /v1/secrets/rotate", "POST /v1/webhooks",
          "GET /v1/webhooks", "GET /v1/webhooks/{webhook_id}", "PATCH /v1/webhooks/{webhook_id}",
          "DELETE /v1/webhooks/{webhook_id}", "POST /v1/webhooks/{webhook_id}/secret",
          "POST /v1/webhooks/{webhook_id}/test", "GET /v1/webhooks/{webhook_id}/deliveries",
          "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/again", "PATCH /v1/nodes/{name}",
          "DELETE /v1/nodes/{name}", "PUT /v1/labels/{name}")  # fmt: skip
NEEDED = {**dict.fromkeys(_RUN, "run"), **dict.fromkeys(_DEPLOY, "deploy"), **dict.fromkeys(_ADMIN, "admin")}
"""Scopes of endpoints. Any other GET needs the scope read; calls of nodes need the scope node, which admin includes."""
SCRAPYD = {"schedule.json": "run", "cancel.json": "run", "addversion.json": "deploy", "delversion.json": "deploy",
           "delproject.json": "deploy"}  # fmt: skip
"""Scopes of Scrapyd's endpoints; the others need the scope read."""
_VALUES = {"job_id": "1", "group_id": "1", "schedule_id": "1", "webhook_id": "1", "delivery_id": "1", "token_id": "999",
           "project": "none", "spider": "s", "name": "n", "form": "csv", "digest": "0" * 64, "job": "1", "attempt": "1",
           "kind": "log"}  # fmt: skip


def endpoints() -> Iterator[tuple[str, str]]:
    """Yield every endpoint, as its method and path, with the scope that it needs."""
    for router in ROUTERS:
        for route in router.routes:
            for method in sorted(route.methods):  # type: ignore[attr-defined]
                name = f"{method} {route.path}"  # type: ignore[attr-defined]
                if route.path.startswith("/nodes/v1/"):  # type: ignore[attr-defined]
                    yield name, "node"
                else:
                    yield name, NEEDED.get(name, "read" if method == "GET" else "")
    for name in SERVICES:
        method = "POST" if name in SCRAPYD else "GET"
        yield f"{method} /{name}", SCRAPYD.get(name, "read")


def test_every_endpoint_has_a_scope_and_is_in_the_matrix() -> None:
    found = dict(endpoints())
    assert [name for name, scope in found.items() if not scope] == []
    assert NEEDED.keys() <= found.keys()
    described = {
        f"{method.upper()} {path}" for path, methods in routes().openapi()["paths"].items() for method in methods
    }
    assert described <= found.keys()


@pytest.fixture
async def client(database: StateDatabase, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    config = replace(load([], {}), username="name", password="word")
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    files = ScrapydFiles(config)
    scrapyd = ScrapydApp(manager, config, files)
    app = platform_app(CloudApp(scrapyd, manager, files), scrapyd)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:6800") as client:
        yield client


def _may(scope: str, needed: str) -> bool:
    if "node" in (scope, needed):
        return scope in (needed, "admin")
    return _SCOPES.index(scope) >= _SCOPES.index(needed)


async def test_each_scope_permits_what_it_should_and_nothing_else(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    secrets: dict[str, str] = {}
    for scope in (*_SCOPES, "node"):
        _, secrets[scope] = await database.write(lambda c, scope=scope: tokens.add_token(c, scope, TokenScope(scope)))
    wrong: list[Any] = []
    for name, needed in endpoints():
        method, path = name.split(" ")
        address = path.format(**_VALUES)

        async def status(headers: dict[str, str], *, method: str = method, address: str = address) -> int:
            body = {} if method == "GET" else {"json": {}}
            query = {"project": "none", "version": "1"}
            answer = await client.request(method, address, params=query, headers=headers, **body)
            return answer.status_code

        strangers: tuple[dict[str, str], ...] = (
            {},
            {"Authorization": "Bearer gsm_wrong"},
        )
        wrong += [(name, "stranger", found) for each in strangers if (found := await status(each)) != 401]
        # Wrong passwords that come too quickly are not even compared.
        guessed = await status({"Authorization": "Basic bmFtZTp4"})
        if guessed not in (401, 429):
            wrong.append((name, "guess", guessed))
        for scope, secret in secrets.items():
            found = await status({"Authorization": f"Bearer {secret}"})
            if (found in (401, 403)) == _may(scope, needed) or found == 500:
                wrong.append((name, scope, found))
    assert wrong == []


async def test_every_request_that_may_change_something_has_an_entry_in_the_audit_before(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    """Of each endpoint whose method may change something, and of no other: also of those that refuse the request."""
    _, admin = await database.write(lambda c: tokens.add_token(c, "anna", TokenScope.ADMIN))
    _, reader = await database.write(lambda c: tokens.add_token(c, "reader", TokenScope.READ))
    wrong: list[Any] = []
    for name, _ in endpoints():
        method, path = name.split(" ")
        before = await database.read(lambda c: audit.entries(c, AuditFilter(), before=None, limit=1000))
        body = {} if method == "GET" else {"json": {"project": "none", "spider": "s"}}
        for secret in (reader, admin):
            headers = {"Authorization": f"Bearer {secret}"}
            query = {"project": "none", "version": "1"}
            answer = await client.request(method, path.format(**_VALUES), params=query, headers=headers, **body)
        found = await database.read(lambda c: audit.entries(c, AuditFilter(), before=None, limit=1000))
        added = found[: len(found) - len(before)]
        is_changing = method != "GET" and not path.startswith("/nodes/v1/")
        status = answer.status_code if "/v1/" in path else 400 if answer.json()["status"] == "error" else 200
        expected = [("anna", status)] if is_changing else []
        is_named = all(entry.subject and "." in entry.action for entry in added)
        if [(entry.actor, entry.status) for entry in added] != expected or not is_named:
            wrong.append((name, answer.status_code, [entry._asdict() for entry in added]))
    assert wrong == []

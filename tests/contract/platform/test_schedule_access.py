"""What a token may do with schedules of crawl requests, which the platform submits with a token of its own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer_platform.cloud.app import CloudApp
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.operations import Manager
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import load
from gossamer_platform.scrapyd.files import ScrapydFiles
from gossamer_platform.serving.services import platform_app
from gossamer_platform.state import projects, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tokens import TokenScope

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)

_RULE = {"project": "shop", "name": "nightly", "every": 3600}
_REQUEST = {"url": "https://shop.test/"}


@pytest.fixture
async def client(database: StateDatabase, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    config = replace(load([], {}), username="name", password="word", crawl_service="http://127.0.0.1:1")
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"))
    files = ScrapydFiles(config)
    scrapyd = ScrapydApp(manager, config, files)
    app = platform_app(CloudApp(scrapyd, manager, files), scrapyd)
    await database.write(lambda c: projects.project_id(c, "shop"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:6800/v1") as client:
        yield client


async def _token(database: StateDatabase, scope: str, project: str = "") -> dict[str, str]:
    """Return the headers of a client with a new token."""
    name = f"{scope} {project}"
    _, secret = await database.write(lambda c: tokens.add_token(c, name, TokenScope(scope), project=project))
    return {"Authorization": f"Bearer {secret}"}


async def test_a_token_for_one_project_uses_no_login_of_the_crawl_service(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    own, every = await _token(database, "run", "shop"), await _token(database, "run")
    with_login = {**_RULE, "crawl": [_REQUEST, {**_REQUEST, "login": "bank"}]}
    refused = await client.post("/schedules", json=with_login, headers=own)
    assert refused.status_code == 403, refused.text
    assert "crawl[1].login" in refused.json()["detail"]
    added = await client.post("/schedules", json={**_RULE, "crawl": _REQUEST}, headers=own)
    assert added.status_code == 201, added.text
    path = f"/schedules/{added.json()['id']}"
    refused = await client.patch(path, json={"crawl": with_login["crawl"]}, headers=own)
    assert refused.status_code == 403, refused.text
    assert (await client.patch(path, json={"crawl": with_login["crawl"]}, headers=every)).status_code == 200


async def _shown(client: httpx.AsyncClient, headers: dict[str, str]) -> tuple[Any, Any]:
    """Return the crawl requests of the only schedule as the client sees them, in the list and alone."""
    [listed] = (await client.get("/schedules", headers=headers)).json()
    alone = (await client.get(f"/schedules/{listed['id']}", headers=headers)).json()
    return listed["crawl"], alone["crawl"]


async def test_only_a_client_that_may_change_a_schedule_reads_the_secrets_of_its_requests(
    client: httpx.AsyncClient, database: StateDatabase
) -> None:
    headers = {"Authorization": "Basic s3cret", "cookie": "s3cret", "X-Key": "s3cret", "Accept-Language": "de"}
    secret = {"cookie": "sid=s3cret", "proxy": "http://u:s3cret@p.test:1"}
    request = {**_REQUEST, **secret, "headers": headers, "secret_headers": ["x-KEY"], "maxdepth": 1}
    reader, runner = await _token(database, "read", "shop"), await _token(database, "run", "shop")
    added = await client.post("/schedules", json={**_RULE, "crawl": request}, headers=runner)
    assert added.status_code == 201, added.text
    for [found] in await _shown(client, runner):
        assert request.items() <= found.items()
    for [found] in await _shown(client, reader):
        hidden = {**dict.fromkeys(headers, "<redacted>"), "Accept-Language": "de"}
        expected = {**request, **dict.fromkeys(secret, "<redacted>"), "headers": hidden}
        assert expected.items() <= found.items()
    page = await client.get("http://localhost:6800/ui/schedule?id=1", headers=reader)
    assert "s3cret" not in page.text

"""What a token may do with schedules of crawl requests, which the platform submits with a token of its own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

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

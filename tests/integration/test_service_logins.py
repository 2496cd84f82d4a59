"""A worker of a service that logs in to a site which lets it wait."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gossamer.control.logins import stored_login
from gossamer.frontier.base import ClaimResult
from gossamer.frontier.valkey.logins import StoredLogin, login_claims
from gossamer.model.crawl import Crawl, CrawlId, Run, Terms, login_pool
from gossamer.session import service_logins
from gossamer.session.session_file import read_session_file
from gossamer.wiring.worker import open_worker
from gossamer.worker.worker import Worker
from tests.integration.test_worker_service import Service, open_service
from tests.servers.crawls import open_crawl

KEY = Fernet.generate_key().decode()
ACCOUNT = ["account:alice"]
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>Hello."
ENTERED = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=1\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


class Door:
    """A site that answers a login when the test says so."""

    def __init__(self) -> None:
        self.answer = ENTERED
        self.opened = asyncio.Event()
        self.logins = 0
        self.asked = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("POST"):
                    length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length"))
                    await reader.readexactly(int(length.partition(":")[2]))
                    self.logins += 1
                    self.asked.set()
                    await self.opened.wait()
                    writer.write(self.answer)
                else:
                    writer.write(PAGE if "/robots.txt" not in head else b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
        writer.close()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    door.port = server.sockets[0].getsockname()[1]
    yield door
    door.opened.set()
    server.close()


@pytest.fixture
async def service(tmp_path: Path, door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service with one login, and one page behind it that is wanted. Its worker looks often."""
    for variable, value in (("GOSSAMER_SECRET_KEYS", KEY), ("PASSWORD", "secret")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(service_logins, "_LOOK_SECONDS", 0.02)
    base = f"http://shop.test:{door.port}"
    session = tmp_path / "shop.yaml"
    document = {
        "accounts": {"alice": {"user": "alice", "password": {"env": "PASSWORD"}}},
        "login": {"request": f"{base}/login", "fields": {"user": "user", "password": "password"}},
    }
    session.write_text(json.dumps(document))
    environment = {"PASSWORD": "secret", "GOSSAMER_SECRET_KEYS": KEY}
    async with open_service(tmp_path) as service:
        login = read_session_file(session, environment, now=time.time())
        await service.frontier.logins.put("shop", stored_login("shop", login, environment, now=time.time(), days=1))
        crawl = Crawl(id=CrawlId("app", "c"), pool=login_pool("shop"))
        await open_crawl(service.frontier, [f"{base}/"], Terms(maxdepth=0, session="login"), crawl=crawl)
        yield service


@contextlib.asynccontextmanager
async def working(service: Service) -> AsyncIterator[Worker]:
    """A worker, which is stopped at the end. What it has in hand ends before."""
    settings = service.settings(fetch__timeout=60.0)
    async with open_worker(settings, service.frontier, pool="shared") as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(running, 60)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_an_account_is_kept_while_the_worker_logs_in(
    service: Service, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ask = 0, service.frontier.logins.all

    async def counted() -> dict[str, StoredLogin]:
        nonlocal looks
        looks += 1
        return await ask()

    async with working(service):
        await asyncio.wait_for(door.asked.wait(), 60)
        with monkeypatch.context() as patch:
            patch.setattr(service_logins, "_IDLE_SECONDS", 0.0)
            patch.setattr(service.frontier.logins, "all", counted)
            await until(lambda: looks >= 3)
            claimed = await service.frontier.claim(login_claims("shop"), ACCOUNT, owner="other", seconds=60)
        assert claimed == [ClaimResult.HELD_BY_OTHER]
        door.opened.set()
        await until(lambda: bool(service.records()))
    [page] = service.records()
    assert (page.success, page.attempt, door.logins) == (True, 0, 1)


async def failed_accounts(service: Service) -> set[str]:
    stored = (await service.frontier.logins.all())["shop"]
    return set(await service.frontier.logins.failures("shop", stored))


async def test_a_wrong_password_is_not_tried_again_although_the_account_was_lost_meanwhile(
    service: Service, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.answer = REFUSED
    owners, frontier, claim = list[str](), service.frontier, service.frontier.claim

    async def noted(run: Run, tasks: Sequence[str], *, owner: str, seconds: float) -> list[ClaimResult]:
        owners.append(owner)
        return await claim(run, tasks, owner=owner, seconds=seconds)

    monkeypatch.setattr(frontier, "claim", noted)
    async with working(service):
        await asyncio.wait_for(door.asked.wait(), 60)
        await frontier.release_claims(login_claims("shop"), ACCOUNT, owner=owners[0])
        assert await claim(login_claims("shop"), ACCOUNT, owner="other", seconds=60) == [ClaimResult.GRANTED]
        renewals = len(owners)
        await until(lambda: len(owners) >= renewals + 2)
        await frontier.release_claims(login_claims("shop"), ACCOUNT, owner="other")
        door.opened.set()
        async with asyncio.timeout(60):
            while True:
                if await failed_accounts(service) or door.logins > 1:
                    break
                await asyncio.sleep(0.01)
    assert (await failed_accounts(service), door.logins) == ({"alice"}, 1)


async def test_a_worker_that_stops_notes_the_password_that_was_wrong(
    service: Service, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.answer = REFUSED
    async with working(service):
        await asyncio.wait_for(door.asked.wait(), 60)
        monkeypatch.setattr(service_logins, "_LOOK_SECONDS", 3600.0)
        door.opened.set()
    assert (await failed_accounts(service), door.logins) == ({"alice"}, 1)

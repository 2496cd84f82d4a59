"""Changes that a manager's dashboard makes in a crawl service: the audit has each before it is made."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy.exc import OperationalError

from gossamer.dashboard.service import ApiCall, ApiRefused, ChangeUnknown
from gossamer.storage.audit import AuditedChange, AuditOutcome
from gossamer_platform.dashboard.remote import RemoteApi, RemoteAudit, RemoteClient
from gossamer_platform.dashboard.section import remote_section


@dataclass
class Ledger:
    """A crawl service that gives one answer, and an audit, in the order in which both were called."""

    answer: bytes = b""
    is_away: bool = False
    calls: list[str] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        self.calls.append(f"service {line.partition(' HTTP')[0]}")
        writer.write(self.answer)
        writer.close()

    async def begin(self, change: AuditedChange) -> int:
        if self.is_away:
            raise OperationalError("INSERT", {}, Exception("the disk is full"))
        self.calls.append(f"begun {change.action} {change.subject} by {change.actor} from {change.origin}")
        return 1

    async def end(self, number: int, change: AuditedChange, outcome: AuditOutcome) -> None:
        self.calls.append(f"ended {number} {outcome.status}")

    async def change(self) -> None:
        api = RemoteApi(self.url, "", what="crawl service")
        try:
            client = RemoteClient(api, RemoteAudit(self, "anna", "192.0.2.1"))
            await client.send(ApiCall("DELETE", "/v1/crawls/a/b"))
            await client.get("/v1/crawls")
        finally:
            await api.close()


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    one = Ledger()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield one
    server.close()
    await server.wait_closed()


async def test_the_audit_has_a_change_before_it_is_made(ledger: Ledger) -> None:
    """A manager that is killed between the two has not made a change of which its audit knows nothing."""
    ledger.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    await ledger.change()
    assert ledger.calls == [
        "begun crawl.delete /v1/crawls/a/b by anna from 192.0.2.1",
        "service DELETE /v1/crawls/a/b",
        "ended 1 200",
        "service GET /v1/crawls",
    ]


async def test_a_change_that_cannot_be_announced_is_not_made(ledger: Ledger) -> None:
    ledger.is_away = True
    with pytest.raises(ApiRefused, match=r"nothing was changed.*the disk is full"):
        await ledger.change()
    assert ledger.calls == []


async def test_the_audit_says_which_changes_have_failed(ledger: Ledger) -> None:
    ledger.answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with pytest.raises(ApiRefused):
        await ledger.change()
    assert ledger.calls == [
        "begun crawl.delete /v1/crawls/a/b by anna from 192.0.2.1",
        "service DELETE /v1/crawls/a/b",
        "ended 1 404",
    ]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_change_whose_connection_is_lost_may_have_been_made(ledger: Ledger, answer: bytes) -> None:
    ledger.answer = answer
    with pytest.raises(ChangeUnknown):
        await ledger.change()
    assert ledger.calls == [
        "begun crawl.delete /v1/crawls/a/b by anna from 192.0.2.1",
        "service DELETE /v1/crawls/a/b",
    ]


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("/v1/crawls/a%20b/c%2Fd", ("/crawl", {"appid": "a b", "crawlid": "c/d"})),
        ("/v1/crawls/a/b/retry", ("/crawl", {"appid": "a", "crawlid": "b"})),
        ("/v1/domains/a.test", ("/domain", {"domain": "a.test"})),
        ("/v1/crawls", None),
        ("/v1/dead-letters/replay", None),
    ],
)
def test_the_audit_leads_to_what_was_changed(path: str, link: tuple[str, dict[str, str]] | None) -> None:
    section = remote_section("http://localhost:1", "")
    assert section.subject_link("crawl.delete", path) == link

"""Changes that a manager's dashboard makes in a crawl service: the audit has each before it is made."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from gossamer.dashboard.service import ApiCall, ApiRefused
from gossamer_platform.dashboard.remote import RemoteApi, RemoteClient


@dataclass
class Ledger:
    """A crawl service that gives one answer, and an audit, in the order in which both were called."""

    answer: bytes = b""
    refusal: ApiRefused | None = None
    calls: list[str] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        self.calls.append(f"service {line.partition(' HTTP')[0]}")
        writer.write(self.answer)
        writer.close()

    async def announce(self, action: str, subject: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(f"announced {action} {subject}")

    async def record(self, action: str, subject: str) -> None:
        self.calls.append(f"recorded {action} {subject.partition(' ')[0]}")

    async def change(self) -> None:
        api = RemoteApi(self.url, "", what="crawl service")
        try:
            client = RemoteClient(api, announce=self.announce, record=self.record)
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
        "announced crawl.delete /v1/crawls/a/b", "service DELETE /v1/crawls/a/b", "service GET /v1/crawls",
    ]  # fmt: skip


async def test_a_change_that_cannot_be_announced_is_not_made(ledger: Ledger) -> None:
    ledger.refusal = ApiRefused(503, "the audit is away")
    with pytest.raises(ApiRefused, match="the audit is away"):
        await ledger.change()
    assert ledger.calls == []


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"])
async def test_the_audit_says_which_changes_have_failed(ledger: Ledger, answer: bytes) -> None:
    ledger.answer = answer
    with pytest.raises(ApiRefused):
        await ledger.change()
    assert ledger.calls == [
        "announced crawl.delete /v1/crawls/a/b",
        "service DELETE /v1/crawls/a/b",
        "recorded crawl.delete.failed /v1/crawls/a/b",
    ]

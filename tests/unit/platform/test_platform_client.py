"""Answers of the platform's server that break off, and its outages."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gossamer.platform_client.http import Credentials, ServerRefused, ServerUnreachable
from gossamer.platform_client.platform import PlatformClient
from gossamer.platform_client.targets import DeployTarget

CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
CUT_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{"
CUT_REFUSAL = b"HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{"
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
ENDED = b'HTTP/1.1 200 OK\r\n\r\n{"state": "finished", "jobs": {"finished": 1}, "earlier_attempts": []}'
EVENTS = b'HTTP/1.1 200 OK\r\n\r\nid: %d\ndata: {"text": "%d"}\nevent: log\n\n'
END = b"event: end\ndata: {}\n\n"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.platform_client.platform._LOOK_SECONDS", 0.01)


@contextmanager
def answering(*answers: bytes) -> Iterator[PlatformClient]:
    """A client of a server that gives each answer to one call, and closes the connection."""
    left = iter(answers)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(next(left))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield PlatformClient(DeployTarget("", f"http://127.0.0.1:{server.server_address[1]}", Credentials()))
        finally:
            server.shutdown()


@pytest.mark.parametrize("answer", [CUT, CUT_CHUNK], ids=["cut", "chunk"])
def test_a_download_that_breaks_off_is_no_complete_one(answer: bytes) -> None:
    with answering(answer) as client, pytest.raises(ServerUnreachable, match="its answer broke off"):
        list(client.read("/jobs/1/log"))


@pytest.mark.parametrize("answer", [CUT, CUT_CHUNK, CUT_REFUSAL, BAD_GATEWAY], ids=["cut", "chunk", "refusal", "502"])
def test_a_call_is_repeated_after_an_answer_that_broke_off_and_after_an_outage(answer: bytes) -> None:
    with answering(answer, ENDED) as client:
        assert client.call("GET", "/jobs/1")["state"] == "finished"


def test_waiting_for_a_job_outlasts_outages() -> None:
    with answering(*[BAD_GATEWAY] * 6, ENDED) as client:
        assert client.wait(1)["state"] == "finished"
    with answering(*[BAD_GATEWAY] * 6, ENDED) as client:
        assert client.wait_for_group(1, lambda group: None)["jobs"] == {"finished": 1}
    with answering(EVENTS % (1, 1), *[BAD_GATEWAY] * 6, EVENTS % (2, 2) + END) as client:
        assert [data["text"] for _, data in client.follow(1)] == ["1", "2"]
    with answering(NOT_FOUND) as client, pytest.raises(ServerRefused):
        list(client.follow(1))

"""The picture of `gossamer monitor TARGET`."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gossamer.platform_client.http import Credentials
from gossamer.platform_client.monitoring import TargetState, picture, poll
from gossamer.platform_client.targets import DeployTarget

_PASSWORD = "Basic " + base64.b64encode(b"me:right").decode()


def _state(*jobs: tuple[str, str]) -> TargetState:
    return TargetState("one", "http://one", "shop", "", [], [{"spider": name, "id": job} for name, job in jobs], [])


def test_escape_sequences_of_a_servers_names_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in "".join(picture([_state(("a\x1b[2J", "\x1b]0;x\x07"))]))


def test_names_of_a_groups_jobs_are_cut_in_their_middle() -> None:
    lines = picture([_state(*(("words", f"{'f' * 60}-{number}") for number in (1, 2)))], width=60)
    assert [line.split()[2][-3:] for line in lines[2:]] == ["job", "f-1", "f-2"]
    assert all(len(line) <= 60 for line in lines)


def test_the_heading_of_reasons_is_there_if_a_job_has_one() -> None:
    jobs = [
        {"spider": "words", "id": "f-1", "state": "failed", "reason": "exit code 1"},
        {"spider": "words", "id": "f-2"},
    ]
    without, with_one = (TargetState("one", "http://one", "shop", "", [], [], some) for some in (jobs[1:], jobs))
    assert picture([without], width=80)[2].split() == ["state", "spider", "job", "started", "/", "ended"]
    assert picture([with_one], width=80)[2].endswith("reason")


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a server with a password, without projects."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            permitted = self.headers["Authorization"] == _PASSWORD
            content = b'{"status": "error", "message": "project \'shop\' not found"}' if permitted else b"Unauthorized"
            self.send_response(200 if permitted else 401)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (Credentials("", "me", "wrong"), "one: 401: wrong user or password"),
        (Credentials(), "one: 401: a user and a password are needed"),
        (Credentials("", "me", "right"), "one: no project shop"),
    ],
)
def test_a_server_that_refuses_is_not_called_down(server: str, credentials: Credentials, said: str) -> None:
    assert picture(poll([(DeployTarget("one", server, credentials), "shop")]))[1:] == [said]

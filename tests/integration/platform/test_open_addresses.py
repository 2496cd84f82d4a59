"""A server of the platform that listens at every address and has no password: other machines need a token."""

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.servers.platform import RunningManager, running
from tests.servers.scrapyd import scrapyd

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of Linux: address of a network interface."""


def _own_address() -> str:
    """Return an address of this machine that is no loopback address. A connection to it comes from it, too, as one of
    another machine comes from that machine's. Skips the test if this machine has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no address
                request = struct.pack("256s", name.encode())
                address = socket.inet_ntoa(fcntl.ioctl(sock, _GET_ADDRESS, request)[20:24])
                if not address.startswith("127."):
                    return address
    pytest.skip("this machine has only loopback addresses")


@pytest.fixture(params=["manager", "scrapyd"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the server on this machine."""
    with contextlib.ExitStack() as stack:
        if request.param == "manager":
            manager = RunningManager(tmp_path, "--host", "0.0.0.0", limit_seconds=60)
            stack.enter_context(running(manager))
            yield manager.client
        else:
            server = stack.enter_context(scrapyd(tmp_path, conf="bind_address = 0.0.0.0"))
            assert "there is no password, so their requests are refused" in server.said()
            yield server.client


def test_another_machine_that_calls_itself_localhost_needs_a_token(local: httpx.Client) -> None:
    elsewhere = f"http://{_own_address()}:{local.base_url.port}"
    with httpx.Client(base_url=elsewhere, headers={"Host": "localhost"}, trust_env=False) as http:
        answers = {
            "read": http.get("/v1/tokens"),
            "change": http.post("/v1/tokens", json={"name": "a", "scope": "admin"}),
            "Scrapyd": http.post("/delproject.json", data={"project": "shop"}),
            "page": http.get("/jobs"),
            "Scrapy Cloud": http.get("/cloud/api/listprojects.json"),
        }
        assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 403)
        assert "only requests from a loopback address need no secret" in answers["read"].text
        dashboard = http.get("/ui/jobs")
        assert (dashboard.status_code, dashboard.headers["location"]) == (303, "/ui/login?to=%2Fjobs")
        assert local.get("/v1/tokens").json() == []
        token = local.post("/v1/tokens", json={"name": "a", "scope": "admin"}).json()["token"]
        assert http.get("/v1/tokens", headers={"Authorization": f"Bearer {token}"}).status_code == 200

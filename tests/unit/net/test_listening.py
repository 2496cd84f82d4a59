"""Sockets that listen, and the addresses that people are shown for them."""

import contextlib
import socket
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.net.listening import listen_tcp, listen_unix, url_of


async def test_the_address_of_all_interfaces_is_shown_as_one_that_a_client_can_use() -> None:
    with contextlib.ExitStack() as closing:
        listening = [closing.enter_context(each) for each in await listen_tcp("0.0.0.0", 0, option="--port")]
        port = listening[0].getsockname()[1]
        assert url_of("0.0.0.0", listening[0]) == f"http://127.0.0.1:{port}"
        assert url_of("one.example", listening[0]) == f"http://one.example:{port}"


async def test_every_address_of_a_host_listens_on_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{last}", 0)) for last in (2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: places)
    with contextlib.ExitStack() as closing:
        listening = [closing.enter_context(each) for each in await listen_tcp("two.example", 0, option="--port")]
        (first, port), (second, same) = (each.getsockname() for each in listening)
        assert (first, second, port) == ("127.0.0.2", "127.0.0.3", same)
        with pytest.raises(BadInput, match=r"cannot listen at http://two.example:\d+: Address already in use.*--port"):
            await listen_tcp("two.example", port, option="--port")


async def test_a_socket_that_a_killed_process_has_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen_unix(str(path)):
        pass
    with listen_unix(str(path)) as again:
        assert url_of("", again) == f"http+unix://{path}"
        assert path.stat().st_mode & 0o777 == 0o660

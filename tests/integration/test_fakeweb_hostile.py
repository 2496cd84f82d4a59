"""Scripts and gates on real sockets, and how the log tells of them."""

import asyncio
import socket
from urllib.parse import urlsplit

from gossamer.fakeweb import FakeWeb, How, WebSpec, serve
from gossamer.fakeweb.server import Server
from gossamer_fakeweb.hostile.gates import KINDS as GATES

SPEC = WebSpec(hosts=1, pages=2, hostile=True)


async def ask(web: Server, name: str, *, until: int = 1 << 20) -> bytes:
    """What a hostile host sends, up to so many bytes or its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: bad-{name}.test\r\n\r\n".encode())
    try:
        return await reader.readexactly(until)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_a_script_is_carried_out_and_logged() -> None:
    async with serve(SPEC) as web:
        assert (await ask(web, "closed-body")).endswith(b"<p>")
        assert len(await ask(web, "endless-headers")) == 1 << 20
        await web.idle.wait()
        closed, endless = web.log()
    assert (closed.how, closed.status) == (How.WHOLE, 200)
    assert endless.how is How.LEFT
    assert endless.sent >= 1 << 20


async def test_a_reset_is_one() -> None:
    async with serve(SPEC) as web:
        try:
            await ask(web, "reset-body")
        except ConnectionResetError:
            reset = True
        await web.idle.wait()
        (record,) = web.log()
    assert reset
    assert record.how is How.RESET


async def test_gates_do_what_they_say() -> None:
    async with serve(SPEC) as web:
        ports = {place.name: urlsplit(place.url).port for place in web.hostile_places() if place.kind == "gates"}
        assert ports.keys() == GATES.keys()
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["gate-early"])
        assert (await reader.readexactly(15)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["gate-closed"])
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["gate-tls-plain"])
        writer.write(b"\x16\x03\x01")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        deaf = socket.socket()
        deaf.setblocking(False)
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", ports["gate-deaf"])), 0.2
            )
        except TimeoutError:
            nobody = True
        deaf.close()
    assert nobody


def test_another_process_is_told_where_they_are() -> None:
    with FakeWeb.start(SPEC) as web:
        places = web.hostile_places()
        assert f"http://bad-calendar.test:{web.port}/" in {place.url for place in places}
        assert "*.test:127.0.0.1" in web.resolve_overrides()

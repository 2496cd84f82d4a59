"""A TLS 1.2 server without any extension, as servers were before RFC 5746 (secure renegotiation, 2010)."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cryptography import x509
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.servers.certificates import Chain

_VERSION = b"\x03\x03"
_ECDHE_ECDSA_AES128_GCM = b"\xc0\x2b"
_HANDSHAKE, _CHANGE_CIPHER, _DATA = 22, 20, 23
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold"


def _expand(secret: bytes, label: bytes, seed: bytes, size: int) -> bytes:
    """The pseudo-random function of TLS 1.2 (RFC 5246, section 5)."""

    def keyed(data: bytes) -> bytes:
        made = hmac.HMAC(secret, hashes.SHA256())
        made.update(data)
        return made.finalize()

    seed, output = label + seed, b""
    state = seed
    while len(output) < size:
        state = keyed(state)
        output += keyed(state + seed)
    return output[:size]


class _Connection:
    """One connection, of which only the first request is answered."""

    def __init__(self, chain: Chain, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pem = x509.load_pem_x509_certificate(chain.certificate.read_bytes())
        self._certificate = pem.public_bytes(serialization.Encoding.DER)
        self._key = serialization.load_pem_private_key(chain.key.read_bytes(), password=None)
        self._reader, self._writer = reader, writer
        self._said = hashes.Hash(hashes.SHA256())
        self._waiting = b""

    async def serve(self) -> None:
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        hello = await self._receive()
        client_random, server_random = hello[6:38], os.urandom(32)
        own = ec.generate_private_key(ec.SECP256R1())
        point = own.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        chosen = b"\x03\x00\x17" + bytes([len(point)]) + point  # secp256r1
        signature = self._key.sign(client_random + server_random + chosen, ec.ECDSA(hashes.SHA256()))
        signed = chosen + b"\x04\x03" + len(signature).to_bytes(2, "big") + signature
        size = len(self._certificate).to_bytes(3, "big")
        self._send(2, _VERSION + server_random + b"\0" + _ECDHE_ECDSA_AES128_GCM + b"\0")
        self._send(11, (len(self._certificate) + 3).to_bytes(3, "big") + size + self._certificate)
        self._send(12, signed)
        self._send(14, b"")
        exchange = await self._receive()
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), exchange[5:])
        shared = own.exchange(ec.ECDH(), theirs)
        master = _expand(shared, b"master secret", client_random + server_random, 48)
        keys = _expand(master, b"key expansion", server_random + client_random, 40)
        self._reading, self._writing = AESGCM(keys[:16]), AESGCM(keys[16:32])
        self._reading_salt, self._writing_salt = keys[32:36], keys[36:40]
        assert (await self._record())[0] == _CHANGE_CIPHER
        expected = _expand(master, b"client finished", self._said.copy().finalize(), 12)
        finished = self._decrypt(0, _HANDSHAKE, (await self._record())[1])
        assert finished == b"\x14\0\0\x0c" + expected
        self._said.update(finished)
        answer = _expand(master, b"server finished", self._said.copy().finalize(), 12)
        self._write(_CHANGE_CIPHER, b"\x01")
        self._write(_HANDSHAKE, self._encrypt(0, _HANDSHAKE, b"\x14\0\0\x0c" + answer))
        assert self._decrypt(1, _DATA, (await self._record())[1]).startswith(b"GET ")
        self._write(_DATA, self._encrypt(1, _DATA, _PAGE))

    def _send(self, kind: int, body: bytes) -> None:
        message = bytes([kind]) + len(body).to_bytes(3, "big") + body
        self._said.update(message)
        self._write(_HANDSHAKE, message)

    async def _receive(self) -> bytes:
        kind, message = await self._record()
        assert kind == _HANDSHAKE
        self._said.update(message)
        return message

    def _write(self, kind: int, data: bytes) -> None:
        self._writer.write(bytes([kind]) + _VERSION + len(data).to_bytes(2, "big") + data)

    async def _record(self) -> tuple[int, bytes]:
        head = await self._reader.readexactly(5)
        return head[0], await self._reader.readexactly(int.from_bytes(head[3:], "big"))

    def _encrypt(self, number: int, kind: int, data: bytes) -> bytes:
        nonce = number.to_bytes(8, "big")
        added = nonce + bytes([kind]) + _VERSION + len(data).to_bytes(2, "big")
        return nonce + self._writing.encrypt(self._writing_salt + nonce, data, added)

    def _decrypt(self, number: int, kind: int, record: bytes) -> bytes:
        size = len(record) - 8 - 16
        added = number.to_bytes(8, "big") + bytes([kind]) + _VERSION + size.to_bytes(2, "big")
        return self._reading.decrypt(self._reading_salt + record[:8], record[8:], added)


@asynccontextmanager
async def run_old_tls_server(chain: Chain) -> AsyncIterator[int]:
    """Serve a page on a port of 127.0.0.1, which is returned."""
    failures: list[Exception] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):  # a client that refuses it
                await _Connection(chain, reader, writer).serve()
        except Exception as error:
            failures.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    assert not failures

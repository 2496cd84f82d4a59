"""Real Valkey servers for tests and bench: one, or a cluster. Every one lives in a folder and on loopback."""

import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hiredis

from gossamer.valkey.connection import pack
from gossamer.valkey.embedded import find_server
from gossamer.valkey.topology import slot_of
from tests.servers.faked_clock import FakedClock

_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_STARTS = 5
_SLOTS = 16384
_PORTS = range(10_000, 30_000)
"""Below those that the system gives to outgoing connections and to whoever asks for any free port."""


class Server:
    """One server process, on a unix socket and, with a port, on 127.0.0.1 too. Not started until `start`."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        password: str = "",
        options: Mapping[str, str] | None = None,
        faked_clock: bool = False,
        program: str = "",
    ) -> None:
        """`faked_clock`: it can be set; see `clock`. `program`: another server than Gossamer would run."""
        self.folder = folder
        self.program = program or str(find_server())
        self.port = port
        self.password = password
        self.options = dict(options or {})
        self.clock = FakedClock(folder) if faked_clock else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        return self.folder / "s.sock"

    @property
    def address(self) -> str:
        """By TCP where it has a port, else by its socket."""
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}" if self.port else f"unix://{secret}{self.socket_path}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, again or for the first time, and wait until it answers and has read its data."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket_path),
            "dir": str(self.folder),
            "logfile": str(self.folder / "log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "enable-debug-command": "yes",
            **({"requirepass": self.password, "primaryauth": self.password} if self.password else {}),
            **self.options,
        }
        self.socket_path.unlink(missing_ok=True)
        arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **self.clock.environment} if self.clock else None,
        )
        wait_until(self._answers, f"the server in {self.folder} to answer")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = self.folder / "log"
            raise RuntimeError(f"it ended at once: {log.read_text()[-500:] if log.exists() else 'it has no log'}")
        try:
            return bool(self.command("PING") == b"PONG")
        except (OSError, hiredis.ReplyError):
            return False

    def command(self, *command: bytes | str | int | float) -> Any:
        """Ask it on a connection of its own, without the client under test. Raises hiredis.ReplyError, OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(_READY_SECONDS)
            wire.connect(str(self.socket_path))
            reader = hiredis.Reader(notEnoughData=...)
            if self.password:
                _ask(wire, reader, ("AUTH", self.password))
            return _ask(wire, reader, command)

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def kill(self) -> None:
        """SIGKILL: as when the power goes, for the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long. May be repeated."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


class Cluster:
    """Primaries with all slots between them, and so many replicas of each. `nodes`: first the primaries, in order."""

    def __init__(self, nodes: Sequence[Server], primaries: int) -> None:
        self.nodes = list(nodes)
        self.primaries = self.nodes[:primaries]
        self.replicas = self.nodes[primaries:]

    @property
    def address(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)

    def owner(self, slot: int) -> Server:
        """The primary that says it serves this slot."""
        return next(node for node in self.nodes if slot in range(*self._mine(node)) or slot in self._single(node))

    def _lines(self, node: Server) -> list[str]:
        text = node.command("CLUSTER", "NODES").decode()
        return next(line for line in text.splitlines() if "myself" in line).split()[8:]

    def _mine(self, node: Server) -> tuple[int, int]:
        first = next((part for part in self._lines(node) if "-" in part and not part.startswith("[")), "1-0")
        low, high = map(int, first.split("-"))
        return low, high + 1

    def _single(self, node: Server) -> list[int]:
        return [
            slot
            for part in self._lines(node)
            if not part.startswith("[")
            for slot in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        ]

    def wait_ok(self) -> None:
        """Wait until every node knows all the others and, for each slot, a primary that serves it."""

        def ok() -> bool:
            for node in self.nodes:
                state = dict(
                    line.split(":", 1) for line in node.command("CLUSTER", "INFO").decode().splitlines() if ":" in line
                )
                # With cluster-require-full-coverage=no, the state is ok before the node knows the owner of each slot.
                counts = int(state["cluster_known_nodes"]), int(state["cluster_slots_ok"])
                if state["cluster_state"] != "ok" or counts != (len(self.nodes), _SLOTS):
                    return False
            return all(replica.info("replication")["master_link_status"] == "up" for replica in self.replicas)

        wait_until(ok, "the cluster to be ok")

    def has_met(self) -> bool:
        """Whether each node is connected with every other one, has had an answer from it, and waits for none. Each also
        knows whose each connection is that others have made: it drops what is published by those it does not know."""
        for node in self.nodes:
            links = [dict(zip(link[::2], link[1::2], strict=True)) for link in node.command("CLUSTER", "LINKS")]
            heard = {link[b"node"].decode() for link in links if link[b"direction"] == b"from"}
            for line in node.command("CLUSTER", "NODES").decode().splitlines():
                name, _, flags, _, ping_sent, pong_received, _, link, *_ = line.split()
                if "myself" in flags:
                    continue
                if "handshake" in flags or link != "connected" or ping_sent != "0" or pong_received == "0":
                    return False
                if name not in heard:
                    return False
        return True

    def wait_met(self) -> None:
        """Wait until `has_met`: from then on, idle nodes only exchange the messages of each second."""
        wait_until(self.has_met, "the nodes of the cluster to meet")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A short private folder; a unix socket's path may not be long."""
    with tempfile.TemporaryDirectory(prefix="gv-") as name:
        yield Path(name)


@contextlib.contextmanager
def standalone(
    *,
    tcp: bool = False,
    password: str = "",
    options: Mapping[str, str] | None = None,
    faked_clock: bool = False,
    program: str = "",
) -> Iterator[Server]:
    """One server, on a unix socket only unless `tcp`; stopped and forgotten afterwards."""
    with folder() as place:
        server = Server(place, password=password, options=options, faked_clock=faked_clock, program=program)
        try:
            _start_on_free_ports([server], tcp=tcp)
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def cluster(
    *, primaries: int = 3, replicas: int = 0, options: Mapping[str, str] | None = None, one_shard_each: bool = False
) -> Iterator[Cluster]:
    """A cluster on loopback, `replicas` for each primary; yields when its state is ok, which takes two seconds.

    `one_shard_each`: a frontier with as many shards as primaries has one on each. Otherwise the slots are divided
    evenly, and some primaries get several shards.

    Nodes declare a silent one failed after 15 s. A test of failovers sets `cluster-node-timeout` to less; on a busy
    machine, a healthy node may then be declared failed, and its cluster refuses calls for seconds.
    """
    count = primaries * (1 + replicas)
    common = {
        "cluster-enabled": "yes",
        "cluster-node-timeout": "15000",
        "repl-diskless-sync-delay": "0",
        "cluster-allow-replica-migration": "no",
        **(options or {}),
    }
    with folder() as place:
        nodes = []
        for number in range(count):
            home = place / str(number)
            home.mkdir()
            nodes.append(Server(home, options=dict(common)))
        try:
            _start_on_free_ports(nodes, tcp=True)
            _join(nodes, _shard_slots(primaries) if one_shard_each else _even_slots(primaries))
            made = Cluster(nodes, primaries)
            made.wait_ok()
            yield made
        finally:
            for node in nodes:
                node.stop()


def _even_slots(primaries: int) -> list[tuple[int, int]]:
    """First and last slot of each primary."""
    return [(_SLOTS * number // primaries, _SLOTS * (number + 1) // primaries - 1) for number in range(primaries)]


def _shard_slots(primaries: int) -> list[tuple[int, int]]:
    """First and last slot of each primary, so that each has the slot of one shard."""
    slots = sorted(slot_of(f"{{{shard}}}") for shard in range(primaries))
    return list(zip([0, *(slot + 1 for slot in slots[:-1])], [*slots[:-1], _SLOTS - 1], strict=True))


def _join(nodes: Sequence[Server], slots: Sequence[tuple[int, int]]) -> None:
    primaries = len(slots)
    for number, node in enumerate(nodes):
        node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < primaries:
            node.command("CLUSTER", "ADDSLOTSRANGE", *slots[number])
        if number:
            bus = node.options["cluster-port"]
            nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
    for number, node in enumerate(nodes[primaries:]):
        primary = nodes[number % primaries].command("CLUSTER", "MYID")
        wait_until(lambda n=node, p=primary: p in n.command("CLUSTER", "NODES"), "a replica to meet its primary")
        wait_until(lambda n=node, p=primary: _replicate(n, p), "a replica to be accepted")


def _replicate(node: Server, primary: bytes) -> bool:
    try:
        node.command("CLUSTER", "REPLICATE", primary)
    except hiredis.ReplyError:  # it knows the node, and not yet that it is a primary
        return False
    return True


def _start_on_free_ports(servers: Sequence[Server], *, tcp: bool) -> None:
    """Free ports are free until somebody else takes them first: then others are tried."""
    for server in servers:
        for attempt in range(_STARTS):
            if tcp:
                server.port, bus = free_ports(2)
                if "cluster-enabled" in server.options:
                    server.options["cluster-port"] = str(bus)
            try:
                server.start()
            except RuntimeError:
                if attempt == _STARTS - 1 or not tcp:
                    raise
            else:
                break


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free, and that no connection takes while a server is down or not started yet."""
    chance = random.SystemRandom()  # tests may have seeded the common one
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            probe = stack.enter_context(socket.socket())
            port = chance.choice(_PORTS)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
        return ports


def _ask(wire: socket.socket, reader: hiredis.Reader, command: tuple[bytes | str | int | float, ...]) -> Any:
    wire.sendall(pack(command))
    while (reply := reader.gets()) is ...:
        received = wire.recv(65536)
        if not received:
            raise ConnectionResetError("the server hung up")
        reader.feed(received)
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look until it is so. Raises TimeoutError, naming what did not happen, after a minute."""
    last = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > last:
            raise TimeoutError(f"waited {_READY_SECONDS:g} s for {what}")
        time.sleep(_POLL_SECONDS)

"""`gossamer up` and its like as processes of their own, and plain clients of the two buses to talk to them."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.bus.streams import StreamsBus
from gossamer.valkey.datadir import running_address
from gossamer.valkey.shards import Shards
from tests.servers.nursery import Reared, serve_in
from tests.servers.schemas import check_outgoing

_START_SECONDS = 60.0
_UP = "Ctrl-C stops it safely."


class Up:
    """One running command, in a folder of its own."""

    def __init__(self, folder: Path, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._command = command
        self._environment = {**os.environ, **environment}
        self._process: Reared | subprocess.Popen[bytes] | None = None
        self._log = folder / "log"

    def start(self) -> None:
        """Return when it says that it is up."""
        begun = self._log.stat().st_size if self._log.exists() else 0
        self._process = serve_in(self.folder, self._command, environment=self._environment, log=self._log)
        last = time.monotonic() + _START_SECONDS
        while _UP not in self.said()[begun:]:
            if self._process.poll() is not None or time.monotonic() > last:
                raise AssertionError(f"it did not start: {self.said()[-3000:]}")
            time.sleep(0.02)

    def said(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        """Of the command itself; it has to be running."""
        assert self._process is not None
        return self._process.pid

    @property
    def api(self) -> str:
        """The address of its REST API."""
        return re.findall(r"REST +(http://\S+)", self.said())[-1]

    def signal(self, number: signal.Signals) -> None:
        """To the command itself, not to its children."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL, its children included."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> int:
        """SIGTERM; its exit code. May be repeated."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(60)


@contextlib.contextmanager
def up(
    folder: Path, *flags: str, command: str = "up", environment: Mapping[str, str] | None = None, policies: str = ""
) -> Iterator[Up]:
    """A running service. `policies`: YAML in force from the start; else 1,000 hits a second."""
    (folder / "policies.yaml").write_text(policies or "default: {hits: 1000, window: 1, moderated: false}\n")
    settings = {
        "GOSSAMER_SERVICE__POLICY_FILE": "policies.yaml",
        "GOSSAMER_FETCH__RETRY_BASE": "0.02",
        "GOSSAMER_FETCH__TIMEOUT": "5",
        "GOSSAMER_WORKER__HEARTBEAT": "2",
        "GOSSAMER_CRAWL__IDLE_SECONDS": "0.2",
        **(environment or {}),
    }
    port = ("--port", "0") if command in ("up", "serve") else ()
    service = Up(folder, [command, *port, *flags], environment=settings)
    try:
        service.start()
        yield service
    finally:
        if service._process is not None and service._process.poll() is None:
            try:
                service.stop()
            except subprocess.TimeoutExpired:
                service.kill()


class Talk:
    """A producer of requests and a consumer of everything that comes out, in JSON; it must be as the schemas say."""

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self.bus = bus
        self.topics = topics
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self._readers: dict[str, Any] = {}

    async def listen(self, *topics: str) -> None:
        """Collect these topics' messages from their beginning."""
        for topic in topics:
            self.seen.setdefault(topic, [])
            self._readers[topic] = await self.bus.read([topic], from_beginning=True)

    async def say(self, *requests: dict[str, Any] | bytes, topic: str | None = None) -> None:
        """Publish requests."""
        values = [r if isinstance(r, bytes) else msgspec.json.encode(r) for r in requests]
        await self.bus.publish(topic or self.topics.incoming, values)

    async def until(
        self, topic: str, wanted: Callable[[list[dict[str, Any]]], bool], *, seconds: float = 90.0
    ) -> list[dict[str, Any]]:
        """All of the topic's messages, as soon as they are what is wanted."""
        if topic not in self._readers:
            await self.listen(topic)
        found = self.seen[topic]
        last = time.monotonic() + seconds
        while not wanted(found):
            assert time.monotonic() < last, f"{topic} has only {found!r:.3000}"
            for message in await self._readers[topic].take(at_most=1000, wait_seconds=0.2):
                found.append(msgspec.json.decode(message.value))
                if topic not in self.topics.requests:
                    check_outgoing(found[-1])
        return found

    async def answer(self, uuid: str, *, appid: str = "testapp") -> dict[str, Any]:
        """The answer under this name."""
        messages = await self.until(
            self.topics.outbound_to(appid), lambda found: any(m.get("uuid") == uuid for m in found)
        )
        return next(message for message in messages if message.get("uuid") == uuid)

    async def event(self, kind: str, crawlid: str, *, appid: str = "testapp") -> dict[str, Any]:
        """A crawl's event of this kind."""

        def wanted(message: dict[str, Any]) -> bool:
            return message.get("action") == kind and message.get("crawlid") == crawlid

        messages = await self.until(self.topics.outbound_to(appid), lambda found: any(map(wanted, found)))
        return next(filter(wanted, messages))

    async def close(self) -> None:
        for reader in self._readers.values():
            await reader.close()


@contextlib.asynccontextmanager
async def talking(service: Up, *, kafka: str = "", prefix: str = "demo") -> AsyncIterator[Talk]:
    """To the service's bus: the broker at `kafka`, or the streams of its private server."""
    topics = Topics(prefix)
    shards = None
    if kafka:
        from gossamer.bus.kafka import KafkaBus

        bus: Bus = KafkaBus(kafka, partitions=2)
    else:
        address = running_address(service.folder / ".gossamer")
        assert address
        shards = await Shards.connect(address)
        bus = StreamsBus(shards, keep_until_acknowledged=topics.requests)
    talk = Talk(bus, topics)
    try:
        yield talk
    finally:
        await talk.close()
        await bus.close()
        if shards is not None:
            await shards.close()

"""A TCP proxy that behaves as badly as a network: one `Link` for each client, in an event loop of its own thread.

Only bytes are passed on: it knows nothing of what is said. All methods may be called from any thread.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Self

_CHUNK = 65536
_START_SECONDS = 60.0


class Network:
    """Links to one server, or to those of a cluster. A context manager; at its end every connection is cut."""

    def __init__(self, host: str, *ports: int) -> None:
        self._targets = [(host, port) for port in ports]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            self.run(link._close())
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self) -> "Link":
        """A new way: to one server on a port of its own; to several on a loopback address of its own (Linux has many)
        and their ports, so that a server that names another by its port alone sends the client there by the same way.
        """
        one = len(self._targets) == 1
        link = Link(self, self._targets, host="127.0.0.1" if one else f"127.77.0.{len(self._links) + 1}")
        self.run(link._listen())
        self._links.append(link)
        return link

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do this in the network's loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS)


class Link:
    """One client's connections. `port` on `host` leads to the first server."""

    def __init__(self, network: Network, targets: Sequence[tuple[str, int]], *, host: str) -> None:
        self.host = host
        self.port = targets[0][1] if len(targets) > 1 else 0
        self._network = network
        self._targets = list(targets)
        self._servers: list[asyncio.Server] = []
        self._pairs: set[_Pair] = set()
        self._forgotten: list[_Pair] = []
        self._delay = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open = True

    @property
    def server_port(self) -> int:
        """Where it leads: the way around it."""
        return self._targets[0][1]

    def slow(self, seconds: float) -> None:
        """From now on every byte takes so much longer, each way. 0: no longer."""
        self._network.run(self._set_delay(seconds))

    def stall(self) -> None:
        """Nothing gets through any more, and nobody is told; new connections are made and as silent."""
        self._network.run(self._stall())

    def resume(self) -> None:
        """What was held up arrives now. May be repeated."""
        self._network.run(self._resume())

    def cut(self) -> None:
        """Reset every connection; what was under way is gone. New ones are made at once."""
        self._network.run(self._cut())

    def part(self) -> None:
        """Cut, and refuse new connections until `rejoin`."""
        self._network.run(self._part())

    def rejoin(self) -> None:
        """Take connections again. May be repeated."""
        self._network.run(self._rejoin())

    def half_open(self) -> None:
        """The connections there are stay open and swallow everything, for ever, as when a firewall has forgotten them;
        the server has lost its end of them. New ones work."""
        self._network.run(self._half_open())

    # --- in the loop --------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        for target in self._targets:
            port = target[1] if self.port else 0
            server = await asyncio.start_server(partial(self._accept, target), self.host, port)
            self._servers.append(server)
        self.port = self._servers[0].sockets[0].getsockname()[1]

    async def _accept(
        self, target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, far_writer)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(pair, reader, far_writer))
                group.create_task(self._pump(pair, far_reader, writer))
        except* (OSError, _Over):
            pass
        except* asyncio.CancelledError:
            pass  # the network ends, and nobody waits for this task
        finally:
            self._pairs.discard(pair)
            if not pair.lost:
                pair.abort()

    async def _pump(self, pair: "_Pair", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes one way, in order, each `delay` later than it came, and none while the link is stalled."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1024)

        async def send() -> None:
            while True:
                due, data = await queue.get()
                if (left := due - loop.time()) > 0:
                    await asyncio.sleep(left)
                await self._flowing.wait()
                if pair.lost:
                    continue
                if not data:
                    raise _Over
                writer.write(data)
                await writer.drain()

        async def receive() -> None:
            while True:
                data = await reader.read(_CHUNK)
                await queue.put((loop.time() + self._delay, data))
                if not data:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            group.create_task(receive())

    async def _set_delay(self, seconds: float) -> None:
        self._delay = seconds

    async def _stall(self) -> None:
        self._flowing.clear()

    async def _resume(self) -> None:
        self._flowing.set()

    async def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.abort()

    async def _part(self) -> None:
        self._open = False
        await self._cut()

    async def _rejoin(self) -> None:
        self._open = True

    async def _half_open(self) -> None:
        for pair in list(self._pairs):
            pair.lost = True
            self._forgotten.append(pair)  # held, so that nobody closes it
            pair.far.transport.abort()

    async def _close(self) -> None:
        self._open = False
        self._flowing.set()
        for server in self._servers:
            server.close()
        for pair in [*self._pairs, *self._forgotten]:
            pair.abort()


async def _end_all() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Over(Exception):
    """One side has ended."""


class _Pair:
    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near = near
        self.far = far
        self.lost = False
        self._task = asyncio.current_task()  # nobody else holds one that waits for a connection that says nothing more

    def abort(self) -> None:
        for writer in (self.near, self.far):
            with contextlib.suppress(RuntimeError):
                writer.transport.abort()

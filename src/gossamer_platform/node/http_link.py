"""Way of a node to managers elsewhere: calls over HTTP, with a token.

Several addresses may be given, of managers on one database; when one cannot be reached, the next is tried. Fixed: paths
and headers (see `wire.py`); and that a call is answered with ManagerUnavailable only if repeating it may help.
"""

import asyncio
import contextlib
import hashlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx
from msgspec import Struct
from msgspec.structs import replace

from gossamer.net.credentials import hide_secrets
from gossamer_platform import wire
from gossamer_platform.link import (
    Announcement,
    Artefact,
    AttemptId,
    BeatOrder,
    JobAssignment,
    LinkRefused,
    ManagerUnavailable,
    NodeOrders,
    NodeReport,
    NodeTurn,
    UnknownAttempt,
)
from gossamer_platform.node.agent import NodeAgent
from gossamer_platform.node.heartbeat import NodeHeartbeats
from gossamer_platform.node.shim import now

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.node")

_CALL_SECONDS: Final = 15.0
"""Time limit of a call."""
_LEAVE_SECONDS: Final = 5.0
"""Time limit of the last call of a node that ends."""
_TRANSFER_SECONDS: Final = 60.0
"""Longest silence while an artefact is received."""
_WAIT_SECONDS: Final = 20.0
"""Time for which a manager is asked to wait for work. Must be less than wire.LONGEST_WAIT_SECONDS."""
_RETRY_SECONDS: Final = 1.0
"""Pause after a wait that failed."""


class ManagerAddress(NamedTuple):
    """Managers, and what the node shows them."""

    managers: Sequence[str]
    """Addresses such as http://127.0.0.1:6800."""
    token: str
    """Secret of a token with the scope `node`. Empty: none, for a manager on this machine."""
    name: str
    """Name of the node."""
    folder_name: str
    """Random name of the node's folder."""


class HttpLink:
    """Implements ManagerLink by HTTP. Call `attach` before `register`, and `close` at the end."""

    def __init__(
        self,
        address: ManagerAddress,
        folder: Path,
        fence: Path,
        *,
        registered: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`folder`: place for logs and items of jobs. `fence`: see `heartbeat.py`. `registered` is called with the
        manager's limit in seconds once the node is registered."""
        self._address = address
        self._registered = registered
        self._folder = folder
        self._fence = fence
        self._headers = {wire.NODE_HEADER: address.name}
        if address.token:
            self._headers["Authorization"] = f"Bearer {address.token}"
        self._manager = 0
        """Index of the manager that answered last."""
        self._calls = httpx.AsyncClient(timeout=_CALL_SECONDS)
        self._direct = httpx.Client(timeout=_CALL_SECONDS)
        """For other threads than that of the event loop."""
        self._agent: NodeAgent | None = None
        self._beats: NodeHeartbeats | None = None
        self._refusal: asyncio.Future[LinkRefused] = asyncio.get_running_loop().create_future()

    def attach(self, agent: NodeAgent) -> None:
        """Name the agent that heartbeats report of, and that obeys their answers. Call this in the event loop."""
        self._agent = agent
        self._headers[wire.INCARNATION_HEADER] = agent.incarnation
        loop = asyncio.get_running_loop()
        self._beats = NodeHeartbeats(
            self._fence,
            send=self._beat,
            attempts=agent.attempts,
            obey=lambda answer: _in_loop(loop, self._obey, answer),
            refused=lambda error: _in_loop(loop, self._refuse, error),
        )

    async def leave(self) -> None:
        """End the heartbeats, and tell the manager that this process ends. Nothing happens if that fails."""
        if self._beats is not None:
            self._beats.stop()
        with contextlib.suppress(ManagerUnavailable, LinkRefused):  # the node is lost after a while
            await self._call("leave", wire.Leave(), wire.Done, seconds=_LEAVE_SECONDS)

    async def close(self) -> None:
        """End the heartbeats and the connections."""
        if self._beats is not None:
            self._beats.stop()
        await self._calls.aclose()
        self._direct.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def register(self, node: Announcement) -> Mapping[AttemptId, bool]:
        asked_at = now()
        registration = wire.Registration(
            self._address.folder_name, node.slots, node.labels, socket.gethostname(), wire.RELEASE
        )
        answer = await self._call("register", registration, wire.Registered, is_first=True)
        assert self._beats is not None
        self._beats.start(answer.limit_seconds, asked_at=asked_at)
        self._registered(answer.limit_seconds)
        return {each.id: each.was_started for each in answer.attempts}

    async def turn(self, asked: NodeTurn) -> NodeOrders:
        orders = await self._call("turn", asked, NodeOrders)
        return replace(orders, jobs=[self._placed(assignment) for assignment in orders.jobs])

    def _placed(self, assignment: JobAssignment) -> JobAssignment:
        """Give an assignment files of its own on this machine."""
        folder = self._folder / str(assignment.id)
        folder.mkdir(parents=True, exist_ok=True)
        output = str(folder / "log")
        # What the process prints goes to the same file, so neither may cut off what the other has written.
        settings = {**assignment.settings, "LOG_FILE": output, "LOG_FILE_APPEND": "True"}
        items = str(folder / "items.jl")
        return replace(assignment, output=output, items=items, settings=settings, enters=[str(folder)], owns=[])

    def fetch(self, artefact: Artefact, target: Path) -> None:
        self._receive(f"artefacts/{artefact.digest}", artefact.digest, target)

    async def fetch_input(self, assignment: JobAssignment, target: Path) -> None:
        path = f"inputs/{assignment.id.job}"
        await asyncio.to_thread(self._receive, path, assignment.input.digest, target)

    def _receive(self, path: str, wanted: str, target: Path) -> None:
        """Write what the manager has at a path, and whose SHA-256 is `wanted`, into a new file. Raises OSError, or
        ManagerUnavailable to be called again."""
        digest = hashlib.sha256()
        with contextlib.ExitStack() as failing:
            failing.callback(target.unlink, missing_ok=True)
            try:
                with (
                    self._calling(path) as url,
                    self._direct.stream("GET", url, headers=self._headers, timeout=_TRANSFER_SECONDS) as response,
                ):
                    if response.is_error:
                        response.read()
                        _check_available(response)
                    response.raise_for_status()
                    with target.open("wb") as file:
                        for part in response.iter_bytes():
                            digest.update(part)
                            file.write(part)
            except httpx.HTTPError as error:
                raise OSError(f"{path} cannot be received: {error}") from None
            if digest.hexdigest() != wanted:
                raise OSError(f"{path}: the manager has sent another file than the one that it named")
            failing.pop_all()

    async def send_part(self, attempt: AttemptId, kind: str, offset: int, content: bytes, lost: bool) -> int:
        """Send bytes of a log or of items; see `uploads.SendPart`."""
        parameters = {"offset": str(offset), "lost": str(lost).lower()}
        with self._calling(f"attempts/{attempt.job}/{attempt.number}/{kind}") as url:
            response = await self._calls.put(
                url, params=parameters, content=content, headers=self._headers, timeout=_TRANSFER_SECONDS
            )
        if response.status_code == 404:
            raise UnknownAttempt(f"{_shown(response)}: {response.text[:200]}")
        return _answer(response, wire.ReceivedEnd).end

    async def report(self, report: NodeReport) -> None:
        await self._call(type(report).__name__.lower(), report, wire.Done)

    async def watch(self, stopping: asyncio.Event) -> None:
        """Wake the agent when there may be work, until `stopping` is set. Raises LinkRefused when the manager does not
        know this process any more."""
        assert self._agent is not None
        stopped = asyncio.create_task(stopping.wait())
        waiting: asyncio.Future[str] | None = None
        cursor = ""
        try:
            while not stopping.is_set():
                waiting = asyncio.create_task(self._wait(cursor))
                watched: set[asyncio.Future[Any]] = {waiting, stopped, self._refusal}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if self._refusal.done():
                    raise self._refusal.result()
                if waiting.done():
                    cursor = waiting.result()
        finally:
            for task in (stopped, waiting):
                if task is not None:
                    task.cancel()

    async def _wait(self, cursor: str) -> str:
        assert self._agent is not None
        try:
            wait = wire.Wait(cursor, _WAIT_SECONDS)
            woken = await self._call("wait", wait, wire.Woken, seconds=_WAIT_SECONDS + _CALL_SECONDS)
        except (ManagerUnavailable, LinkRefused) as error:
            log.debug("%s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            return ""
        for signal in woken.signals:
            self._agent.send_signal(signal.attempt, signal.signal)
        self._agent.wake()
        return woken.cursor

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _beat(self, beat: wire.Beat, seconds: float) -> wire.BeatAnswer:
        with self._calling("beat") as url:
            response = self._direct.post(url, content=wire.encode(beat), headers=self._headers, timeout=seconds)
            return _answer(response, wire.BeatAnswer)

    def _obey(self, answer: wire.BeatAnswer) -> None:
        assert self._agent is not None
        for order in answer.orders:
            if order.order is BeatOrder.UNKNOWN:
                self._agent.give_up(order.id)
            elif order.stop is not None:
                self._agent.stop(order.stop)

    def _refuse(self, error: LinkRefused) -> None:
        if not self._refusal.done():
            self._refusal.set_result(error)

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _call(
        self, name: str, message: Struct, kind: type[T], *, seconds: float = _CALL_SECONDS, is_first: bool = False
    ) -> T:
        with self._calling(name) as url:
            content = wire.encode(message)
            response = await self._calls.post(url, content=content, headers=self._headers, timeout=seconds)
            return _answer(response, kind, is_first=is_first)

    @contextlib.contextmanager
    def _calling(self, name: str) -> Iterator[str]:
        """Give the URL of a call. If the call fails, the next one goes to another manager."""
        manager = self._manager
        url = self._url(name, manager)
        try:
            yield url
        except (httpx.TransportError, ManagerUnavailable) as error:
            self._try_next(manager)
            if isinstance(error, ManagerUnavailable):
                raise
            shown = hide_secrets(url, web=True)
            raise ManagerUnavailable(f"{shown}: {str(error) or type(error).__name__}") from None

    def _url(self, name: str, manager: int) -> str:
        managers = self._address.managers
        return f"{managers[manager % len(managers)].rstrip('/')}{wire.PREFIX}/{name}"

    def _try_next(self, manager: int) -> None:
        """Use the next manager, unless another call that failed has changed to it already."""
        if self._manager == manager:
            self._manager += 1


def _shown(response: httpx.Response) -> str:
    return hide_secrets(str(response.url), web=True)


def _check_available(response: httpx.Response, *, is_first: bool = False) -> None:
    """Raise ManagerUnavailable if the same call may get another answer.

    A token that was good may be good again: it is refused for good only at the first call (`is_first`).
    """
    if response.status_code >= 500 or (response.status_code in (401, 403, 429) and not is_first):
        raise ManagerUnavailable(f"{_shown(response)}: status {response.status_code}, {response.text[:200]}")


def _answer(response: httpx.Response, kind: type[T], *, is_first: bool = False) -> T:
    """Return the message of a response. Raises ManagerUnavailable or LinkRefused."""
    _check_available(response, is_first=is_first)
    try:
        if response.status_code >= 400:
            content = response.json()
            raise LinkRefused(str(content.get("detail") or content.get("message") or response.status_code))
        return wire.decode(kind, response.content)
    except ValueError:
        raise ManagerUnavailable(f"{_shown(response)} is no manager: it answers {response.text[:100]!r}") from None


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Any], None], value: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the node has just ended
        loop.call_soon_threadsafe(call, value)

"""Publishes answers and events, to the common topic and to the topic of the application that they are for.

Fixed: which messages go to which topic of the bus (the message queue of the cluster), where applications consume them.
Must hold: an application whose topic fails delays no other application; and a message is durable somewhere, on its
topic or on that of dead letters, before its sender forgets the request.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.commit.outages import AppOutages
from gossamer.errors import BusError, MessageTooLarge, SinkError
from gossamer.model.json_codec import encode_value
from gossamer.model.messages import answers
from gossamer.policy.retry import outage_pause
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles

log = logging.getLogger("gossamer.services.outbound")

_MAX_KEPT_CHARACTERS = 1000
"""Strings of more characters are left out of a message that is too large for its topic; the whole message goes to the
blob store. The strings that remain in a message must fit on the bus together."""
_TROUBLE = "app_answers"
"""Name of the trouble that an application's topic cannot be written. Fixed: people filter by it."""


class DeliveryLimits(msgspec.Struct, frozen=True):
    """Bounds of what waits for the topics of single applications."""

    prompt_seconds: float = 1.0
    """Time that `send` waits for a topic that has worked so far."""
    patience_seconds: float = 30.0
    """Time for which publishing on a topic that fails is repeated. Then its messages become dead letters. Must exceed
    the 15 s after which Kafka gives a message up, or it would be tried once."""
    pause_seconds: float = 30.0
    """Time until a topic that failed for so long is tried again."""
    waiting_messages: int = 1000
    """Waiting messages of an application beyond which further ones become dead letters at once."""


class OutboundPublisher:
    """Publishes answers and events, to the common topic and to the topic of the message's `appid`, the application that
    sent the request.

    Rejections alone do not create an application's topic: unless it exists, they go only to the common one. Methods
    raise errors of the bus. A call that is repeated may publish messages twice.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        blobs: BlobStore,
        troubles: Troubles,
        *,
        firehose: bool = True,
        per_app: bool = True,
        limits: DeliveryLimits | None = None,
    ) -> None:
        """`blobs`: stores messages that are too large for the bus. `firehose`: True to publish to the common topic;
        `per_app`: True to publish to the applications' topics."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._troubles = troubles
        self._firehose = firehose
        self._per_app = per_app
        self._limits = limits = limits or DeliveryLimits()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, int] = {}
        """Messages that are being delivered, by appid."""
        self._outages = AppOutages(
            troubles,
            name=_TROUBLE,
            effect="Answers to these applications wait, then become dead letters.",
            end="The answers to all applications can be published again.",
            patience_seconds=limits.patience_seconds,
            pause_seconds=limits.pause_seconds,
        )

    async def send(self, messages: Iterable[dict[str, Any]]) -> Mapping[str, "asyncio.Future[None]"]:
        """Publish messages. Return, by appid, a future for each application whose topic does not have its messages yet:
        they are durable when it is done. All other messages are durable when this returns. Messages of one topic stay
        in their order, unless it fails.

        Publishing on an application's topic that fails is repeated for some time; then its messages become dead
        letters."""
        to_send = list(messages)
        own = await self._by_application(to_send) if self._per_app else {}
        prompt = {appid for appid in own if appid not in self._outages and not self._waiting.get(appid)}
        deliveries = {appid: self._start(appid, theirs) for appid, theirs in own.items()}
        try:
            if self._firehose and to_send:
                await self._publish(self._topics.outbound, to_send)
            if prompt:
                await asyncio.wait([deliveries[appid] for appid in prompt], timeout=self._limits.prompt_seconds)
        except BaseException:  # the caller repeats the call
            for task in deliveries.values():
                task.cancel()
            raise
        for task in deliveries.values():
            if task.done():
                task.result()
        return {appid: task for appid, task in deliveries.items() if not task.done()}

    async def bury(self, letters: Iterable[dict[str, Any]]) -> None:
        """Publish dead letters."""
        to_send = list(letters)
        if to_send:
            await self._publish(self._topics.dead_letter, to_send)

    async def close(self) -> None:
        """Give up what is being delivered."""
        for task in self._deliveries:
            task.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)

    async def _by_application(self, messages: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """Return the messages for topics of applications, by appid."""
        found: dict[str, list[dict[str, Any]]] = {}
        for message in messages:
            if appid := message.get("appid"):
                found.setdefault(appid, []).append(message)
        # An invalid request may name any application, so rejections alone must not create a topic.
        only_rejected = {
            self._topics.outbound_to(appid): appid
            for appid, theirs in found.items()
            if all(message.get("action") == answers.REJECTED for message in theirs)
        }
        if only_rejected:
            for topic in only_rejected.keys() - await self._bus.existing(only_rejected):
                del found[only_rejected[topic]]
        return found

    # --- the topics of applications -----------------------------------------------------------------------------------

    def _start(self, appid: str, messages: Sequence[dict[str, Any]]) -> asyncio.Task[None]:
        """Start to deliver messages to an application's topic."""
        waiting = self._waiting.get(appid, 0)
        if self._outages.seconds_to_trial(appid):
            reason = self._outages.reason(appid)
        elif waiting and waiting + len(messages) > self._limits.waiting_messages:
            reason = f"{waiting:,} messages wait for it"
        else:
            reason = ""
            if not waiting:
                self._outages.begin_trial(appid)
        task = asyncio.create_task(self._deliver(appid, messages, reason))
        self._deliveries.add(task)
        self._waiting[appid] = waiting + len(messages)
        task.add_done_callback(lambda done: self._done(appid, len(messages), done))
        return task

    def _done(self, appid: str, count: int, task: asyncio.Task[None]) -> None:
        """Forget a delivery."""
        self._deliveries.discard(task)
        self._waiting[appid] -= count
        if not self._waiting[appid]:
            del self._waiting[appid]

    async def _deliver(self, appid: str, messages: Sequence[dict[str, Any]], reason: str) -> None:
        """Publish messages on an application's topic; as dead letters, with the reason, if that fails for too long.
        `reason`: why the topic does not get them; empty: it does."""
        failures = 0
        while not reason:
            try:
                await self._publish(self._topics.outbound_to(appid), messages)
            except (BusError, SinkError) as error:  # SinkError: of the blob store
                if await self._is_bus_available() and not self._outages.fail(appid, str(error)):
                    reason = str(error)
            else:
                self._outages.end(appid)
                return
            failures += 1
            await asyncio.sleep(outage_pause(failures, random=0.5))
        letters = [self._dead_letter(self._topics.outbound_to(appid), message, reason) for message in messages]
        while True:
            try:
                await self.bury(letters)
                return
            except (BusError, SinkError):
                failures += 1
                await asyncio.sleep(outage_pause(failures, random=0.5))

    async def _is_bus_available(self) -> bool:
        """Return whether the bus answers and has room, so that the failure of a topic has a cause of its own."""
        try:
            await self._bus.ping()
            await self._bus.check_room()
        except BusError:
            return False
        return True

    # --- one topic ----------------------------------------------------------------------------------------------------

    async def _publish(self, topic: str, messages: Sequence[dict[str, Any]]) -> None:
        """Publish messages on a topic, shortened where it takes no more. Those that are too large even then become dead
        letters."""
        while True:
            limit = await self._bus.message_limit(topic)
            values = [await self._encoded(message, limit) for message in messages]
            try:
                await self._bus.publish(topic, [value for value in values if len(value) <= limit])
                break
            except MessageTooLarge:  # the topic's limit has been lowered since
                if await self._bus.message_limit(topic) >= limit:
                    raise
        too_large = [message for message, value in zip(messages, values, strict=True) if len(value) > limit]
        if too_large:
            if topic == self._topics.dead_letter:
                log.error(
                    "%d dead letters are lost: %s takes messages of up to %d bytes. Raise its max.message.bytes",
                    len(too_large), topic, limit,
                )  # fmt: skip
                return
            reason = f"{topic} takes messages of up to {limit:,} bytes, and this one is larger even when shortened"
            await self.bury(self._dead_letter(topic, message, reason) for message in too_large)

    async def _encoded(self, message: dict[str, Any], limit: int) -> bytes:
        """Return the message as JSON; if it is too large, its short fields and the address of the whole message."""
        value = encode_value(message)
        if len(value) <= limit:
            return value
        [address] = await self._blobs.put([value])
        return encode_value({name: _shortened(part) for name, part in message.items()} | {"whole_address": address})

    def _dead_letter(self, topic: str, message: dict[str, Any], reason: str) -> dict[str, Any]:
        """Return the dead letter for a message that its topic does not get."""
        text = encode_value(message).decode()
        return answers.dead_letter(topic, text, "text", field="", reason=reason, now=time.time())


def _shortened(part: Any) -> Any:
    """Return the value of a field, emptied if it may be long: a container, or a long string. Its type stays as the
    schema of the message says."""
    match part:
        case dict() | list():
            return type(part)()
        case str() if len(part) > _MAX_KEPT_CHARACTERS:
            return ""
    return part

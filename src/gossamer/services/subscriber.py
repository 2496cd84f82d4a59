"""Asks the hubs of feeds for subscriptions (W3C WebSub, section 5.1), on behalf of the recrawler.

A hub answers at once, and then asks back at the callback, which the API serves, whether the subscription is wanted.
All requests pass the address guard, and a slow hub delays only other hubs.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

from gossamer.errors import BadInput, FetchError, SinkError
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest
from gossamer.fresh.store import IndexStore
from gossamer.fresh.subscriptions import CALLBACKS, LEASE_SECONDS, Subscription
from gossamer.telemetry import logs
from gossamer.telemetry.metrics import ServiceMetrics

log = logging.getLogger("gossamer.services.subscriber")

_ANSWER_BYTES: Final = 64 * 1024
_SHOWN_CHARACTERS: Final = 200


class HubSubscriber:
    """Asks hubs one after the other, in the background."""

    def __init__(
        self,
        client: HttpClient,
        store: IndexStore,
        metrics: ServiceMetrics,
        *,
        public_url: str,
        agent: str,
        proxy: str | None,
    ) -> None:
        """`client`: closed with this object. `public_url`: address of the API as hubs reach it. `agent`: User-Agent.
        `proxy`: that of all requests; None: none."""
        self._client = client
        self._store = store
        self._metrics = metrics
        self._public_url = public_url.rstrip("/")
        self._agent = agent
        self._proxy = proxy
        self._waiting: dict[str, tuple[str, Subscription]] = {}
        """Name of the index and the subscription, by its id."""
        self._task: asyncio.Task[None] | None = None

    def offer(self, name: str, subscriptions: Sequence[Subscription]) -> None:
        """Ask the hubs of these subscriptions of the index with this name soon."""
        self._waiting.update((one.id, (name, one)) for one in subscriptions)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Stop; what was not asked is due again later."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._client.close()

    async def idle(self) -> None:
        """Wait until all hubs were asked."""
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while self._waiting:
            name, one = self._waiting.pop(next(iter(self._waiting)))
            if one.tries:
                reason = "the hub did not ask back whether the subscription is wanted"
                await self._note_fault(name, one, "unverified", reason)
            if reason := await self._ask(name, one):
                await self._note_fault(name, one, "failed", reason)
            else:
                self._metrics.websub.labels("asked").inc()

    async def _ask(self, name: str, one: Subscription) -> str:
        """Ask the hub for a subscription. Returns why it does not take the request; empty: it does."""
        form = {
            "hub.mode": "subscribe",
            "hub.topic": one.topic,
            "hub.callback": f"{self._public_url}{CALLBACKS}{name}/{one.id}",
            "hub.lease_seconds": str(LEASE_SECONDS),
            "hub.secret": one.secret,
        }
        request = FetchRequest(
            one.hub,
            method="POST",
            headers=(("User-Agent", self._agent), ("Content-Type", "application/x-www-form-urlencoded")),
            body=urlencode(form).encode(),
            proxy=self._proxy,
            body_bytes=_ANSWER_BYTES,
        )
        try:
            response = await self._client.fetch(request)
        except (FetchError, BadInput) as error:
            return str(error)
        if 200 <= response.status < 300:
            return ""
        said = " ".join(response.body.decode("utf-8", "replace").split())[:_SHOWN_CHARACTERS]
        return f"it answered with status {response.status}{f': {said}' if said else ''}"

    async def _note_fault(self, name: str, one: Subscription, event: str, reason: str) -> None:
        self._metrics.websub.labels(event).inc()
        log.warning("%s %s for %s: %s", logs.HUB_REFUSED, one.hub, one.topic, reason)
        with suppress(SinkError, BadInput):  # it is tried again, whether this is noted or not
            await asyncio.to_thread(self._store_fault, name, one.id, reason)

    def _store_fault(self, name: str, id: str, reason: str) -> None:
        index = self._store.open(name)
        try:
            index.subscriptions.note_fault(id, reason)
        finally:
            index.close()

"""Sends events to webhooks, signed as Standard Webhooks says, until each is accepted or dead.

Any number of managers may do this on one database; each delivery is leased to one of them. It is sent at least once: a
manager that is killed between the answer and its record lets it be sent again, with the same id. Fixed: the headers and
what is signed (https://www.standardwebhooks.com), which receivers check.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
from typing import Final
from urllib.parse import urlsplit

import httpx

from gossamer.errors import BadInput, DnsFailed
from gossamer.model.json_codec import encode_value
from gossamer_platform.delivery.addresses import WebhookAddresses
from gossamer_platform.delivery.leases import LeasedRows, work_on_leases
from gossamer_platform.manager.vault import SecretUnreadable, SecretVault
from gossamer_platform.state import webhooks
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.webhooks import LeasedDelivery

log = logging.getLogger("gossamer.platform.delivery")

_REQUEST_SECONDS: Final = 15.0
"""Time limit of a request, look-up of the name included. Must be less than the lease of a delivery."""
_PREFIX: Final = "whsec_"
"""Beginning of a secret. Standard Webhooks': fixed."""


def new_secret() -> str:
    """Return a random secret."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature_of(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class WebhookSender:
    """Sends the deliveries that are due."""

    def __init__(self, database: StateDatabase, vault: SecretVault, guard: WebhookAddresses) -> None:
        self._database = database
        self._vault = vault
        self._guard = guard

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until `stopping` is set. What is being sent then is left to the next manager."""
        # No proxies of the environment: the guard's address would be looked up by another machine.
        async with httpx.AsyncClient(timeout=_REQUEST_SECONDS, trust_env=False, follow_redirects=False) as client:
            rows = LeasedRows(
                "events", webhooks.has_due, webhooks.lease_deliveries, lambda delivery: self._send(client, delivery)
            )
            try:
                await work_on_leases(self._database, rows, stopping)
            finally:
                self._guard.close()

    async def _send(self, client: httpx.AsyncClient, delivery: LeasedDelivery) -> None:
        status: int | None = None
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                status = await self._post(client, delivery)
            error = "" if 200 <= status < 300 else f"the receiver answered {status}"
        except TimeoutError:
            error = f"there was no answer within {_REQUEST_SECONDS:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, BadInput, DnsFailed, SecretUnreadable) as fault:
            error = str(fault) or type(fault).__name__
        except Exception as fault:  # otherwise it would be sent again as soon as its lease is over
            log.exception("event %s cannot be sent", delivery.event_id)
            error = type(fault).__name__
        if error:
            log.warning("event %s of webhook %d: %s", delivery.event_id, delivery.webhook_id, error)
            await self._database.write(lambda c: webhooks.record_failure(c, delivery, error, status))
        else:
            await self._database.write(lambda c: webhooks.record_sent(c, delivery, status or 0))

    async def _post(self, client: httpx.AsyncClient, delivery: LeasedDelivery) -> int:
        """Send a delivery, and return the status of the answer, whose body is not read."""
        address = await self._guard.resolve(delivery.url)
        secret = self._vault.decrypt(delivery.project or "", delivery.secret_name, delivery.secret)
        body, timestamp = encode_value(delivery.body), int(time.time())
        host = urlsplit(delivery.url).hostname or ""
        url = httpx.URL(delivery.url)
        headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/json",
            "User-Agent": "Gossamer-Webhook",
            "webhook-id": delivery.event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature_of(secret, delivery.event_id, timestamp, body),
        }
        # The certificate is checked against the name, although the connection goes to the address.
        request = client.build_request(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers=headers,
            extensions={"sni_hostname": host, "timeout": httpx.Timeout(_REQUEST_SECONDS).as_dict()},
        )
        response = await client.send(request, stream=True)
        await response.aclose()
        return response.status_code

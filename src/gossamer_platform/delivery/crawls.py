"""Submits the crawl requests of schedules to the crawl service, until it has taken them or refuses.

Any number of managers may do this on one database; each firing is leased to one of them. The service gets the same
Idempotency-Key with each attempt, so a repetition after a lost answer, or by another manager, submits nothing twice.
Fixed: the service's path, headers and fields.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from gossamer.errors import BadInput
from gossamer.model.json_codec import encode_value
from gossamer.net.credentials import hide_secrets
from gossamer.net.paths import path_of
from gossamer_platform.delivery.leases import LeasedRows, work_on_leases
from gossamer_platform.state import crawl_firings
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tables import CrawlFiring

log = logging.getLogger("gossamer.platform.delivery")

_REQUEST_SECONDS: Final = 30.0
"""Time limit of a request. Must be less than the lease of a firing."""
_MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer that are read. A thousand results have half a megabyte."""
_PASSING: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which the request is repeated: the service is busy."""
_NO_SERVICE: Final = (
    "this server knows no crawl service. Start it with --crawl-service URL (gossamer manager), or with crawl_service = "
    "URL below [scrapyd] in scrapyd.conf (gossamer scrapyd)"
)


class CrawlService(NamedTuple):
    """Address of a crawl service (`gossamer up` or `gossamer serve`), and how to log in there."""

    url: str
    """Without a slash at the end. Empty: there is no service."""
    token: str = ""

    @classmethod
    def of(cls, url: str, token: str) -> "CrawlService":
        """Return the service at an address that an operator gives. Raises BadInput."""
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if url and (not is_address or parts.query or parts.fragment or "@" in parts.netloc):
            raise BadInput(
                f"crawl_service: {hide_secrets(url, web=True)!r} is no address such as http://localhost:5343"
            )
        if not (token.isascii() and token.isprintable()):
            raise BadInput("crawl_service_token: has characters that a header cannot carry")
        return cls(url.rstrip("/"), token)

    def require(self) -> None:
        """Raise BadInput if there is no service."""
        if not self.url:
            raise BadInput(_NO_SERVICE)

    def address_of(self, appid: str, crawlid: str) -> str | None:
        """Return the address of a crawl. None: there is no service."""
        return f"{self.url}/v1/crawls/{path_of(appid, crawlid)}" if self.url else None


class CrawlSubmitter:
    """Submits the firings that are due."""

    def __init__(self, database: StateDatabase, service: CrawlService) -> None:
        self._database = database
        self._service = service

    async def run(self, stopping: asyncio.Event) -> None:
        """Submit until `stopping` is set. What is being submitted then is left to the next manager."""
        async with httpx.AsyncClient(timeout=_REQUEST_SECONDS, trust_env=False, follow_redirects=False) as client:
            rows = LeasedRows(
                "crawl requests of schedules",
                crawl_firings.has_due,
                crawl_firings.lease_firings,
                lambda firing: self._submit(client, firing),
            )
            await work_on_leases(self._database, rows, stopping)

    async def _submit(self, client: httpx.AsyncClient, firing: CrawlFiring) -> None:
        status: int | None = None
        is_final = False
        try:
            self._service.require()
            async with asyncio.timeout(_REQUEST_SECONDS):
                status, answer = await self._post(client, firing)
            result, error = _result_of(status, answer, firing)
            is_final = bool(error) and status < 500 and status not in _PASSING
        except TimeoutError:
            error = f"{self._service.url} did not answer within {_REQUEST_SECONDS:g} seconds"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
            error = f"{self._service.url} cannot be reached: {fault or type(fault).__name__}"
        except BadInput as fault:
            error = str(fault)
        except Exception as fault:  # otherwise it would be submitted again as soon as its lease is over
            log.exception("firing %d cannot be submitted", firing.id)
            error = type(fault).__name__
        if error:
            log.warning("crawl requests of schedule %d: %s", firing.schedule_id, error)
            record = crawl_firings.record_failure
            await self._database.write(lambda c: record(c, firing, error, status, is_final=is_final))
        else:
            await self._database.write(lambda c: crawl_firings.record_submitted(c, firing, status or 0, result))

    async def _post(self, client: httpx.AsyncClient, firing: CrawlFiring) -> tuple[int, bytes]:
        """Send the requests of a firing. Return the status, and the beginning of the answer."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": firing.key}
        if self._service.token:
            headers["Authorization"] = f"Bearer {self._service.token}"
        url, content = f"{self._service.url}/v1/crawls", encode_value(firing.requests)
        async with client.stream("POST", url, content=content, headers=headers) as response:
            answer = bytearray()
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > _MAX_ANSWER:
                    break
            return response.status_code, bytes(answer)


def _result_of(status: int, answer: bytes, firing: CrawlFiring) -> tuple[str, str]:
    """Return what the service did, and an empty text; or an empty text, and why it did not do it all."""
    try:
        body = json.loads(answer)
    except ValueError:
        body = None
    if status != 207:
        detail = body.get("detail") or body.get("title") if isinstance(body, dict) else None
        return "", f"the crawl service answered {status}" + (f": {detail}" if detail else "")
    try:
        return _summary(body["items"], firing)
    except (KeyError, TypeError, ValueError):
        return "", "the crawl service answered with something else than results"


def _summary(items: Sequence[Any], firing: CrawlFiring) -> tuple[str, str]:
    crawls = [f"{appid}/{crawlid}" for appid, crawlid in firing.crawls]
    name = f"crawl {crawls[0]}" if len(crawls) == 1 else f"{len(crawls)} crawls"
    refused = [item for item in items if item["status"] >= 400]
    if refused:
        first = f"{refused[0]['field']}: {refused[0]['reason']}".removeprefix(": ")
        return "", f"{name}: {len(refused)} of {len(items)} requests refused: {first}"
    added = sum(item["status"] == 201 for item in items)
    requests = "1 request" if added == 1 else f"{added} requests"
    seen = f", {len(items) - added} known already" if added < len(items) else ""
    return f"{name}: {requests} added{seen}", ""

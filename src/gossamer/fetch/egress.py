"""Finds the public address that this process's requests come from (its egress), by asking an address service.

The frontier, which hands out requests, counts hits (requests to a site) per egress: workers behind one address share
what the site permits.

Fixed: `_TROUBLE`; `parse` must return the one shortest spelling of an address, because the frontier stores budgets
under it: two spellings would be two budgets, so twice the hits that a site permits; and a service that does not respond
must never stop the worker."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from gossamer.errors import BadInput, FetchError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.proxies import first_proxy
from gossamer.policy.urls import canonical
from gossamer.telemetry.logs import Troubles

MAX_RESPONSE_BYTES = 64 * 1024
"""Bytes of a response that are searched for the address. `wiring/worker.py` also stops reading there. A page that names
the address later needs more."""

_TROUBLE = "egress"
"""Name of this problem in the log, among the worker's present troubles and in the metric `gossamer_trouble`, whose
label values alerts use: fixed. Another module must not use it."""
_FIRST_RETRY_SECONDS = 5.0
"""Delay of the first retry after a failure; it doubles with each further failure, up to the refresh interval. A shorter
one asks a failing service more often."""


class AddressService:
    """A web service that returns the address that a request came from."""

    def __init__(self, url: str, *, pattern: str, user_agent: str, proxy: str = "") -> None:
        """`pattern`: regular expression of the address in the response; if it has groups, the first group is the
        address. `proxy`: URL of the proxy that pages are fetched through, whose address then is the egress; empty:
        none. Raises BadInput for an invalid URL or expression.
        """
        try:
            self._pattern = re.compile(pattern)
        except re.error as fault:
            raise BadInput(f"fetch.egress_pattern {pattern!r}: {fault}") from None
        self.url = canonical(url)
        self.request = FetchRequest(
            self.url,
            headers=(("User-Agent", user_agent), ("Accept", "text/plain,*/*;q=0.5")),
            proxy=first_proxy(proxy),
        )

    def parse(self, response: FetchResponse) -> str:
        """Return the first address in the response, in its shortest form. Raises BadInput if there is none."""
        if response.status != 200:
            raise BadInput(f"it responded with status {response.status}")
        text = response.body[:MAX_RESPONSE_BYTES].decode("utf-8", "replace")
        for found in self._pattern.finditer(text):
            candidate = found[1] if self._pattern.groups else found[0]
            try:
                # A loose pattern also finds brackets and the full stop of a sentence.
                return str(ip_address((candidate or "").strip(" .[]")))
            except ValueError:
                continue
        raise BadInput("its response contains no address")


class EgressMonitor:
    """Keeps the name of a worker's egress up to date.

    The name is the last address that the service returned, or before any response the name that the operator
    configured. A service that does not respond is reported as a trouble.
    """

    def __init__(
        self,
        service: AddressService,
        fetch: Callable[[FetchRequest], Awaitable[FetchResponse]],
        troubles: Troubles,
        *,
        fallback_name: str,
        refresh_seconds: float,
    ) -> None:
        """`fallback_name`: the operator's name for this egress."""
        self._service = service
        self._fetch = fetch
        self._troubles = troubles
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = 0.0  # last delay after a failure; 0.0: the service responded since
        self.name = fallback_name
        """Name under which the frontier now counts this worker's hits. Empty: the default egress."""

    async def refresh(self) -> bool:
        """Ask the service once and set `name`. Returns whether there was a valid response."""
        try:
            self.name = self._service.parse(await self._fetch(self._service.request))
        except (FetchError, BadInput) as error:
            reason = error.detail if isinstance(error, BadInput) else str(error).rstrip(".")
            self._troubles.begin(
                _TROUBLE,
                f"The address service {self._service.url} does not return an address: {reason}. "
                f"Until it does, politeness budgets are kept for the egress {self.name or 'default'}.",
            )
            return False
        self._troubles.end(_TROUBLE, f"The address service returned {self.name} as the address of requests.")
        return True

    async def run(self, changed: Callable[[str], None]) -> None:
        """Refresh `name` until cancelled, and call `changed` with each new one. Call `refresh` once before.

        After a failure the service is asked again sooner.
        """
        pause = self._next_pause(succeeded=_TROUBLE not in self._troubles.current)
        while True:
            await asyncio.sleep(pause)
            before = self.name
            pause = self._next_pause(succeeded=await self.refresh())
            if self.name != before:
                changed(self.name)

    def _next_pause(self, *, succeeded: bool) -> float:
        """Return the seconds until the next call of the service. `succeeded`: whether the last call did."""
        if succeeded:
            self._retry_seconds = 0.0
            return self._refresh_seconds
        self._retry_seconds = min(2 * self._retry_seconds or _FIRST_RETRY_SECONDS, self._refresh_seconds)
        return self._retry_seconds

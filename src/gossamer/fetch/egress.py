"""The public address that requests come from, as an address service sees it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from gossamer.errors import BadInput, FetchError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.policy.urls import canonical
from gossamer.telemetry.logs import Troubles

ANSWER_BYTES = 64 * 1024
"""As much of an answer as is looked at: an address is short, the page around it may not be."""

_TROUBLE = "egress"
_FIRST_RETRY_SECONDS = 5.0


class AddressService:
    """How to ask it, and how to read what it says."""

    def __init__(self, url: str, *, pattern: str, user_agent: str, proxy: str = "") -> None:
        """`pattern`: a regular expression of the address in the answer; its first group where it has groups. `proxy`:
        the one that pages are response through, whose address then is the egress; empty: none.
        Raises BadInput for a URL or an expression that is none."""
        try:
            self._pattern = re.compile(pattern)
        except re.error as fault:
            raise BadInput(f"fetch.egress_pattern {pattern!r}: {fault}") from None
        self.url = canonical(url)
        self.request = FetchRequest(
            self.url,
            headers=(("User-Agent", user_agent), ("Accept", "text/plain,*/*;q=0.5")),
            proxy=proxy or None,
        )

    def parse(self, response: FetchResponse) -> str:
        """The first address in the answer, in its shortest form. Raises BadInput where there is none."""
        if response.status != 200:
            raise BadInput(f"it answered {response.status}")
        text = response.body[:ANSWER_BYTES].decode("utf-8", "replace")
        for found in self._pattern.finditer(text):
            candidate = found[1] if self._pattern.groups else found[0]
            try:
                return str(ip_address((candidate or "").strip(" .[]")))
            except ValueError:
                continue
        raise BadInput("its answer has no address in it")


class EgressMonitor:
    """Keeps a worker's egress true: what the service said last counts, and until it said something, the name that the
    operator gave. An answer that does not come is a trouble that is said, never a reason to stop."""

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
        self.name = fallback_name
        """Under which budgets are kept now."""

    async def refresh(self) -> bool:
        """Once; whether there was an answer. `name` has it then."""
        try:
            self.name = self._service.parse(await self._fetch(self._service.request))
        except (FetchError, BadInput) as error:
            reason = error.detail if isinstance(error, BadInput) else str(error).rstrip(".")
            self._troubles.begin(
                _TROUBLE,
                f"The address service {self._service.url} cannot be used: {reason}. "
                f"Until it can, budgets are kept for the egress {self.name or 'default'}.",
            )
            return False
        self._troubles.end(_TROUBLE, f"The address service says that requests come from {self.name}.")
        return True

    async def run(self, changed: Callable[[str], None]) -> None:
        """For ever: ask again when it is time, sooner after a failure (5 s, doubling). `changed` is told a new name.
        To be begun after the first `ask`."""
        pause = self._next(0.0, answered=_TROUBLE not in self._troubles.current)
        while True:
            await asyncio.sleep(pause)
            before = self.name
            pause = self._next(pause, answered=await self.refresh())
            if self.name != before:
                changed(self.name)

    def _next(self, pause: float, *, answered: bool) -> float:
        if answered:
            return self._refresh_seconds
        longer = 2 * pause if 0 < pause < self._refresh_seconds else _FIRST_RETRY_SECONDS
        return min(longer, self._refresh_seconds)

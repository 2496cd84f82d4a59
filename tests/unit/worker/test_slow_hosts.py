"""Requests to a host where connecting takes long have a limit of lateness, too."""

import math
import time
from types import SimpleNamespace
from typing import Any, cast

from gossamer.errors import NotSentInTime
from gossamer.fetch.exchange import FetchRequest
from gossamer.model.request import Outcome
from gossamer.policy.lateness import send_by
from gossamer.policy.refusals import DEFAULT_FINDER
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.worker.fetcher import Fetcher
from gossamer.worker.proxies import ProxyOptions, WorkerProxies

CONNECT_SECONDS = 0.4
SPACING = 0.05


class SlowClients:
    """Sends nothing; every connection takes as long."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    async def fetch(self, request: FetchRequest, timeout: float | None, **_: Any) -> None:
        assert request.send_by is not None
        self.limits.append(request.send_by + request.connect_allowance)
        error = NotSentInTime()
        error.connecting, error.connect_seconds = True, CONNECT_SECONDS
        raise error


async def test_a_request_may_be_late_by_what_connecting_takes_and_no_more() -> None:
    clients = SlowClients()
    nothing = cast(Any, SimpleNamespace(frontier=None, holder=None, retrier=None, keep_wire=False, retries=0))
    nothing.retry_base_seconds, nothing.asset_bytes, nothing.body_bytes, nothing.tally = 0.0, 0, 0, Tally()
    nothing.open_browser = None
    nothing.sessions_of = None
    nothing.refusals = DEFAULT_FINDER
    nothing.proxies = WorkerProxies(ProxyOptions(), Tally().fail_proxy, Troubles())
    robots = cast(Any, SimpleNamespace(allows_at_once=lambda attempt: True))
    fetcher = Fetcher(
        nothing, cast(Any, clients), robots, nothing, nothing, nothing, policy=nothing, budget=nothing
    )  # fmt: skip
    late = []
    for _ in range(5):
        start = time.monotonic()
        attempt = cast(Any, SimpleNamespace(url="https://slow.test/", start=start, was_sent=False))
        attempt.lease = SimpleNamespace(domain="slow.test", spacing_seconds=SPACING, deaths=0, blacklisted=False)
        attempt.lease.render, attempt.lease.terms = False, SimpleNamespace(render_match=(), render_auto=False)
        attempt.context = SimpleNamespace(terms=SimpleNamespace(timeout_seconds=None), proxy=None)
        attempt.payload = SimpleNamespace(asset=None, sitemap=False)
        attempt.request = lambda keep_wire: FetchRequest("https://slow.test/")
        finished = await fetcher._fetch(attempt)
        assert finished.settlement.outcome is Outcome.RETURNED
        late.append(clients.limits[-1] - send_by(start, SPACING))
    assert late[0] == 0.0
    assert all(math.isfinite(seconds) for seconds in late)
    assert CONNECT_SECONDS <= late[-1] <= 1.5 * CONNECT_SECONDS

"""Hosts where connecting takes long: their requests may be sent later. The words are those of `lateness.py`."""

from typing import NamedTuple

# A request that could not be sent in time leaves its new connection to the next request to the host. But the host may
# close this connection first. Then the next request has to connect again, and could not be sent in time, either: a host
# where connecting always takes long would never be fetched. Therefore requests to such a host get an allowance: they
# may be sent later, by about the time that connecting takes there. Since all of them are late by about the same time,
# they still reach the site apart from each other. Example, for a host where connecting takes 0.4 s:
#
#   first request     may be sent until 0.15 s after its start time; it connects until 0.4 s and is not sent
#   allowance         the smaller of 1.25 * 0.4 s and 0.2 s: 0.2 s
#   second request    may be sent until 0.35 s; it connects until 0.4 s and is not sent
#   allowance         the smaller of 1.25 * 0.4 s and 2 * 0.2 s + 0.2 s: 0.5 s
#   third request     may be sent until 0.65 s; it connects until 0.4 s and is sent
#
# Only the time that connecting takes the network and the server counts: the HTTP client subtracts stalls of its own
# process (telemetry/stalls.py). After a stall of the network, connecting has taken long at every host. Requests that
# were held up so must not be sent together afterwards. So the allowance rises in steps, and only once for one stall.

_SLOW_HOST_SECONDS = 10.0
"""Time for which a host is known to connect slowly. Must be long enough for a request whose lease was returned to be
leased again, or a host that always connects slowly is never fetched."""
_MAX_SLOW_HOSTS = 10_000
"""Slow hosts that are known at once. When there are more, all are forgotten."""
_ALLOWANCE_STEP_SECONDS = 0.2
"""The allowance of a slow host rises at most to twice the last one and this much more: to 0.2 s, then 0.6 s, then 1.4
s. With a larger step, fewer leases are returned until the allowance suffices, but after a stall of the network,
requests that were connecting may come closer together by as much as this step."""

_VARIATION = 1.25
"""Allowance as a multiple of the time that connecting took, because it never takes the same. With less, more leases are
returned; with more, requests may come closer together after a stall."""


class _SlowHost(NamedTuple):
    """A host where connecting takes long. Times on the monotonic clock."""

    allowance: float
    """Seconds by which a request may be sent later."""
    raised_at: float
    """Time at which the allowance was raised last."""
    known_until: float
    """Time at which the host is forgotten."""


class SlowHosts:
    """Hosts where requests were not sent in time because connecting took too long, each with its allowance.

    The comment above has the reason and an example. The allowance follows the time that connecting takes. A request
    that takes much longer than the allowance was held up by something else, and is not sent.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _SlowHost] = {}

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def allowance(self, host: str, *, now: float) -> float:
        """Return by how many seconds more a request to this host may be late; 0 for a host that connects in time."""
        known = self._hosts.get(host)
        if known is None:
            return 0.0
        if now < known.known_until:
            return known.allowance
        del self._hosts[host]
        return 0.0

    def on_late(self, host: str, *, took: float, allowed: float, began: float, now: float) -> None:
        """Record that a request was not sent in time, because connecting took so long.

        `took`: seconds that connecting took, without stalls of this process. `allowed`: the request's allowance.
        `began`: when the request asked for that allowance. Of the requests that were connecting at once, only the first
        one raises the allowance: the others began before it was raised. So a single stall does not raise it several
        times.
        """
        allowance, raised_at, _ = self._hosts.get(host, (0.0, float("-inf"), 0.0))
        if began >= raised_at:  # the allowance was not raised while this request was connecting
            allowance, raised_at = min(_VARIATION * took, 2 * allowed + _ALLOWANCE_STEP_SECONDS), now
        if len(self._hosts) >= _MAX_SLOW_HOSTS:
            self._hosts.clear()
        self._hosts[host] = _SlowHost(allowance, raised_at, now + _SLOW_HOST_SECONDS)

    def on_connected(self, host: str, *, took: float, now: float) -> None:
        """Record that a request was sent in time on a new connection. If connecting took less than half of the host's
        allowance, the allowance is lowered. Does nothing for a host that is not known."""
        known = self._hosts.get(host)
        if known is not None:
            allowance = known.allowance if took > known.allowance / 2 else _VARIATION * took
            self._hosts[host] = _SlowHost(allowance, known.raised_at, now + _SLOW_HOST_SECONDS)

"""Refusals by sites, counted: by kind, and those of a host without a page between them."""

from collections.abc import Mapping
from typing import Final

from gossamer.policy.refusal_rests import IN_A_ROW, LONGEST_SECONDS, rests
from gossamer.policy.refusal_rules import BY_SITE
from gossamer.policy.retry import MISSING, REFUSED
from gossamer.policy.words import counted, explain, reason_counts
from gossamer.telemetry.logs import Troubles

_HOSTS_WATCHED: Final = 2000
"""Hosts that refuse now which a process remembers."""
_HOSTS_NAMED: Final = 3
_TROUBLE: Final = "refusals"
"""Name of the trouble. People see it in logs and metrics."""


def refusals_by_kind(failed: Mapping[str, int]) -> dict[str, int]:
    """Return the number of refusals by kind. `failed`: failures by reason."""
    return {reason.removeprefix(REFUSED): count for reason, count in failed.items() if reason.startswith(REFUSED)}


def refused_by_sites(failed: Mapping[str, int]) -> dict[str, int]:
    """Return the number of pages that sites have refused, by kind: without those that are missing or empty."""
    return {kind: count for kind, count in refusals_by_kind(failed).items() if kind in BY_SITE}


def refusals_text(failed: Mapping[str, int], *, fetched: int, pool: str) -> str:
    """Return sentences about the refusals among the failures of a crawl; empty: there are none. `pool`: the crawl's
    group of workers."""
    refused, found = refused_by_sites(failed), refusals_by_kind(failed)
    lines = []
    if refused:
        commonest = max(refused, key=refused.__getitem__)
        pages = f"{counted(sum(refused.values()), 'page')} ({reason_counts(refused)}), and sent {fetched:,}"
        lines.append(f"refused by sites: {pages}. {explain(REFUSED + commonest, pool=pool).advice}")
    for kind in found.keys() - refused.keys():
        title, advice = explain(REFUSED + kind, pool=pool)
        lines.append(f"{counted(found[kind], 'response')} without a page: {title}. {advice}".rstrip())
    return " ".join(lines)


def mostly_refused(failed: Mapping[str, int], *, fetched: int) -> bool:
    """Return whether sites have refused more pages than they have sent. Those that need a login do not count."""
    return sum(count for kind, count in refused_by_sites(failed).items() if kind != "login") > fetched


class RefusingHosts:
    """Hosts that have refused all pages of late; a trouble while one has refused many in a row."""

    def __init__(self, troubles: Troubles | None = None, *, pool: str = "") -> None:
        """`troubles` None: refusals are only counted. `pool`: the worker's group. Empty: that of a command."""
        self._troubles = troubles
        self._pool = pool
        self.in_a_row: dict[str, int] = {}
        """Refusals since the last page, by host. Empty for nearly all crawls, so that a page costs one comparison."""

    def on_refusal(self, host: str, reason: str) -> None:
        """Count a refusal, if it is more than a page that is missing. `reason`: as in records."""
        if reason == MISSING or (host not in self.in_a_row and len(self.in_a_row) >= _HOSTS_WATCHED):
            return
        count = self.in_a_row[host] = self.in_a_row.get(host, 0) + 1
        if count == IN_A_ROW and self._troubles is not None:
            title, advice = explain(reason, pool=self._pool)
            kind = reason.removeprefix(REFUSED)
            verb = "refused" if kind in BY_SITE else "sent empty shells in place of"
            refused = f"{host} has {verb} {count} pages in a row, and sent none between them"
            rest = f" It rests for up to {LONGEST_SECONDS:.0f} s at a time until it sends pages again." * rests(kind)
            self._troubles.update(_TROUBLE, f"{refused}. {title}. {advice}{rest}")

    def on_page(self, host: str) -> None:
        """Record a page of a host."""
        if self.in_a_row.pop(host, 0) >= IN_A_ROW and self._troubles is not None and not self.shown():
            self._troubles.end(_TROUBLE, f"{host} sends pages again.")

    def shown(self) -> dict[str, int]:
        """Return the hosts that have refused many pages in a row, with their number."""
        return {host: count for host, count in self.in_a_row.items() if count >= IN_A_ROW}


def refusing_lines(refusing: Mapping[str, int]) -> list[str]:
    """Return lines about the hosts that refuse, those with most refusals in a row first."""
    hosts = sorted(refusing.items(), key=lambda pair: -pair[1])
    lines = [f"the last {count:,} of {host} were all refused" for host, count in hosts[:_HOSTS_NAMED]]
    left = len(hosts) - _HOSTS_NAMED
    return [*lines, f"and so were those of {counted(left, 'other host')}"] if left > 0 else lines

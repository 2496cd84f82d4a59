"""What came of a run: domain by domain, and by style and scope. Pure."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gossamer.fakeweb import Record
from gossamer.model.crawl import BudgetScope
from gossamer_fakeweb.log import domain_of, is_page
from tests.politeness.checker import BLUR_SECONDS, Change, Checked, Hit, check
from tests.politeness.plan import SPIDERS, Plan, Site
from tests.politeness.usage import Interval, Usage, usage
from tests.politeness.wire import Arrivals

FORGIVEN_AT_MOST = 0.001
"""The largest share of the requests that the machine's own delays may excuse. With more of them a run shows nothing."""
USED_AT_LEAST = 0.95
"""Of what a domain's budgets allow."""
MEASURED_AT_LEAST_SECONDS = 10.0
"""A domain that was measured for less says nothing of its own."""


SILENCE_SECONDS = 0.1
CATCH_UP_SECONDS = 0.1
"""So long after a silence, and no longer than it was, what is noted may have come in it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known after a run. All times are of one clock."""

    plan: Plan
    log: Sequence[Record]
    timelines: Mapping[str, Sequence[Change]]
    span: Interval
    """From when all workers fetched until they were told to end."""
    holds: Mapping[str, Sequence[Interval]]
    outages: Mapping[str, Sequence[Interval]]
    stall_seconds: float
    """The longest that the machine itself kept somebody waiting."""
    troubles: Sequence[str]
    """What went wrong beside: workers that ended, policies that were not as told."""
    arrivals: Arrivals | None = None
    """When the requests arrived at the web's machine. None: that was not recorded, only when the web noted them."""
    sent_late: Mapping[str, float] = field(default_factory=dict)
    """By URL: for how long its worker says that it stood still while it sent the request."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One domain."""

    site: Site
    scope: BudgetScope
    changes: int
    requests: int
    checked: Checked
    forgiven: int
    """Requests that were too many by the web's clock and are excused: the machine had kept the web, all, or the
    worker that sent them waiting."""
    usage: Usage
    dry: tuple[str, ...]
    """Spiders that were fed too little to say what they would have used."""


def silences(log: Sequence[Record]) -> list[Interval]:
    """When a web that is asked hundreds of times a second noted nothing: its machine had no time for it. What came
    meanwhile was noted at the end."""
    times = sorted(record.started for record in log)
    return [(since, until) for since, until in pairwise(times) if until - since >= SILENCE_SECONDS]


def hits_by_domain(
    log: Sequence[Record], arrivals: Arrivals | None = None, sent_late: Mapping[str, float] | None = None
) -> dict[str, list[Hit]]:
    """Of each domain the requests that count, as the checker wants them: who asked stands in `User-Agent` after a
    slash (egress) and in the page's number (odd ones are the second spider's)."""
    found: dict[str, list[Hit]] = {}
    gaps = silences(log)
    ends = [until for _, until in gaps]
    for record in log:
        if not is_page(record):
            continue
        number = record.path.split("/")[2]
        hit = hit_of(record, SPIDERS[int(number) % len(SPIDERS)])
        if arrivals is not None:
            hit = replace(hit, early=_kept_waiting(record, arrivals) + (sent_late or {}).get(record.url, 0.0))
        elif (gap := bisect_right(ends, hit.at) - 1) >= 0:
            since, until = gaps[gap]
            if hit.at - until <= min(until - since, CATCH_UP_SECONDS):
                hit = replace(hit, early=hit.at - since)
        found.setdefault(domain_of(record.host), []).append(hit)
    return found


def _kept_waiting(record: Record, arrivals: Arrivals) -> float:
    """How long a request had been at the web's machine when the web noted it."""
    times = arrivals.get((record.host, record.path), ())
    before = bisect_right(times, record.started)
    return record.started - times[before - 1] if before else 0.0


def hit_of(record: Record, spider: str) -> Hit:
    """A line of the log as the checker wants it."""
    ended = float("inf") if record.ended is None else record.ended
    return Hit(record.started, ended, spider, record.agent.partition("/")[2])


def judge(evidence: Evidence, *, forgive_stalls: bool = False) -> list[Judged]:
    """Judge every domain of the plan, in its order. `forgive_stalls`: what the machine itself delayed is no fault, but
    it is counted as forgiven."""
    blur = BLUR_SECONDS + (evidence.stall_seconds if forgive_stalls else 0.0)
    plan = evidence.plan
    hits = hits_by_domain(evidence.log, evidence.arrivals, evidence.sent_late)
    judged = []
    for site in plan.sites:
        mine = hits.get(site.name, [])
        timeline = evidence.timelines[site.name]
        fed = plan.urls(site)
        checked = check(timeline, mine, blur_seconds=blur)
        strict = check(timeline, [replace(hit, early=0.0) for hit in mine])
        judged.append(
            Judged(
                site=site,
                scope=site.policy.scope or BudgetScope.DOMAIN,
                changes=len(timeline) - 1,
                requests=len(mine),
                checked=checked,
                forgiven=len(strict.faults) - len(checked.faults),
                usage=usage(
                    timeline,
                    mine,
                    span=evidence.span,
                    spiders=SPIDERS,
                    egresses=plan.egresses,
                    holds=evidence.holds.get(site.name, ()),
                    outages=evidence.outages,
                ),
                dry=tuple(spider for spider in SPIDERS if sum(hit.spider == spider for hit in mine) >= 0.98 * fed),
            )
        )
    return judged


def faults(
    evidence: Evidence,
    judged: Sequence[Judged],
    *,
    used_at_least: float = USED_AT_LEAST,
    forgiven_at_most: float = FORGIVEN_AT_MOST,
) -> list[str]:
    """Return what is wrong; empty: the cluster was as polite as it was told to be, and no slower."""
    found = list(evidence.troubles)
    forgiven, requests = sum(one.forgiven for one in judged), sum(one.requests for one in judged)
    if forgiven > forgiven_at_most * requests:
        found.append(
            f"{forgiven:,} of {requests:,} requests had to be forgiven, more than {forgiven_at_most:.1%}: "
            f"the machine is too busy to judge"
        )
    begin = evidence.span[0]
    for one in judged:
        for fault in one.checked.faults[:3]:
            times = " ".join(f"{time - begin:.3f}" for time in fault.times[-40:])
            found.append(
                f"{one.site.name} {fault.what} at {fault.at - begin:.3f}: {fault.found:g} where {fault.allowed:g} are "
                f"allowed: {times}; its policies: {_story(evidence.timelines[one.site.name], begin)}"
            )
        if len(one.checked.faults) > 3:
            found.append(f"{one.site.name}: {len(one.checked.faults) - 3} more of these")
        if one.dry:
            found.append(f"{one.site.name} was not fed enough for {', '.join(one.dry)}")
        missed = one.usage.allowed - one.usage.used
        # Less than one request says nothing: the last one of a span comes within it, or just after.
        if one.usage.seconds >= MEASURED_AT_LEAST_SECONDS and missed > 1 and one.usage.share < used_at_least:
            found.append(
                f"{one.site.name} used {one.usage.share:.1%} of what is allowed, {one.usage.used:.0f} of "
                f"{one.usage.allowed:.0f} requests; its policies: {_story(evidence.timelines[one.site.name], begin)}"
            )
    if not any(one.usage.seconds for one in judged):
        found.append("nothing could be measured")
    return found


def _story(timeline: Sequence[Change], begin: float) -> str:
    told = []
    for change in timeline:
        rule = change.rule
        scope = "+".join(word for word, on in (("type", rule.by_spider), ("ip", rule.by_egress)) if on) or "domain"
        what = "off" if rule.off else f"{rule.hits}/{rule.window:g} s cap {rule.cap} {scope}"
        if rule.spacing:
            what += f" {rule.spacing:g} s apart"
        told.append(
            what if change.asked < 0 else f"{what} (from {change.asked - begin:.2f}, {change.answered - begin:.2f})"
        )
    return "; ".join(told)


def table(judged: Sequence[Judged]) -> str:
    """By style and scope at the beginning: how many, the fullest window, the most at once, how much was used."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        groups.setdefault((one.site.style.value, one.scope.value), []).append(one)
    rows = [
        ("style", "scope", "domains", "changed", "requests", "fullest window", "most at once", "used p5", "p50", "all")
    ]
    for (style, scope), group in sorted(groups.items()):
        rows.append(_row(style, scope, group))
    rows.append(_row("all", "", judged))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _row(style: str, scope: str, group: Sequence[Judged]) -> tuple[str, ...]:
    shares = sorted(one.usage.share for one in group if one.usage.seconds >= MEASURED_AT_LEAST_SECONDS)
    total = sum((one.usage for one in group), Usage())
    return (
        style,
        scope,
        str(len(group)),
        str(sum(one.changes > 0 for one in group)),
        f"{sum(one.requests for one in group):,}",
        f"{max(one.checked.worst_window for one in group):.0%}",
        f"{max(one.checked.worst_cap for one in group):.0%}",
        f"{shares[len(shares) // 20]:.1%}" if shares else "-",
        f"{shares[len(shares) // 2]:.1%}" if shares else "-",
        f"{total.share:.1%}" if total.seconds else "-",
    )

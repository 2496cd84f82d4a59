"""The judge of the hostile crawl: honest evidence passes, and every falsified piece of it is found."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from gossamer.fakeweb.journal import How, Record
from tests.hostile.judge import MEMORY_BYTES, Evidence, all_faults, judged
from tests.hostile.run import Crawled, Line, Pace
from tests.hostile.targets import Target

PACE = Pace(total_seconds=4, first_byte_seconds=3, connect_seconds=2, domain_pages=12, give_up_seconds=60)
HEALTHY = [f"http://site0.test/p/{n}" for n in range(3)]
CUT = Target("endless-body", "http://a.test/endless-body", "endless")
BOMB = Target("gzip-bomb", "http://b.test/gzip-bomb", "bombs")
WAITS = Target("robots-silent", "http://c.test/robots-silent", "robots")
LINK = Target("2130706433", "http://127.0.0.1:8080/", "links")
NAME = Target("10.1.2.3", "http://ten.names.test/", "names")


def line(url: str, *, reason: str = "", truncated: bool = False) -> Line:
    return Line(url, not reason, reason, "", truncated, {}, [], url)


def asked(url: str, *, sent: int = 1000, seconds: float = 0.1) -> Record:
    host, _, path = url.removeprefix("http://").partition("/")
    return Record(
        url=url, host=host, path=f"/{path}", method="GET", status=200, how=How.WHOLE, started=1.0, ended=1.0 + seconds,
        wall=1.0, agent="gossamer", connection=1, sent=sent,
    )  # fmt: skip


def crawled() -> Crawled:
    return Crawled(
        seconds=10.0,
        exit_code=130,
        said="",
        summary={},
        lines=[
            *(line(url) for url in HEALTHY),
            line(CUT.url, truncated=True),
            line(BOMB.url, reason="decode_bomb"),
            line(LINK.url, reason="blocked_address"),
            line(NAME.url, reason="blocked_address"),
        ],
        memory=[100 * 2**20, 200 * 2**20],
        log=[*(asked(url) for url in HEALTHY), asked(CUT.url, sent=6 * 2**20), asked(BOMB.url)],
    )


def honest() -> Evidence:
    return Evidence(
        targets=[CUT, BOMB, WAITS],
        links=[LINK],
        names=[NAME],
        healthy=HEALTHY,
        before=replace(crawled(), memory=[90 * 2**20]),
        crawled=crawled(),
        pace=PACE,
        unseen=[],
        visits=[],
        welcomed=True,
    )


def found(evidence: Evidence) -> list[str]:
    return all_faults(evidence, judged(evidence))


def test_honest_evidence_passes() -> None:
    assert found(honest()) == []


def _lines(change: Callable[[list[Line]], list[Line]]) -> Evidence:
    evidence = honest()
    evidence.crawled.lines[:] = change(evidence.crawled.lines)
    return evidence


def _log(change: Callable[[list[Record]], list[Record]]) -> Evidence:
    evidence = honest()
    evidence.crawled.log[:] = change(evidence.crawled.log)
    return evidence


def _ends(target: Target, **fields: object) -> Evidence:
    return _lines(
        lambda lines: [msgspec.structs.replace(one, **fields) if one.url == target.url else one for one in lines]
    )


FALSIFIED: dict[str, tuple[Callable[[], Evidence], str]] = {
    "a hostile page has no record": (lambda: _lines(lambda x: [o for o in x if o.url != BOMB.url]), "has 0 records"),
    "a hostile page has two records": (lambda: _lines(lambda x: [*x, line(BOMB.url, reason="decode")]), "2 records"),
    "a bomb was taken for a page": (lambda: _ends(BOMB, success=True, reason=""), "ended as page"),
    "an endless body was not cut": (lambda: _ends(CUT, truncated=False), "ended as page"),
    "a case failed for another reason": (lambda: _ends(BOMB, reason="internal_error"), "ended as internal_error"),
    "what should wait was recorded": (lambda: _lines(lambda x: [*x, line(WAITS.url)]), "ended as page"),
    "what should wait was asked for": (
        lambda: _log(lambda log: [*log, *(asked(WAITS.url) for _ in range(2))]), "has 0 records"
    ),
    "a private address gave a page": (lambda: _ends(LINK, success=True, reason=""), "ended as page"),
    "a name led to a private address": (lambda: _ends(NAME, success=True, reason=""), "ended as page"),
    "too many bytes were taken": (lambda: _log(lambda log: [*log, asked(CUT.url, sent=70 * 2**20)]), "were taken"),
    "a slow answer was listened to": (lambda: _log(lambda log: [*log, asked(CUT.url, seconds=13.0)]), "for 13 s"),
    "a trap was followed": (lambda: _log(lambda log: [*log, *(asked(CUT.url) for _ in range(24))]), "25 requests"),
    "a healthy page is missing": (lambda: _lines(lambda x: x[1:]), "was not fetched"),
    "a healthy page was asked for twice": (lambda: _log(lambda log: [*log, log[0]]), "was asked for 2 times"),
    "the web was asked under an address": (lambda: _log(lambda log: [*log, asked("http://127.0.0.1/")]), "127.0.0.1/"),
    "a refused address was visited": (lambda: replace(honest(), visits=["10.0.0.1:80 GET /"]), "was connected to"),
    "the canary was blind": (lambda: replace(honest(), unseen=["10.0.0.1"]), "sees nobody at 10.0.0.1"),
    "the names prove nothing": (lambda: replace(honest(), welcomed=False), "the names prove nothing"),
    "the crawl crashed": (lambda: replace(honest(), crawled=replace(crawled(), exit_code=1)), "exit code 1"),
    "the worker grew": (
        lambda: replace(honest(), crawled=replace(crawled(), memory=[91 * 2**20 + MEMORY_BYTES])), "grew by 257 MiB"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSIFIED)
def test_falsified_evidence_is_found(name: str) -> None:
    evidence, told = FALSIFIED[name]
    faults = found(evidence())
    assert any(told in fault for fault in faults), faults

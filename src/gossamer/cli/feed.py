"""`gossamer feed`: hand requests to a running cluster."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.console import Console

from gossamer.cli import options, standard
from gossamer.cli.asking import ask
from gossamer.control import stats
from gossamer.control.desk import CRAWL
from gossamer.control.submit import Submission
from gossamer.errors import BadInput, BusError, RequestRejected
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.settings import load
from gossamer.wiring.service import Parts

_AT_ONCE = 2000
_SAY_SECONDS = 1.0
_FAULTS_SHOWN = 10
_CRAWLS_LOOKED_AT = 100
"""Looking at a crawl takes a call to each shard; a feed of more crawls than this is not held up for a warning."""


class _Read(NamedTuple):
    """A request that is valid in itself."""

    where: str
    value: bytes
    submission: Submission | None
    """None: it is no crawl request."""


class _Warned(NamedTuple):
    """What a person has been warned of."""

    domains: set[str]
    crawls: set[CrawlId]
    """Those that were looked at, whether or not there was a warning."""


def feed(
    request: Annotated[
        str, typer.Argument(metavar="JSON|FILE|-", help="One request, or a file of many, a JSON object a line.")
    ],
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="What was done as one JSON object.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Check requests and put them on the bus of a running cluster: crawls, actions, statistics, domain requests.

    gossamer feed '{"appid": "mine", "crawlid": "first", "url": "https://example.com", "maxdepth": 1}'

    gossamer feed requests.jsonl

    Invalid requests are reported with their line number and skipped; valid ones are sent.
    """
    settings = load({"bus": bus, "topics.prefix": prefix, "frontier": frontier, "data_dir": data_dir}, config=config)
    lines = _lines(request)
    fed, faults = ask(settings, lambda cluster: _feed(cluster, lines, quiet=quiet or json))
    if json:
        print(msgspec.json.encode({"fed": fed, "rejected": len(faults), "faults": faults[:100]}).decode())
    elif not quiet:
        for fault in faults[:_FAULTS_SHOWN]:
            print(f"gossamer: {fault}", file=sys.stderr)
        if len(faults) > _FAULTS_SHOWN:
            print(f"gossamer: and {len(faults) - _FAULTS_SHOWN:,} more that were not sent", file=sys.stderr)
        print(f"Fed {fed:,} request{'' if fed == 1 else 's'}." if fed or not faults else "Nothing was fed.")
    raise typer.Exit(2 if faults else 0)


def _lines(request: str) -> Iterator[tuple[str, bytes]]:
    """(where it stands, the request)."""
    if request.lstrip().startswith("{"):
        yield "", request.encode("utf-8", "surrogateescape")
        return
    if request == "-":
        stream = sys.stdin.buffer
    else:
        try:
            stream = Path(request).open("rb")  # noqa: SIM115 (closed below, standard input must not be)
        except OSError as error:
            raise BadInput(f"{request}: {error.strerror}; give a JSON object, a file of them, or -") from None
    try:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield f"line {number}: ", line.strip()
    finally:
        if request != "-":
            stream.close()


async def _feed(cluster: Parts, lines: Iterator[tuple[str, bytes]], *, quiet: bool) -> tuple[int, list[str]]:
    fed = 0
    faults: list[str] = []
    batch: list[_Read] = []
    warned = _Warned(set(), set())
    console = Console(stderr=True, highlight=False)
    said = time.monotonic()
    for where, value in lines:
        try:
            kind, request = cluster.desk.read(value)
            batch.append(_Read(where, value, request if kind == CRAWL else None))
        except RequestRejected as fault:
            faults.append(f"{where}{fault.detail}")
        if len(batch) == _AT_ONCE:
            fed += await _send(cluster, batch, fed, faults, warned)
            batch = []
            if not quiet and time.monotonic() - said > _SAY_SECONDS:
                console.print(f"{fed:,} fed ...")
                said = time.monotonic()
    fed += await _send(cluster, batch, fed, faults, warned)
    if fed and not quiet and not await cluster.counters.nodes(stats.INTAKE):
        console.print("No service has been heard for two minutes: what was fed waits on the bus for gossamer serve.")
    return fed, faults


async def _send(cluster: Parts, batch: list[_Read], fed: int, faults: list[str], warned: _Warned) -> int:
    """Publish the requests that the cluster would take now; their number. The others are added to `faults`."""
    crawls = [read for read in batch if read.submission is not None]
    checked = await cluster.desk.check([read.submission for read in crawls if read.submission is not None])
    refused = {id(read): fault for read, fault in zip(crawls, checked, strict=True) if fault is not None}
    faults += [f"{read.where}{refused[id(read)].detail}" for read in crawls if id(read) in refused]
    sound = [read for read in batch if id(read) not in refused]
    if sound:
        await _publish(cluster, [read.value for read in sound], fed)
    await _warn(cluster, [read.submission for read in sound if read.submission is not None], warned)
    return len(sound)


async def _warn(cluster: Parts, submissions: list[Submission], warned: _Warned) -> None:
    """Name each blacklisted domain and each crawl that refuses these requests, once."""
    for submission, result in zip(submissions, await cluster.desk.blacklisted(submissions), strict=True):
        if result is not None and submission.domain not in warned.domains:
            warned.domains.add(submission.domain)
            standard.say(f"{submission.domain} is on the operator's blacklist: its requests are {result}.")
    new = {submission.crawl.id for submission in submissions} - warned.crawls
    if len(warned.crawls) + len(new) > _CRAWLS_LOOKED_AT:
        return
    warned.crawls.update(new)
    for crawl, state in (await cluster.desk.ended([s for s in submissions if s.crawl.id in new])).items():
        how = "has expired" if state is CrawlState.EXPIRED else "was stopped"
        standard.say(f"The crawl {crawl} {how}: the service refuses these requests. Feed them with another crawlid.")


async def _publish(cluster: Parts, batch: list[bytes], fed: int) -> None:
    """Raises what the bus raises, with how many were fed before."""
    try:
        await cluster.bus.publish(cluster.topics.incoming, batch)
    except BusError as error:
        before = f"the first {fed:,} sound requests were fed, of the next {len(batch):,} perhaps some"
        raise type(error)(f"{error.detail}; {before}" if error.detail else before) from None

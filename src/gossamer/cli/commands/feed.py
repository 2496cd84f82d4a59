"""`gossamer feed`: hand requests to a running cluster."""

import base64
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console

from gossamer.bus.base import Consumer
from gossamer.cli import interruption as signals
from gossamer.cli import options, standard
from gossamer.cli.asking import ask
from gossamer.cli.summary import counted
from gossamer.control import stats
from gossamer.control.admission import AdmittedRequest
from gossamer.control.dispatcher import CRAWL
from gossamer.errors import BadInput, BusError, Interrupted, RequestRejected
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.settings import load
from gossamer.sinks.remote import read_blob
from gossamer.wiring.service import ServiceContext

_AT_ONCE = 2000
_SAY_SECONDS = 1.0
_FAULTS_SHOWN = 10
_CRAWLS_LOOKED_AT = 100
"""Looking at a crawl takes a call to each shard; a feed of more crawls than this is not held up for a warning."""


class _Read(NamedTuple):
    """A request that is valid in itself."""

    where: str
    value: bytes
    submission: AdmittedRequest | None
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


async def _feed(cluster: ServiceContext, lines: Iterator[tuple[str, bytes]], *, quiet: bool) -> tuple[int, list[str]]:
    fed = 0
    faults: list[str] = []
    batch: list[_Read] = []
    warned = _Warned(set(), set())
    console = Console(stderr=True, highlight=False)
    said = time.monotonic()
    for where, value in lines:
        try:
            kind, request = cluster.dispatcher.read(value)
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


async def _send(cluster: ServiceContext, batch: list[_Read], fed: int, faults: list[str], warned: _Warned) -> int:
    """Publish the requests that the cluster would take now; their number. The others are added to `faults`."""
    crawls = [read for read in batch if read.submission is not None]
    checked = await cluster.dispatcher.check([read.submission for read in crawls if read.submission is not None])
    refused = {id(read): fault for read, fault in zip(crawls, checked, strict=True) if fault is not None}
    faults += [f"{read.where}{refused[id(read)].detail}" for read in crawls if id(read) in refused]
    sound = [read for read in batch if id(read) not in refused]
    if sound:
        await _publish(cluster, [read.value for read in sound], fed)
    await _warn(cluster, [read.submission for read in sound if read.submission is not None], warned)
    return len(sound)


async def _warn(cluster: ServiceContext, submissions: list[AdmittedRequest], warned: _Warned) -> None:
    """Name each blacklisted domain and each crawl that refuses these requests, once."""
    for submission, result in zip(submissions, await cluster.dispatcher.blacklisted(submissions), strict=True):
        if result is not None and submission.domain not in warned.domains:
            warned.domains.add(submission.domain)
            standard.say(f"{submission.domain} is on the operator's blacklist: its requests are {result}.")
    new = {submission.crawl.id for submission in submissions} - warned.crawls
    if len(warned.crawls) + len(new) > _CRAWLS_LOOKED_AT:
        return
    warned.crawls.update(new)
    for crawl, state in (await cluster.dispatcher.ended([s for s in submissions if s.crawl.id in new])).items():
        how = "has expired" if state is CrawlState.EXPIRED else "was stopped"
        standard.say(f"The crawl {crawl} {how}: the service refuses these requests. Feed them with another crawlid.")


async def _publish(cluster: ServiceContext, batch: list[bytes], fed: int) -> None:
    """Raises what the bus raises, with how many were fed before."""
    try:
        await cluster.bus.publish(cluster.topics.incoming, batch)
    except BusError as error:
        before = f"the first {fed:,} sound requests were fed, of the next {len(batch):,} perhaps some"
        raise type(error)(f"{error.detail}; {before}" if error.detail else before) from None


_DUMP_AT_ONCE = 500
_WAIT_SECONDS = 1.0


def dump(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Like demo.crawled_firehose; --list names them.")
    ] = None,
    list_topics: Annotated[
        bool, typer.Option("--list", help="Name the topics and how many messages each has.")
    ] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", "-b", help="From the oldest message; unset: what comes from now on.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="End after so many.")] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer", "-c", metavar="GROUP", help="Read as a member of this group, which goes on where it was."
        ),
    ] = None,
    no_body: Annotated[bool, typer.Option("--no-body", help="Leave the pages' bodies out.")] = False,
    just_body: Annotated[bool, typer.Option("--just-body", help="Only the bodies.")] = False,
    decode_base64: Annotated[bool, typer.Option("--decode-base64", "-d", help="Bodies in base64 as text.")] = False,
    pretty: Annotated[bool, typer.Option("--pretty", "-p", help="Indented, over several lines.")] = False,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="With --list: as one JSON object.")] = False,
) -> None:
    """Print a topic's messages, a JSON object a line, until Ctrl-C, or as many as --limit says.

    gossamer dump demo.crawled_firehose --from-beginning --no-body

    With --from-beginning and --limit it ends at the end of the topic, too.
    """
    settings = load({"bus": bus, "topics.prefix": prefix, "frontier": frontier, "data_dir": data_dir}, config=config)
    if list_topics or topic is None:
        if topic is None and not list_topics:
            raise BadInput("no topic is named; gossamer dump --list names them")
        found = ask(settings, lambda cluster: cluster.bus.topics())
        if json:
            print(msgspec.json.encode({entry.name: entry.messages for entry in found}).decode())
        else:
            for entry in found:
                print(f"{entry.messages:>12,}  {entry.name}")
        raise typer.Exit(0)
    if no_body and just_body:
        raise BadInput("--no-body and --just-body contradict each other; leave one of them out")
    shape = _Shape(no_body=no_body, just_body=just_body, decode=decode_base64, pretty=pretty)
    count, size = 0, 0
    try:
        count, size = ask(
            settings,
            lambda cluster: _dump(
                cluster, topic or "", shape, from_beginning=from_beginning, limit=limit, group=consumer
            ),
        )
    except Interrupted:
        raise typer.Exit(signals.EXIT_CODE) from None
    print(f"{counted(count, 'message')}, {size / 1024 / max(1, count):,.1f} KiB each on average", file=sys.stderr)
    raise typer.Exit(0)


class _Shape:
    """How a message is shown."""

    def __init__(self, *, no_body: bool, just_body: bool, decode: bool, pretty: bool) -> None:
        self._no_body = no_body
        self._just_body = just_body
        self._decode = decode
        self._pretty = pretty

    async def text(self, value: bytes) -> str:
        try:
            message = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return value.decode("utf-8", "replace")
        if isinstance(message, dict) and ("body" in message or self._just_body):
            message = await self._with_body(message)
            if self._just_body:
                return str(message.get("body", ""))
        line = msgspec.json.encode(message)
        return (msgspec.json.format(line, indent=2) if self._pretty else line).decode()

    async def _with_body(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._no_body:
            return {name: value for name, value in message.items() if name != "body"}
        if self._just_body and (address := message.get("body_address")):
            body = await read_blob(address)
        elif self._decode and message.get("body_encoding") == "base64":
            try:
                body = base64.b64decode(message.get("body") or "")
            except (TypeError, ValueError):  # anybody may publish here
                return message
        else:
            return message
        try:
            text = body.decode(message.get("encoding") or "utf-8", "replace")
        except (LookupError, TypeError, UnicodeError):
            text = body.decode("utf-8", "replace")
        return message | {"body": text}


async def _dump(
    cluster: ServiceContext, topic: str, shape: _Shape, *, from_beginning: bool, limit: int | None, group: str | None
) -> tuple[int, int]:
    known = {entry.name for entry in await cluster.bus.topics()}
    if topic not in known:
        if not topic.startswith(f"{cluster.topics.prefix}."):
            raise BadInput(f"there is no topic {topic}; gossamer dump --list names those that there are")
        print(f"{topic} has no message yet; waiting for one.", file=sys.stderr)
    reader: Consumer
    if group is not None:
        reader = await cluster.bus.consume([topic], group=group)
    else:
        reader = await cluster.bus.read([topic], from_beginning=from_beginning)
    count = size = 0
    try:
        while limit is None or count < limit:
            most = _DUMP_AT_ONCE if limit is None else min(_DUMP_AT_ONCE, limit - count)
            messages = await reader.take(at_most=most, wait_seconds=_WAIT_SECONDS)
            for message in messages:
                print(await shape.text(message.value))
            sys.stdout.flush()
            await reader.acknowledge(messages)
            count += len(messages)
            size += sum(len(message.value) for message in messages)
            if not messages and limit is not None and from_beginning:
                break
    finally:
        await reader.close()
    return count, size

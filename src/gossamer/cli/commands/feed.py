"""`gossamer feed`: sends requests to a running service. `gossamer dump`: prints the messages of a topic.

Requests and pages are messages on the bus, in topics: streams in the frontier's server, or Kafka. Fixed: flags, exit
codes and the fields of `--json`; and that `feed` checks requests exactly as the service does (by its dispatcher), so
that what it sends is not refused later.
"""

import asyncio
import base64
import select
import shlex
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from gossamer.bus.base import Consumer
from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import ask
from gossamer.control import stats
from gossamer.control.admission import AdmittedRequest
from gossamer.control.dispatcher import CRAWL
from gossamer.control.url_search import find_in_crawl
from gossamer.errors import BadInput, BusError, Interrupted, RequestRejected
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.net.credentials import hide_secrets
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.remote import read_blob
from gossamer.wiring.service import ServiceContext

_BATCH = 2000
"""Requests that are checked and published together. More make an interruption wait longer."""
_PAUSE_SECONDS = 0.5
"""Silence of the input after which the requests that came are sent. Longer makes them, and an interruption, wait."""
_BLOCK_BYTES = 1 << 20  # bytes that are read at a time
_PROGRESS_SECONDS = 1.0  # shortest interval of progress lines
_FAULTS_SHOWN = 10  # invalid requests that are named
_FAULTS_IN_JSON = 100  # the same with --json; the counts beside them are always complete
_CRAWLS_CHECKED = 100
"""Crawls that are checked for a warning. Each takes a call to every shard (part of the frontier), so a feed of more
crawls gets none."""


class _ValidRequest(NamedTuple):
    """A request that fits its schema."""

    where: str
    """Its place for messages: `line 3: `; empty for a single request."""
    value: bytes
    """Its JSON as given, which is published."""
    crawl: AdmittedRequest | None
    """None: it is not a crawl request."""


class _Checked(NamedTuple):
    """Domains and crawls for which a warning was shown or is not needed, so that each is named once."""

    domains: set[str]
    crawls: set[CrawlId]


@options.takes("bus", "prefix", "frontier", "data_dir")
def feed(
    request: Annotated[
        str,
        argument(metavar="JSON|FILE|-", help="One request, or a file with one JSON object per line. -: stdin."),
    ],
    *,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Check requests and send them to a running service. They are crawls, actions, and requests about statistics and
    domains.

    gossamer feed '{"appid": "mine", "crawlid": "first", "url": "https://example.com", "maxdepth": 1}'

    gossamer feed requests.jsonl

    Invalid requests are reported with their line number and skipped; valid ones are sent.
    """
    settings = options.load_settings(given)
    if "://" in request and not request.lstrip().startswith("{") and not Path(request).exists():
        example = msgspec.json.encode({"appid": "mine", "crawlid": "first", "url": request}).decode()
        raise BadInput(f"{request} is a URL. Feed a request for it: gossamer feed {shlex.quote(example)}")
    fed = _Fed()
    try:
        ask(settings, lambda cluster: _feed(cluster, request, fed, quiet=quiet or json))
    except Interrupted:
        raise Interrupted(f"{counted(fed.sent, 'request')} fed") from None
    sent, faults = fed.sent, fed.faults
    if json:
        shown = {"fed": sent, "rejected": len(faults), "faults": faults[:_FAULTS_IN_JSON]}
        terminal.print_json(shown)
    elif not quiet:
        for fault in faults[:_FAULTS_SHOWN]:
            terminal.print_stderr(f"gossamer: {fault}")
        if len(faults) > _FAULTS_SHOWN:
            terminal.print_stderr(f"gossamer: and {len(faults) - _FAULTS_SHOWN:,} more that were not sent")
        terminal.print_result(f"Fed {counted(sent, 'request')}." if sent or not faults else "Nothing was fed.")
    raise SystemExit(2 if faults else 0)


async def request_batches(request: str) -> AsyncGenerator[list[tuple[str, bytes]], None]:
    """Yield the requests, each with its place for messages: (place, JSON). A batch is full, or what came before a pause
    in the input. A thread reads, so that meanwhile signals are handled and the bus is attended."""
    if request.lstrip().startswith("{"):
        yield [("", request.encode("utf-8", "surrogateescape"))]
        return
    batch: list[tuple[str, bytes]] = []
    rest, number = bytearray(), 0
    with _opened(request) as stream:
        while True:
            block = await asyncio.to_thread(_next_block, stream)
            rest += block or b""
            lines: list[bytearray] = []
            if block == b"":
                lines = [rest]
            elif block and b"\n" in block:
                *lines, rest = rest.split(b"\n")
            for line in lines:
                number += 1
                if line := line.strip():
                    batch.append((f"line {number}: ", bytes(line)))
                if len(batch) == _BATCH:
                    yield batch
                    batch = []
            if not block and batch:
                yield batch
                batch = []
            if block == b"":
                return


def _opened(file: str) -> FileIO:
    if file == "-":
        terminal.check_open(0)
        return FileIO(0, closefd=False)
    try:
        return FileIO(file)
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read: {error.strerror}. Give a JSON object, a file with one per line, or -."
        ) from None


def _next_block(stream: FileIO) -> bytes | None:
    """Return the next bytes; empty: the input has ended; None: there are none yet, after a pause."""
    ready, _, _ = select.select([stream], [], [], _PAUSE_SECONDS)
    return stream.read(_BLOCK_BYTES) if ready else None


@dataclass(slots=True)
class _Fed:
    """Count of the requests fed so far, and faults of others."""

    sent: int = 0
    """Requests that were published."""
    faults: list[str] = field(default_factory=list)
    """Reasons why others were not."""


async def _feed(cluster: ServiceContext, request: str, fed: _Fed, *, quiet: bool) -> None:
    """Feed the requests, and count them in `fed`."""
    checked = _Checked(set(), set())
    shown_at = time.monotonic()
    async with aclosing(request_batches(request)) as batches:
        async for lines in batches:
            batch = []
            for where, value in lines:
                try:
                    kind, admitted = cluster.dispatcher.read(value)
                    batch.append(_ValidRequest(where, value, admitted if kind == CRAWL else None))
                except RequestRejected as fault:
                    fed.faults.append(f"{where}{fault.detail}")
            fed.sent += await _send(cluster, batch, fed.sent, fed.faults, checked)
            if not quiet and time.monotonic() - shown_at > _PROGRESS_SECONDS:
                terminal.print_stderr(f"{fed.sent:,} fed ...")
                shown_at = time.monotonic()
    if fed.sent and not quiet and not await cluster.counters.nodes(stats.INTAKE):
        terminal.print_stderr(
            "No service has reported for two minutes. The requests wait on the bus until one runs: gossamer serve."
        )


async def _send(
    cluster: ServiceContext, batch: list[_ValidRequest], sent: int, faults: list[str], checked: _Checked
) -> int:
    """Publish the requests that the service would accept now, and return their number.

    `sent`: number of the requests that were published before. `faults`: a message on each refused request is added.
    `checked`: domains and crawls are added as they are checked for warnings.
    """
    crawl_requests = [request for request in batch if request.crawl is not None]
    found = await cluster.dispatcher.check([request.crawl for request in crawl_requests if request.crawl is not None])
    refused: set[int] = set()  # ids of objects, because equal requests may be given more than once
    for request, fault in zip(crawl_requests, found, strict=True):
        if fault is not None:
            refused.add(id(request))
            faults.append(f"{request.where}{fault.detail}")
    accepted = [request for request in batch if id(request) not in refused]
    if len(accepted) == 1 and not sent and accepted[0].crawl is not None:
        await _say_if_seen(cluster, accepted[0].crawl)
    if accepted:
        await _publish(cluster, [request.value for request in accepted], sent)
    await _warn(cluster, [request.crawl for request in accepted if request.crawl is not None], checked)
    return len(accepted)


async def _say_if_seen(cluster: ServiceContext, request: AdmittedRequest) -> None:
    """Say if the crawl has seen the URL of the only request: then the service adds nothing for it."""
    run = await cluster.frontier.latest_run(request.crawl.id)
    if run is None or request.fresh or request.terms.recrawl is not None or request.method != "GET" or request.body:
        return
    found = await find_in_crawl(cluster.frontier, run, spiders=[request.spider], terms=[request.terms], url=request.url)
    if found is not None and found.seen:
        terminal.say(
            f"The crawl {request.crawl.id} has seen {hide_secrets(request.url)} before: with the same options, the "
            'service adds nothing. To fetch it again, feed it with another crawlid, or with "fresh": true once the '
            "crawl has finished."
        )


async def _warn(cluster: ServiceContext, requests: list[AdmittedRequest], checked: _Checked) -> None:
    """Show a warning for each blacklisted domain and each ended crawl of these requests, once."""
    for request, result in zip(requests, await cluster.dispatcher.blacklisted(requests), strict=True):
        if result is not None and request.domain not in checked.domains:
            checked.domains.add(request.domain)
            terminal.say(f"{request.domain} is on the operator's blacklist: its requests are {result}.")
    new = {request.crawl.id for request in requests} - checked.crawls
    if len(checked.crawls) + len(new) > _CRAWLS_CHECKED:
        return
    checked.crawls.update(new)
    for crawl, state in (await cluster.dispatcher.ended([one for one in requests if one.crawl.id in new])).items():
        how = "has expired" if state is CrawlState.EXPIRED else "was stopped"
        terminal.say(f"The crawl {crawl} {how}: the service refuses these requests. Feed them with another crawlid.")


async def _publish(cluster: ServiceContext, batch: list[bytes], sent: int) -> None:
    """Publish the batch. An error of the bus also names how many requests were sent before."""
    try:
        await cluster.bus.publish(cluster.topics.incoming, batch)
    except BusError as error:
        before = f"the first {sent:,} valid requests were fed, and perhaps some of the next {len(batch):,}"
        raise type(error)(f"{error.detail}; {before}" if error.detail else before) from None


_MESSAGES_AT_ONCE = 500  # messages that `dump` takes in one call; more only need memory
_WAIT_SECONDS = 1.0
"""Time that `dump` waits for a message in one call. With --from-beginning and --limit, an empty call ends the command:
must exceed the time in which a remote bus delivers the first message."""


@options.takes("bus", "prefix", "frontier", "data_dir")
def dump(
    topic: Annotated[
        str | None, argument(metavar="TOPIC", help="For example demo.crawled_firehose; --list shows all.")
    ] = None,
    list_topics: Annotated[
        bool, option("--list", help="List the topics, with the number of messages in each.")
    ] = False,
    from_beginning: Annotated[
        bool, option("--from-beginning", "-b", help="Start at the oldest message. Unset: only new messages.")
    ] = False,
    limit: Annotated[int | None, option("--limit", metavar="N", min=1, help="End after this many messages.")] = None,
    consumer: Annotated[
        str | None,
        option("--consumer", "-c", metavar="GROUP", help="Read as a member of this consumer group, where it left off."),
    ] = None,
    no_body: Annotated[bool, option("--no-body", help="Omit the bodies of pages.")] = False,
    just_body: Annotated[bool, option("--just-body", help="Print only the bodies of pages.")] = False,
    decode_base64: Annotated[bool, option("--decode-base64", "-d", help="Print bodies in base64 as text.")] = False,
    pretty: Annotated[bool, option("--pretty", "-p", help="Indent each message over several lines.")] = False,
    *,
    json: Annotated[bool, option("--json", help="With --list: print one JSON object.")] = False,
    **given: Any,
) -> None:
    """Print the messages of a topic, one JSON object per line. Ends at Ctrl-C or --limit.

    gossamer dump demo.crawled_firehose --from-beginning --no-body

    With --from-beginning and --limit it also ends at the end of the topic.
    """
    settings = options.load_settings(given)
    if list_topics:
        _print_topics(settings, as_json=json)
        return
    if topic is None:
        raise BadInput("no topic is given. gossamer dump --list shows the topics.")
    if no_body and just_body:
        raise BadInput("--no-body and --just-body contradict each other. Omit one of them.")
    terminal.check_open(1)
    reading = _TopicReading(
        topic,
        _MessageFormat(
            no_body=no_body, just_body=just_body, decode=decode_base64, pretty=pretty, blobs=settings.topics.blobs
        ),
        from_beginning=from_beginning,
        limit=limit,
        group=consumer,
    )
    try:
        ask(settings, reading.run)
    except Interrupted:
        raise SystemExit(terminal.INTERRUPTED_EXIT_CODE) from None
    sizes = f", {reading.size / 1024 / reading.count:,.1f} KiB each on average" if reading.count else ""
    terminal.print_stderr(f"{counted(reading.count, 'message')}{sizes}")


def _print_topics(settings: Settings, *, as_json: bool) -> None:
    topics = ask(settings, lambda cluster: cluster.bus.topics())
    if as_json:
        terminal.print_json({topic.name: topic.messages for topic in topics})
    else:
        for topic in topics:
            terminal.print_result(f"{topic.messages:>12,}  {topic.name}")


class _MessageFormat:
    """Turns a message into text, as the options of `gossamer dump` ask."""

    def __init__(self, *, no_body: bool, just_body: bool, decode: bool, pretty: bool, blobs: str = "") -> None:
        """Parameters are the options of the command; `decode`: --decode-base64. `blobs`: topics.blobs."""
        self._no_body = no_body
        self._just_body = just_body
        self._decode = decode
        self._pretty = pretty
        self._blobs = blobs

    async def text(self, value: bytes) -> str:
        """Return the text of a message. One that is not JSON is returned as it is."""
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
        """Return the message with its body as the options ask: omitted, from the blob store, decoded, or as it is."""
        if self._no_body:
            return {name: value for name, value in message.items() if name != "body"}
        if self._just_body and (address := message.get("body_address")):
            body = await read_blob(address, place=self._blobs)
        elif self._decode and message.get("body_encoding") == "base64":
            try:
                body = base64.b64decode(message.get("body") or "")
            except (TypeError, ValueError):  # other programs may publish anything on a topic
                return message
        else:
            return message
        try:
            text = body.decode(message.get("encoding") or "utf-8", "replace")
        except (LookupError, TypeError, UnicodeError):
            text = body.decode("utf-8", "replace")
        return message | {"body": text}


@dataclass(slots=True)
class _TopicReading:
    """Prints a topic, and counts its messages."""

    topic: str
    message_format: _MessageFormat
    from_beginning: bool
    limit: int | None
    """Most messages to print. None: no limit."""
    group: str | None
    """Consumer group to read as. None: without a group, so that every reader gets all messages."""
    count: int = 0
    """Messages printed so far."""
    size: int = 0
    """Bytes of these messages."""

    async def run(self, cluster: ServiceContext) -> None:
        """Print messages until the limit, or the end where both --from-beginning and --limit are given, or until the
        reader of standard output is gone."""
        reader = await self._open(cluster)
        try:
            while self.limit is None or self.count < self.limit:
                most = _MESSAGES_AT_ONCE if self.limit is None else min(_MESSAGES_AT_ONCE, self.limit - self.count)
                messages = await reader.take(at_most=most, wait_seconds=_WAIT_SECONDS)
                for message in messages:
                    if not terminal.print_result(await self.message_format.text(message.value)):
                        return
                await reader.acknowledge(messages)  # only now: a group gets again what was not printed
                self.count += len(messages)
                self.size += sum(len(message.value) for message in messages)
                if not messages and self.limit is not None and self.from_beginning:
                    break
        finally:
            await reader.close()

    async def _open(self, cluster: ServiceContext) -> Consumer:
        """Return the reader of the topic. Raises BadInput for a topic that neither exists nor belongs to the
        cluster."""
        if self.topic not in {topic.name for topic in await cluster.bus.topics()}:
            if not self.topic.startswith(f"{cluster.topics.prefix}."):
                raise BadInput(f"there is no topic {self.topic}. gossamer dump --list shows the topics.")
            ends = self.from_beginning and self.limit is not None
            terminal.print_stderr(
                f"{self.topic} has no messages yet{'.' if ends else '; waiting for one.'} "
                "gossamer dump --list shows the topics."
            )
        if self.group is not None:
            return await cluster.bus.consume([self.topic], group=self.group)
        return await cluster.bus.read([self.topic], from_beginning=self.from_beginning)

"""`gossamer dump`: read a topic of the bus."""

import base64
import sys
from typing import Annotated, Any

import msgspec
import typer

from gossamer.bus.base import Consumer
from gossamer.cli import options, signals
from gossamer.cli.asking import ask
from gossamer.cli.display import counted
from gossamer.errors import BadInput, Interrupted
from gossamer.settings import load
from gossamer.sinks.blobs import read_blob
from gossamer.wiring.service import Parts

_AT_ONCE = 500
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
    cluster: Parts, topic: str, shape: _Shape, *, from_beginning: bool, limit: int | None, group: str | None
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
            most = _AT_ONCE if limit is None else min(_AT_ONCE, limit - count)
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

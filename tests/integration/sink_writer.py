"""Writes pages to an output until it is killed or done, and prints the id of each batch's pages once they are durable.

python sink_writer.py PATH SPOOL NAME BATCHES BODY_BYTES: ids are NAME-0, NAME-1 ...; bodies do not compress
to less than a half. Over a limit of file size the process is killed in the middle of its write, as if by SIGKILL.
"""

import asyncio
import random
import signal
import sys
from pathlib import Path

import msgspec

from gossamer.errors import SinkError
from gossamer.model.record import Output, PageRecord, WireExchange
from gossamer.sinks.base import Fanout
from gossamer.sinks.open import open_sinks


def page(request_id: str, body: str = "") -> Output:
    url = f"https://a.test/{request_id}"
    empty = dict.fromkeys((name for name in PageRecord.__struct_fields__ if name != "type"), "")
    other = {"attempt": 1, "depth": 0, "status_code": 200, "body_encoding": "text", "success": True, "truncated": False}
    empty |= dict.fromkeys(("content", "rendering", "refusal"))
    shapes = {"links": [], "redirects": [], "response_headers": {}, "request_headers": {}, "timings": {}, "attrs": None}
    named = {"request_id": request_id, "url": url, "response_url": url, "body": body}
    wire = WireExchange(
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        request_body=b"",
        response_head=b"HTTP/1.1 200 OK\r\n\r\n",
        response_body=body.encode(),
        ip="192.0.2.1",
        url=url,
        timestamp="2026-01-02T03:04:05Z",
        truncated=False,
    )
    record = msgspec.convert(empty | other | shapes | named | {"timestamp": "2026-01-02T03:04:05Z"}, PageRecord)
    return Output(record=record, wires=(wire,))


async def main(path: str, spool: str, name: str, batches: int, body_bytes: int) -> None:
    sink = Fanout(open_sinks([path], spool_dir=Path(spool)))
    dice = random.Random(name)
    number = 0
    for _ in range(batches):
        batch = []
        for _ in range(dice.randint(1, 4)):
            batch.append(page(f"{name}-{number}", dice.randbytes(dice.randint(0, body_bytes) // 2).hex()))
            number += 1
        await sink.write(batch)
        print(*(output.record.request_id for output in batch), flush=True)
    await sink.close()


if __name__ == "__main__":
    if sys.argv[6:] == ["die-at-limit"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])))
    except SinkError as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")

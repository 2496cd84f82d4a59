"""`gossamer text`: extracts the main content of pages from the records of an earlier crawl.

Fixed: flags and exit codes; and that an output takes its name only when it is complete, so that the command can be
repeated after any interruption.
"""

import asyncio
import base64
import json as json_module
import os
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput, SinkError
from gossamer.extract.content_pool import ContentPool
from gossamer.extract.content_process import ContentReply
from gossamer.extract.encoding import is_html
from gossamer.model.content import ContentError, ContentOptions, PageContent, content_items
from gossamer.model.record import Destination, ItemRecord, Output, PageRecord
from gossamer.net.credentials import hide_secrets_in
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.base import Fanout, Sink
from gossamer.sinks.open import check_outputs, is_local, local_path, open_sinks
from gossamer.sinks.read import BODIES, TORN, Source
from gossamer.sinks.tables import TableOptions
from gossamer.storage.files import unfinished
from gossamer.wiring.plan import content_options
from gossamer.wiring.worker import content_limits
from gossamer.worker.records import item_record

# Pages, for each process, and bytes of pages that are in memory at once. With fewer, processes have no work while a
# page that takes long is the next to be written; more take memory.
_PAGES_PER_PROCESS = 100
_WINDOW_BYTES = 64 * 1024 * 1024

# Size of a batch that is written at once, which ends at the limit that is reached first.
_BATCH_RECORDS = 100
_BATCH_BYTES = 4 * 1024 * 1024

_PROGRESS_SECONDS = 0.5
"""Interval of the progress on a terminal."""


@options.takes(
    "output",
    "csv_guard",
    "text",
    "markdown",
    "chunk",
    "text_in",
    "text_processes",
    output="Where to write the content; may be repeated. The formats are those of gossamer crawl. [required]",
    text_in="Where text and Markdown go: copies of the records, items, or both. Default: items.",
)
def text(
    records: Annotated[
        list[Path],
        argument(metavar="RECORDS...", help="Outputs of crawls, such as pages.jsonl or pages.warc.gz."),
    ],
    *,
    force: Annotated[bool, option("--force", "-f", help="Replace outputs that exist.", panel=options.OUTPUT)] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Extract the main content of the pages of a crawl. Reads its records, and writes Markdown or text.

    Each HTML page becomes an item with its URL, title, author, date, language and Markdown, unless you choose text.
    With `--text-in records` the whole record is copied, with the content in it.

    gossamer text pages.jsonl -o text.jsonl

    gossamer text pages.jsonl --chunk 2000 -o chunks.jsonl

    Exit code: 0 finished; 1 an output could not be written; 2 bad input; 130 interrupted.
    """
    if not given["output"]:
        raise BadInput("-o: no output is named. Write -o text.jsonl, for example.")
    if not given["text"] and not given["markdown"]:
        given["markdown"] = True
    given["text_in"] = given["text_in"] or "items"
    settings = options.load_settings(given)
    content = content_options(settings)
    assert content is not None
    sources = [Source(path) for path in records]
    job = _TextExtraction(settings, content, sources, is_quiet=quiet or json or not sys.stderr.isatty())
    run_loop(job.run(force=force))
    job.print_result(as_json=json, quiet=quiet)


@dataclass(slots=True)
class _Counts:
    """Numbers of what the command did."""

    pages: int = 0
    """Pages whose content was extracted."""
    items: int = 0
    others: int = 0
    """Records that are no HTML page: other pages, items, and those in `failed`."""
    failed: int = 0
    """Records of pages that failed."""
    errors: Counter[str] = field(default_factory=Counter)
    """HTML pages without content, by reason."""


@dataclass(slots=True)
class _TextExtraction:
    """One run of the command."""

    settings: Settings
    options: ContentOptions
    sources: Sequence[Source]
    is_quiet: bool
    counts: _Counts = field(default_factory=_Counts)
    sentences: list[str] = field(default_factory=list)
    """Remarks on the input, for the end."""

    async def run(self, *, force: bool) -> None:
        """Extract, and write all outputs. Raises BadInput, SinkError and Interrupted; then no output is changed."""
        tables = TableOptions(has_items=self.options.in_items, csv_guard=self.settings.crawl.csv_guard)
        outputs = self.settings.crawl.output
        if any(output.path == "-" for output in outputs):
            terminal.check_open(1, option="output")
        targets = [local_path(output.path) for output in outputs if is_local(output.path)]
        for target in targets:
            if any(target.exists() and target.samefile(source.path) for source in self.sources):
                raise BadInput(f"-o: {target} is the input. Name another file.")
            if target.exists() and not force:
                raise BadInput(f"-o: {target} exists. Name another file, or replace it with -f.")
        if new := [output for output in outputs if not is_local(output.path) or not local_path(output.path).exists()]:
            check_outputs(new, tables=tables)
        with (
            ExitStack() as parts,
            tempfile.TemporaryDirectory(prefix="gossamer-text-") as spool,
            Interruption(None, terminal.say) as interruption,
        ):
            interruption.message_before_work = "nothing was written"
            destinations = [self._unfinished(output, parts) for output in outputs]
            sink = Fanout(open_sinks(destinations, spool_dir=Path(spool), tables=tables))
            try:
                await self._extract(sink)
            finally:
                await sink.close()
            for output, destination in zip(outputs, destinations, strict=True):
                if is_local(output.path):
                    _publish(local_path(destination.path), local_path(output.path))

    def _unfinished(self, output: Destination, parts: ExitStack) -> Destination:
        """Return where a file is written until it is complete."""
        if not is_local(output.path):
            return output
        target = local_path(output.path)
        try:
            target.absolute().parent.mkdir(parents=True, exist_ok=True)
            return Destination(str(parts.enter_context(unfinished(target))), output.records)
        except OSError as error:
            raise BadInput(f"-o: {target} cannot be written: {error.strerror}") from None

    async def _extract(self, sink: Sink) -> None:
        """Extract the content of all pages in a pool of processes, and write it in the order of the records."""
        pool = ContentPool(content_limits(self.settings))
        window = _Window(_PAGES_PER_PROCESS * content_limits(self.settings).processes)
        batch: list[Output] = []
        size = 0
        shown_at = time.monotonic()
        try:
            for output in self._outputs():
                body = _html_of(output.record)
                if body is None:
                    self.counts.others += 1
                    self.counts.failed += isinstance(output.record, PageRecord) and not output.record.success
                    await window.put(output, 0, None)
                else:
                    await window.put(output, len(body[0]), asyncio.ensure_future(self._ask(pool, output, *body)))
                for done, reply in window.finished():
                    batch += self._results(done, reply)
                    size += len(done.body)
                if len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                    await sink.write(batch)
                    batch, size = [], 0
                if not self.is_quiet and time.monotonic() - shown_at > _PROGRESS_SECONDS:
                    shown_at = time.monotonic()
                    sys.stderr.write(f"\r{self.counts.pages:,} pages")
                    sys.stderr.flush()
            await window.wait_for_all()
            for done, reply in window.finished():
                batch += self._results(done, reply)
            await sink.write(batch)
        finally:
            if not self.is_quiet:
                sys.stderr.write("\r\x1b[K")
            window.cancel()
            await pool.close()

    def _outputs(self) -> Iterator[Output]:
        for source in self.sources:
            yield from source.outputs()
            if source.lacks[TORN]:
                self.sentences.append(f"The end of {source.name} is left out: a record that is not written completely.")
            if source.lacks[BODIES]:
                self.sentences.append(f"{source.lacks[BODIES]:,} pages of {source.name} have no body.")

    async def _ask(self, pool: ContentPool, output: Output, body: bytes, encoding: str) -> ContentReply:
        record = output.record
        url = (record.response_url or record.url) if isinstance(record, PageRecord) else record.url
        return await pool.extract(body, encoding=encoding, url=url, options=self.options)

    def _results(self, output: Output, reply: ContentReply | None) -> list[Output]:
        """Return what is written of a record."""
        options, counts = self.options, self.counts
        record = output.record
        copied = [output] if options.in_record else []
        if reply is None or isinstance(record, ItemRecord):
            return copied
        content = reply.content or PageContent(error=ContentError.CRASHED)
        if content.error:
            counts.errors[content.error] += 1
        else:
            counts.pages += 1
        record.content = content
        if not options.in_items:
            return copied
        items = content_items(content, reply.chunks, record.response_url or record.url, options)
        counts.items += len(items)
        return [*copied, *(Output(record=item_record(record, item)) for item in items)]

    def print_result(self, *, as_json: bool, quiet: bool) -> None:
        """Print the counts: on standard error if records went to standard output."""
        counts = self.counts
        on_stderr = any(output.path == "-" for output in self.settings.crawl.output)
        if as_json:
            values = {
                "pages": counts.pages, "items": counts.items, "without_content": dict(counts.errors),
                "other_records": counts.others,
            }  # fmt: skip
            terminal.print_result(json_module.dumps(values), on_stderr=on_stderr)
            return
        if quiet:
            return
        names = ", ".join("standard output" if one.path == "-" else one.path for one in self.settings.crawl.output)
        lines = [f"The content of {counted(counts.pages, 'page')} is in {names}."]
        if not counts.pages and not counts.errors:
            lines = ["There is no HTML page with a body in the records."]
        if counts.items not in (0, counts.pages + counts.errors.total()):
            lines.append(f"  {counts.items:,} chunks")
        if counts.errors:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.errors.most_common())
            lines.append(f"  without content: {reasons}")
        if counts.failed:
            has = "has" if counts.failed == 1 else "have"
            lines.append(f"  {counted(counts.failed, 'failed page')} {has} no content")
        without_body = sum(source.lacks[BODIES] for source in self.sources)
        if others := counts.others - counts.failed - without_body:
            is_no_page = "is no HTML page" if others == 1 else "are no HTML pages"
            lines.append(f"  {counted(others, 'other record')} {is_no_page}")
        lines += [f"  {sentence}" for sentence in self.sentences]
        terminal.print_result(hide_secrets_in("\n".join(lines)), on_stderr=on_stderr)


class _Window:
    """Records in their order, of which some wait for their content."""

    def __init__(self, pages: int) -> None:
        """`pages`: how many may wait at once."""
        self._limit = pages
        self._records: deque[tuple[Output, int, asyncio.Future[ContentReply] | None]] = deque()
        self._bytes = 0
        self._waiting = 0

    async def put(self, output: Output, size: int, content: "asyncio.Future[ContentReply] | None") -> None:
        """Add a record, whose page has this size. Waits while too many pages, or too large ones, wait."""
        self._records.append((output, size, content))
        self._bytes += size
        self._waiting += content is not None
        while self._waiting > self._limit or self._bytes > _WINDOW_BYTES:
            waiting = (content for _, _, content in self._records if content is not None and not content.done())
            first = next(waiting, None)
            if first is None:
                return
            await asyncio.wait((first,))
            if self._records[0][2] is None or self._records[0][2].done():
                return

    def finished(self) -> Iterator[tuple[Output, ContentReply | None]]:
        """Yield and remove the records at the beginning that wait for nothing."""
        while self._records:
            output, size, content = self._records[0]
            if content is not None and not content.done():
                return
            self._records.popleft()
            self._bytes -= size
            self._waiting -= content is not None
            yield output, None if content is None else content.result()

    async def wait_for_all(self) -> None:
        """Wait until no record waits."""
        if waiting := [content for _, _, content in self._records if content is not None]:
            await asyncio.wait(waiting)

    def cancel(self) -> None:
        """Forget what waits."""
        for _, _, content in self._records:
            if content is not None:
                content.cancel()


def _publish(unfinished: Path, target: Path) -> None:
    """Give a complete file its name. An output without records has made no file; then the target is empty."""
    try:
        if not unfinished.exists():
            unfinished.touch()
        os.replace(unfinished, target)
    except OSError as error:
        raise SinkError(f"{target}: {error.strerror}") from None


def _html_of(record: PageRecord | ItemRecord) -> tuple[bytes, str] | None:
    """Return body and encoding of a fetched HTML page; None: the record is no such page, or has no body."""
    if not isinstance(record, PageRecord) or not record.success or not record.body:
        return None
    if record.body_encoding == "base64":
        try:
            body, encoding = base64.b64decode(record.body), record.encoding or "utf-8"
        except ValueError:
            return None
    else:
        body, encoding = record.body.encode("utf-8", "replace"), "utf-8"
    return (body, encoding) if is_html(record.content_type, body, record.header_pairs) else None

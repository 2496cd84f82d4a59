"""Enters a crawl that was exported from another frontier, which may have another number of shards.

The frontier, the store of requests, is divided into shards by domain; the home shard of a crawl decides when its run
(one life of it) ends. A fingerprint does not tell its domain, so it goes to each shard on which the domain may be.

Fixed: fingerprints come before requests, and every line may be repeated: a shard notes the number of the last one.
"""

import hashlib
from functools import partial
from math import gcd
from typing import Any

from gossamer.errors import BadInput, CrawlRefused, FrontierIncompatible
from gossamer.frontier.exported import (
    VERSION,
    ExportedCounts,
    ExportedFailures,
    ExportedFingerprints,
    ExportedGrowth,
    ExportedLine,
    ExportedPages,
    ExportedPolicies,
    ExportedQueue,
    ExportedRetries,
    ExportedTasks,
    ExportedTerms,
    ExportEnd,
    ExportHeader,
)
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.additions import RequestAdder, decode_opened
from gossamer.frontier.valkey.commands import Argument, ScriptCommands, gather_all
from gossamer.frontier.valkey.identity import FORMAT
from gossamer.frontier.valkey.keys import KeyPattern, home_shard, shard_of
from gossamer.frontier.valkey.runs import call_after_purge, run_arguments
from gossamer.model.crawl import Run
from gossamer.model.growth import Growth, PatternCount

_TASKS_KEPT_MS = 30 * 86400 * 1000
"""As `_CLAIMS_KEPT_MS` in frontier.py."""


class CrawlImport:
    """One import of an exported crawl."""

    def __init__(
        self, commands: ScriptCommands, adder: RequestAdder, header: ExportHeader, *, retention_ms: int
    ) -> None:
        """Raises FrontierIncompatible for an export of another release."""
        if header.version != VERSION or header.frontier != FORMAT:
            raise FrontierIncompatible(
                f"the export has version {header.version} and format {header.frontier}, this Gossamer reads {VERSION} "
                f"and {FORMAT}; use the release that wrote it"
            )
        self._commands = commands
        self._adder = adder
        self._header = header
        self._crawl = codec.unpack_crawl(header.crawl)
        self._retention_ms = retention_ms
        self._terms: dict[int, codec.PackedTerms] = {}
        self.run: Run | None = None
        """The run, once it is open."""

    async def open(self) -> Run:
        """Begin the run, or join what an earlier import of this export has begun. Raises BadInput where the frontier
        has a crawl of this name that this export has not begun."""
        header, token = self._header, self._crawl.id.token
        expires: list[Argument] = []
        for spider, at in header.expires.items():
            expires += (spider, round(at * 1000))
        arguments = (token, header.run, header.generation, header.crawl, header.export, header.started, *expires)
        reply = await self._commands.call(
            home_shard(token, self._commands.count), "import_run", *arguments, confirmed=True
        )
        if reply[0] == b"refused":
            raise BadInput(
                f"the frontier has a crawl {self._crawl.id}, which is {reply[1].decode()}. Delete it with gossamer "
                "crawls delete first, or import into another frontier."
            )
        self.run = decode_opened(reply, self._crawl, header.crawl).run
        if (self.run.number, self.run.generation) != (header.run, header.generation):
            raise BadInput(f"the crawl {self._crawl.id} was imported from this export, and has gone on since.")
        return self.run

    async def is_complete(self) -> bool:
        """Return whether the run was imported before to its end."""
        token = self._crawl.id.token
        home = home_shard(token, self._commands.count)
        key = self._commands.keys[home].key(KeyPattern.COUNTERS, token=token)
        line, held = await self._commands.plain(home, "HMGET", key, "import", "rebuild")
        return line is not None and held is None

    async def enter(self, number: int, line: ExportedLine) -> None:
        """Enter a line. `number`: its place in the export, from 1. Raises CrawlRefused where the run has ended."""
        match line:
            case ExportedTerms():
                digest = hashlib.blake2b(codec.unpack_parts(line.packed, 2)[1], digest_size=8).hexdigest().encode()
                self._terms[line.number] = codec.PackedTerms(digest, line.packed)
            case ExportedFingerprints():
                await self._enter_fingerprints(number, line)
            case ExportedQueue():
                values = [line.spider, line.domain, line.priority, *map(codec.packed_text, line.entries)]
                await self._call(shard_of(line.domain, self._commands.count), number, "queue", values, line.terms)
            case ExportedRetries():
                values = [line.spider, line.domain, line.priority]
                for entry, wait in zip(line.entries, line.waits, strict=True):
                    values += (codec.packed_text(entry), wait)
                await self._call(shard_of(line.domain, self._commands.count), number, "later", values, line.terms)
            case ExportedFailures():
                entries = map(codec.packed_text, line.entries)
                values = [line.counter, line.spider, line.domain, line.priority, *entries]
                await self._call(shard_of(line.domain, self._commands.count), number, "failed", values, line.terms)
            case ExportedCounts():
                fields = [part for pair in line.fields.items() for part in pair]
                home = home_shard(self._crawl.id.token, self._commands.count)
                await self._call(home, number, "counts", [fields, line.pages])
            case ExportedPages():
                await self._enter_pages(number, line)
            case _:
                await self._enter_facts(line)

    async def _enter_fingerprints(self, number: int, line: ExportedFingerprints) -> None:
        """Enter fingerprints on each shard on which their domains may be: those whose number is the same modulo what
        divides both numbers of shards."""
        common = gcd(self._header.shards, self._commands.count)
        shards = range(line.shard % common, self._commands.count, common)
        texts = list(map(str, line.values))  # Lua's numbers have 53 bits
        await gather_all(
            self._call(shard, number, "seen", [texts, 0 if at == 0 else len(texts)]) for at, shard in enumerate(shards)
        )

    async def _enter_pages(self, number: int, line: ExportedPages) -> None:
        by_shard: dict[int, list[str | int]] = {}
        for domain, pages in line.domains.items():
            by_shard.setdefault(shard_of(domain, self._commands.count), []).extend((domain, pages))
        await gather_all(self._call(shard, number, "pages", values) for shard, values in by_shard.items())

    async def _enter_facts(self, line: ExportedLine) -> None:
        """Enter what is set rather than added, so that a repetition changes nothing."""
        token, home = self._crawl.id.token, home_shard(self._crawl.id.token, self._commands.count)
        match line:
            case ExportedTasks():
                key = self._commands.keys[home].key(KeyPattern.ONCE, token=token, generation=self._header.generation)
                pairs = [part for name in line.names for part in (name, "")]
                await self._commands.plain(home, "HSET", key, *pairs)
                await self._commands.plain(home, "PEXPIRE", key, _TASKS_KEPT_MS)
            case ExportedPolicies():
                for domain, packed in line.domains.items():
                    shard = shard_of(domain, self._commands.count)
                    await self._commands.call(shard, "set_policy", domain, packed, b"", confirmed=True)
            case ExportedGrowth():
                key = self._commands.keys[home].key(KeyPattern.COUNTERS, token=token)
                if await self._commands.plain(home, "HEXISTS", key, "g"):
                    return
                for pattern, (kind, pages, depth, example) in line.patterns.items():
                    count = PatternCount(Growth(kind), 0, depth, example)
                    arguments = (token, self._header.run, pattern, count.growth.value, pages, depth, example)
                    await self._commands.call(home, "note_growth", *arguments, len(line.patterns))
            case ExportHeader() | ExportEnd():
                pass

    async def _call(self, shard: int, number: int, kind: str, values: list[Any], terms: int = 0) -> None:
        """Enter a part of a line on a shard. `terms`: number of those of its requests; 0: none."""
        assert self.run is not None
        run, version = self.run, 0
        if self._adder.unlisted(run, [shard]):
            run, version = await self._confirmed(run, shard)
        packed = self._terms[terms] if terms else codec.PackedTerms(b"", b"")
        while True:
            arguments: list[Argument] = [
                *run_arguments(self._commands, run), packed.digest, packed.blob, version, number, kind,
                codec.pack_values(values),
            ]  # fmt: skip
            call = partial(self._commands.call, shard, "import_requests", *arguments, confirmed=True)
            reply = await call_after_purge(self._commands, shard, call, blocked=b"purging")
            if reply[0] != b"closed":
                return
            run, version = await self._confirmed(run, shard)

    async def _confirmed(self, run: Run, shard: int) -> tuple[Run, int]:
        """Confirm the run on its home shard, which then lists the shard. Raises CrawlRefused where it is over."""
        confirmed = await self._adder.confirm(run, [shard], seeds=False)
        if confirmed is None:
            raise CrawlRefused(f"the run {run.number} of {run.crawl.id} has ended while it was imported")
        return confirmed

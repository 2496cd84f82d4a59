"""The frontier on Valkey or Redis: every verb is one script per shard; what crosses shards is in `finishing`."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import msgspec

from gossamer.errors import BadInput, CrawlRefused, FrontierFull, FrontierIncompatible, PoliciesChanged
from gossamer.frontier.base import Added, Submission, Submitted
from gossamer.frontier.valkey import codec, events, info, listing, lookup
from gossamer.frontier.valkey.commands import Argument, Commands
from gossamer.frontier.valkey.finishing import carry_out, patiently, purge, read_home, rebalance, try_finish
from gossamer.frontier.valkey.holder import ValkeyHolder
from gossamer.frontier.valkey.largest import full
from gossamer.frontier.valkey.placing import home_shard, shard_of
from gossamer.frontier.valkey.submitting import check_names, submit
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, Rate, Run, Terms
from gossamer.model.domain import DomainPolicy
from gossamer.model.info import Backlog, CrawlInfo, DomainInfo, UrlInfo, WorkerInfo
from gossamer.model.request import Batch
from gossamer.valkey.shards import Shards

FORMAT = "2"
"""Of the keys; a frontier of another format is recognised before the first write."""

_URLS_A_CALL = 1280
"""So many URLs take a script a few milliseconds."""

_MOST_TERMS = 100

_ROBOTS_BYTES_A_DOMAIN = 8 * 1024 * 1024
"""About as much as a domain's robots.txt records may take together: tens of thousands that are absent, as where every
user has a host, but not 500 KiB for each of the hosts that somebody makes up without end."""
_CRAWL_DELAY_LIFE_MS = 24 * 3600 * 1000

Group = list[tuple[int, int, Batch]]
"""What one call adds: (index of the batch, offset in it, part of the batch)."""


class ValkeyFrontier:
    """Implements Frontier. Use `connect`."""

    def __init__(
        self,
        commands: Commands,
        *,
        secret: int,
        heartbeat_seconds: float,
        retention_seconds: float,
        mark_seconds: float,
        clock: Callable[[], float] | None,
    ) -> None:
        self._commands = commands
        self._secret = secret
        self._heartbeat_ms = int(heartbeat_seconds * 1000)
        self._server_times: dict[int, tuple[float, float]] = {}
        self._retention_ms = int(retention_seconds * 1000)
        self._mark_ms = int(mark_seconds * 1000)
        self._clock = clock
        self._touched: OrderedDict[tuple[str, int, int], set[int]] = OrderedDict()
        self._ended: dict[tuple[str, int, int], str] = {}
        self._touched_era = 0
        self._fresh: dict[str, str] = {}
        self._packed: OrderedDict[int, tuple[Terms, codec.PackedTerms]] = OrderedDict()

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        prefix: str = "gossamer",
        shards: int | None = None,
        heartbeat_seconds: float = 10.0,
        retention_seconds: float = 86400.0,
        mark_seconds: float = 30 * 86400.0,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Join the frontier at this address, or make it with so many shards (None: as it is, or 1).

        `heartbeat_seconds`: after so long without a sign a worker counts as dead; `retention_seconds`: how long a
        finished crawl is remembered; `mark_seconds`: how long a stopped one is refused. `clock`: for tests only.
        Raises FrontierUnavailable, FrontierIncompatible, BadInput for an address that is none.
        """
        connection = await Shards.connect(address)
        try:
            return await cls.over(
                connection,
                prefix=prefix,
                shards=shards,
                heartbeat_seconds=heartbeat_seconds,
                retention_seconds=retention_seconds,
                mark_seconds=mark_seconds,
                clock=clock,
            )
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def over(
        cls,
        connection: Shards,
        *,
        prefix: str = "gossamer",
        shards: int | None = None,
        heartbeat_seconds: float = 10.0,
        retention_seconds: float = 86400.0,
        mark_seconds: float = 30 * 86400.0,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """The same over connections that are there already; closed with the frontier."""
        first = Commands(connection, prefix=prefix, count=1, clock=clock)
        wanted = shards or 1
        form, count, secret = await first.call_confirmed(0, "meta", FORMAT, wanted, secrets.randbits(64))
        if form.decode() != FORMAT:
            raise FrontierIncompatible(
                f"its format is {form.decode()}, this Gossamer writes {FORMAT}; use the version that made it, "
                f"or another prefix than {prefix!r}"
            )
        if shards is not None and int(count) != shards:
            raise FrontierIncompatible(f"it was made with {int(count)} shards, not {shards}; leave the number out")
        return cls(
            Commands(connection, prefix=prefix, count=int(count), clock=clock),
            secret=int(secret),
            heartbeat_seconds=heartbeat_seconds,
            retention_seconds=retention_seconds,
            mark_seconds=mark_seconds,
            clock=clock,
        )

    @property
    def secret(self) -> int:
        return self._secret

    @property
    def era(self) -> int:
        return self._commands.shards.era

    @property
    def shards(self) -> int:
        """How many there are."""
        return self._commands.count

    # --- submitting ---------------------------------------------------------------------------------------------------

    async def open_crawl(self, crawl: Crawl, *, fresh: bool = False, expires: Mapping[str, float] | None = None) -> Run:
        check_names(crawl.pool, *(expires or ()))
        token = crawl.id.token
        name = ""
        if fresh:  # kept until it is answered, so that a repeated call does not refuse what it began itself
            name = self._fresh.setdefault(token, secrets.token_hex(8))
        try:
            touch = [0] if self._commands.count == 1 else []
            run, _ = await self._open(crawl, fresh=name, touch=touch, expires=expires or {})
        except CrawlRefused:
            self._fresh.pop(token, None)
            raise
        self._fresh.pop(token, None)
        return run

    async def _open(
        self,
        crawl: Crawl,
        *,
        fresh: str = "",
        touch: Sequence[int] = (),
        expected: int = 0,
        expires: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[Run, int]:
        """The run, and the version at which the home shard confirmed it."""
        token = crawl.id.token
        home = home_shard(token, self._commands.count)
        touched = ",".join(map(str, touch))
        arguments: list[Argument] = [token, codec.pack_crawl(crawl), fresh, touched, expected]
        for spider, at in expires.items():
            arguments += (spider, round(at * 1000))
        self._forget_touched()
        era = self.era
        while (reply := await self._commands.call_confirmed(home, "open", *arguments))[0] == b"halting":
            await carry_out(self._commands, token, retention_ms=self._retention_ms)
        if reply[0] == b"refused":
            state = reply[1].decode()
            goes_on = fresh and state == CrawlState.RUNNING
            hint = "; it can start afresh when it is finished or given up" if goes_on else ""
            raise CrawlRefused(f"{crawl.id} is {state}{hint}")
        run = Run(codec.unpack_crawl(reply[4]), int(reply[1]), int(reply[2]))
        key = (token, run.generation, run.number)
        self._touched.setdefault(key, set()).update(touch if era == self.era else ())
        self._ended[key] = ",".join(spider.decode() for spider in reply[5:])
        if len(self._touched) > 10_000:
            old, _ = self._touched.popitem(last=False)
            self._ended.pop(old, None)
        return run, int(reply[3])

    def _forget_touched(self) -> None:
        """What the home shards were told before they may not know any more."""
        if self._touched_era != self.era:
            self._touched_era = self.era
            self._touched.clear()
            self._ended.clear()

    async def set_wish(self, run: Run, *, rate: Rate | None, concurrency: int | None) -> Run:
        crawl = msgspec.structs.replace(run.crawl, rate=rate, concurrency=concurrency)
        home = await read_home(self._commands, crawl.id.token)
        shards = {home_shard(crawl.id.token, self._commands.count), *(home.shards if home else ())}
        wish = (crawl.id.token, run.number, codec.pack_crawl(crawl))
        await asyncio.gather(*(self._commands.call(shard, "wish", *wish) for shard in shards))
        return msgspec.structs.replace(run, crawl=crawl)

    async def add(self, run: Run, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> Added:
        added = Added()
        by_shard: dict[int, list[tuple[int, Batch]]] = {}
        for index, batch in enumerate(batches):
            check_names(batch.spider, batch.domain)
            if batch.unfiltered and not batch.call:
                batch.call = secrets.token_hex(8)
            by_shard.setdefault(shard_of(batch.domain, self._commands.count), []).append((index, batch))
        # The home shard knows which shards a run touched before they hold work.
        self._forget_touched()
        known = self._touched.get((run.crawl.id.token, run.generation, run.number), ())
        if new := [shard for shard in by_shard if shard not in known]:
            confirmed = await self._confirm(run, new, seeds=seeds)
            if confirmed is None:
                return self._drop_all(added, batches)
            run, _ = confirmed
        calls = [(shard, group) for shard, part in by_shard.items() for group in _groups(part)]
        whole = len(calls) == 1
        by_call: dict[int, list[Group]] = {}
        for shard, group in calls:
            by_call.setdefault(shard, []).append(group)
        await asyncio.gather(
            *(self._add_shard(run, terms, shard, groups, added, seeds, whole) for shard, groups in by_call.items())
        )
        if calls and not whole and added.added == 0:  # only now it is known that nothing in it was new
            await self._add_shard(run, terms, calls[0][0], [[]], added, False, True)
        return added

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted | CrawlRefused | BadInput]:
        return await submit(
            self._commands,
            submissions,
            pack_terms=self._pack_terms,
            retention_ms=self._retention_ms,
            one=self._submit_one,
        )

    async def _submit_one(self, submission: Submission) -> Submitted:
        expires = submission.expires
        spiders = {} if expires is None else {batch.spider: expires for batch in submission.batches}
        run = await self.open_crawl(submission.crawl, expires=spiders)
        return Submitted(run, await self.add(run, submission.terms, submission.batches, seeds=True))

    async def _confirm(self, run: Run, touch: Sequence[int], *, seeds: bool) -> tuple[Run, int] | None:
        """Ask the home shard; None: the run is over and these are its late outlinks."""
        try:
            return await self._open(run.crawl, touch=touch, expected=0 if seeds else run.number)
        except CrawlRefused:
            if seeds:
                raise
            return None

    @staticmethod
    def _drop_all(added: Added, batches: Sequence[Batch]) -> Added:
        if count := sum(len(batch.urls) for batch in batches):
            added.dropped["stopped"] = added.dropped.get("stopped", 0) + count
        return added

    async def _add_shard(
        self, run: Run, terms: Terms, shard: int, groups: list[Group], added: Added, seeds: bool, last: bool
    ) -> None:
        for group in groups:
            version = 0
            while (reply := await self._add_group(run, terms, shard, group, version, last=last, tell=seeds))[
                0
            ] == b"closed":
                confirmed = await self._confirm(run, [shard], seeds=seeds)
                if confirmed is None:
                    break
                run, version = confirmed
            if reply[0] == b"closed":
                self._drop_all(added, [batch for _, _, batch in group])
                continue
            _, new, duplicates, dropped, reason, idle = reply[:6]
            added.added += new
            added.duplicates += duplicates
            if dropped:
                word = reason.decode()
                added.dropped[word] = added.dropped.get(word, 0) + dropped
            if len(reply) > 6:
                where = [(i, offset + k) for i, offset, batch in group for k in range(len(batch.urls))]
                added.rejected += [where[position] for position in reply[6:] if position >= 0]
                added.known += [where[-1 - position] for position in reply[6:] if position < 0]
            if idle:
                await try_finish(self._commands, run.crawl.id.token, retention_ms=self._retention_ms)

    async def _add_group(
        self, run: Run, terms: Terms, shard: int, group: Group, version: int, *, last: bool, tell: bool
    ) -> Any:
        packed = self._pack_terms(terms)
        token = run.crawl.id.token
        call = f"{group[0][2].call}.{group[0][1]}" if group and group[0][2].call else ""
        arguments: list[Argument] = [
            token,
            run.number,
            run.generation,
            int(self._commands.count == 1),
            codec.pack_crawl(run.crawl),
            packed.digest,
            packed.blob,
            version,
            call,
            self._ended.get((token, run.generation, run.number), ""),
            self._retention_ms,
            int(last),
            int(tell),
        ]
        for _, _, batch in group:
            arguments += codec.batch_arguments(batch)
        try:
            return await patiently(
                self._commands,
                shard,
                lambda: self._commands.call_confirmed(shard, "add", *arguments),
                until=b"purging",
            )
        except FrontierFull as exc:
            raise await full(self._commands, shard, exc) from None

    def _pack_terms(self, terms: Terms) -> codec.PackedTerms:
        known = self._packed.get(id(terms))
        if known is not None and known[0] is terms:
            return known[1]
        packed = codec.pack_terms(terms)
        self._packed[id(terms)] = (terms, packed)
        if len(self._packed) > 1000:
            self._packed.popitem(last=False)
        return packed

    # --- working ------------------------------------------------------------------------------------------------------

    async def holder(self, *, pool: str, spiders: Sequence[str], egress: str = "") -> ValkeyHolder:
        check_names(pool, egress, *spiders)
        holder = ValkeyHolder(
            self._commands,
            pool=pool,
            spiders=spiders,
            egress=egress,
            heartbeat_ms=self._heartbeat_ms,
            retention_ms=self._retention_ms,
            clock=self._clock,
        )
        await holder.start()
        return holder

    async def vouch(self, worker: str) -> None:
        await self._commands.everywhere("heartbeat", worker, self._heartbeat_ms)

    async def twin(self) -> "ValkeyFrontier":
        commands = self._commands
        return ValkeyFrontier(
            Commands(
                await Shards.connect(commands.shards.address),
                prefix=commands.prefix,
                count=commands.count,
                clock=self._clock,
            ),
            secret=self._secret,
            heartbeat_seconds=self._heartbeat_ms / 1000,
            retention_seconds=self._retention_ms / 1000,
            mark_seconds=self._mark_ms / 1000,
            clock=self._clock,
        )

    async def reclaim(self, *, judge: bool = True) -> int:
        counts = await asyncio.gather(*(self._keep_shard(shard, judge) for shard in range(self._commands.count)))
        return sum(counts)

    async def _keep_shard(self, shard: int, judge: bool) -> int:
        call = self._commands.call
        asked = time.monotonic()
        noted = await call(shard, "chores", self._retention_ms)
        # A server that hung until now has not heard anybody; what they said meanwhile may be behind this at its door.
        hung = time.monotonic() - asked > self._heartbeat_ms / 3000
        total, more = 0, not hung
        latest = self._in_time(shard) if judge else 0.0
        while more:
            reply = await call(shard, "reclaim", self._heartbeat_ms, self._retention_ms, 200, "", latest)
            count, more = reply[0], reply[1]
            now = float(reply[2])
            self._server_times[shard] = (now, time.monotonic())
            if isinstance(latest, float) and now > latest:
                latest = 0.0
            total += count
            for token in reply[3:]:
                await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        await self._chores(shard, noted)
        while await call(shard, "sweep", 1000, self._retention_ms):
            pass
        return total

    def _in_time(self, shard: int) -> float | str:
        """Until when, on the shard's clock, who is silent may be taken for dead by a call that leaves now; "": whenever
        it arrives. One that lay about in a server that stood still meets workers that could not say anything."""
        known = self._server_times.get(shard)
        if known is None or self._commands.has_own_clock:
            return ""
        server_ms, then = known
        return server_ms + (time.monotonic() - then) * 1000 + self._heartbeat_ms / 2

    async def _chores(self, shard: int, noted: Sequence[Any]) -> None:
        """Go on with what somebody began and did not end."""
        commands, retention_ms = self._commands, self._retention_ms
        halting, idle, opened, starving, purging, rescoring = noted
        for token in halting:
            await carry_out(commands, token.decode(), retention_ms=retention_ms)
        if purging:
            await purge(commands, shard)
        for token in idle:
            await try_finish(commands, token.decode(), retention_ms=retention_ms)
        for token in opened:
            home = await read_home(commands, token.decode())
            if home is not None and home.state is CrawlState.RUNNING:
                await try_finish(commands, token.decode(), retention_ms=retention_ms, abandoned=True)
            await commands.plain(shard, "ZREM", commands.keys[shard].opened, token)
        if commands.count > 1:
            for token in starving:
                await rebalance(commands, token.decode(), shard, retention_ms=retention_ms)
        if rescoring:
            await self._rescore(shard)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def crawl_info(self, crawl: CrawlId) -> CrawlInfo | None:
        home = await read_home(self._commands, crawl.token)
        if home is None:
            return None
        ended = home.facts.get(b"ended")
        answer = CrawlInfo(
            crawl=crawl,
            pool=home.crawl.pool,
            state=home.state,
            run=home.run,
            started=float(home.facts.get(b"started", home.facts[b"gen"])) / 1000,
            ended=None if ended is None else float(ended) / 1000,
            domains=0,
            seen=0,
        )
        for part in await asyncio.gather(
            *(self._commands.plain(s, "HGETALL", self._commands.keys[s].crawl(home.token)) for s in home.shards)
        ):
            counters = info.pairs(part)
            if counters.get(b"run") == home.facts[b"run"]:
                info.count_shard(answer, counters)
        return answer

    async def crawl_domains(
        self, crawl: CrawlId, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[DomainInfo], str]:
        token = crawl.token
        at, inner = listing.read_cursor(cursor, self._commands.count, begin="0")
        domains: list[DomainInfo] = []
        while at < self._commands.count and len(domains) < limit:
            inner_bytes, row = await self._commands.plain(
                at, "HSCAN", self._commands.keys[at].shares(token), inner, "COUNT", limit
            )
            domains += [d for d in (info.domain_info(k, v) for k, v in info.pairs(row).items()) if d.queued]
            inner = inner_bytes.decode()
            if inner == "0":
                at += 1
        return domains, listing.next_cursor(at, inner, self._commands.count)

    async def crawls(
        self, *, appid: str | None = None, cursor: str = "", limit: int = 100
    ) -> tuple[list[CrawlId], str]:
        return await listing.crawls(self._commands, appid=appid, cursor=cursor, limit=limit)

    async def run_of(self, crawl: CrawlId) -> Run | None:
        home = await read_home(self._commands, crawl.token)
        return Run(home.crawl, home.run, home.generation) if home else None

    async def terms_of(self, crawl: CrawlId) -> list[Terms]:
        return await listing.terms_of(self._commands, crawl, most=_MOST_TERMS)

    async def workers(self) -> list[WorkerInfo]:
        return await listing.workers(self._commands, heartbeat_ms=self._heartbeat_ms)

    async def backlog(self) -> list[Backlog]:
        return await listing.backlog(self._commands)

    async def backlog_domains(
        self, spider: str, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[tuple[str, int]], str]:
        return await listing.backlog_domains(self._commands, spider, cursor=cursor, limit=limit)

    async def find(self, run: Run, *, spider: str, domain: str, url: str, fingerprint: int) -> UrlInfo:
        shard = shard_of(domain, self._commands.count)
        return await lookup.find(
            self._commands, shard, run, spider=spider, domain=domain, url=url, fingerprint=fingerprint
        )

    # --- steering -----------------------------------------------------------------------------------------------------

    async def stop_crawl(
        self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED
    ) -> int:
        token = crawl.token
        home = home_shard(token, self._commands.count)
        known = await self._commands.call_confirmed(
            home, "stop", token, state.value, spider or "", self._mark_ms, self._retention_ms
        )
        return await carry_out(self._commands, token, retention_ms=self._retention_ms) if known else 0

    async def set_expiry(self, run: Run, *, spider: str, at: float) -> None:
        check_names(spider)
        token = run.crawl.id.token
        home = home_shard(token, self._commands.count)
        await self._commands.call_confirmed(home, "expiry", token, spider, round(at * 1000))

    async def expire_due(self, *, limit: int = 100) -> int:
        return await events.expire_due(
            self._commands, limit=limit, mark_ms=self._mark_ms, retention_ms=self._retention_ms
        )

    async def events(self, *, limit: int = 100) -> list[CrawlEvent]:
        return await events.untold(self._commands, limit=limit)

    async def forget_events(self, told: Sequence[CrawlEvent]) -> None:
        await events.forget(self._commands, told)

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        shard, field = (0, "*") if domain is None else (shard_of(domain, self._commands.count), f"d:{domain}")
        blob = await self._commands.plain(shard, "HGET", self._commands.keys[shard].policy, field)
        return DomainPolicy() if blob is None else codec.unpack_policy(blob)

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        wanted = [policy or DomainPolicy(), *([] if expected is None else [expected])]
        arguments: list[Argument] = [b"" if p == DomainPolicy() else codec.pack_policy(p) for p in wanted]
        name = domain or ""
        shard = 0 if domain is None else shard_of(domain, self._commands.count)
        if not await self._commands.call_confirmed(shard, "policy", name, *arguments):
            raise PoliciesChanged(domain or "the default policy")
        if domain is None:
            await self._commands.everywhere("policy", "", arguments[0])
            await asyncio.gather(*(self._rescore(shard) for shard in range(self._commands.count)))

    async def _rescore(self, shard: int) -> None:
        while await self._commands.call(shard, "rescore", 300):
            pass

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        default, domains, _ = await self._policies()
        return default, domains

    async def policies_version(self) -> int:
        versions = await asyncio.gather(
            *(
                self._commands.plain(shard, "HGET", keys.policy, "version")
                for shard, keys in enumerate(self._commands.keys)
            )
        )
        return sum(int(version or 0) for version in versions)

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        old_default, old, version = await self._policies()
        if version != expected_version:
            raise PoliciesChanged(f"they are at version {version}, no longer at {expected_version}")
        changes: list[tuple[str | None, DomainPolicy, DomainPolicy]] = [
            (name, old.get(name, DomainPolicy()), policies.get(name, DomainPolicy()))
            for name in sorted(old.keys() | policies.keys())
        ]
        changes.append((None, old_default, default))
        for name, before, after in changes:
            if before != after:
                await self.set_domain_policy(name, after, expected=before)
        return await self.policies_version()

    async def _policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy], int]:
        default, domains, version = DomainPolicy(), {}, 0
        for shard, keys in enumerate(self._commands.keys):
            row = info.pairs(await self._commands.plain(shard, "HGETALL", keys.policy))
            for field, value in row.items():
                if field == b"*":
                    default = codec.unpack_policy(value)
                elif field.startswith(b"d:"):
                    domains[field[2:].decode()] = codec.unpack_policy(value)
                else:
                    version += int(value)
        return default, domains, version

    async def block_domain(self, domain: str, *, seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.call(shard, "block", domain, seconds * 1000, "", _CRAWL_DELAY_LIFE_MS)

    async def set_crawl_delay(self, domain: str, *, seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.call(shard, "block", domain, "", seconds * 1000, _CRAWL_DELAY_LIFE_MS)

    async def load_robots(self, domain: str, origin: str) -> bytes | None:
        shard = shard_of(domain, self._commands.count)
        record: bytes | None = await self._commands.plain(shard, "GET", self._commands.keys[shard].robots(origin))
        return record

    async def claim_robots(self, domain: str, origin: str, *, seconds: float) -> bool:
        shard = shard_of(domain, self._commands.count)
        key = self._commands.keys[shard].robots_claim(origin)
        return await self._commands.plain(shard, "SET", key, "1", "NX", "PX", int(seconds * 1000)) is not None

    async def save_robots(self, domain: str, origin: str, record: bytes, *, ttl_seconds: float) -> None:
        shard = shard_of(domain, self._commands.count)
        life_ms = max(1, int(ttl_seconds * 1000))
        await self._commands.call(shard, "save_robots", domain, origin, record, life_ms, _ROBOTS_BYTES_A_DOMAIN)

    async def release_robots(self, domain: str, origin: str) -> None:
        shard = shard_of(domain, self._commands.count)
        await self._commands.plain(shard, "DEL", self._commands.keys[shard].robots_claim(origin))

    async def close(self) -> None:
        await self._commands.shards.close()


def _groups(part: list[tuple[int, Batch]]) -> list[Group]:
    """Splits one shard's batches into calls; a batch that must be made once is a call of its own."""
    calls = [[pair for pair in part if not pair[1].unfiltered], *([pair] for pair in part if pair[1].unfiltered)]
    return [
        [(batches[index][0], offset, batch) for index, offset, batch in group]
        for batches in calls
        for group in codec.split_batches([batch for _, batch in batches], _URLS_A_CALL)
    ]

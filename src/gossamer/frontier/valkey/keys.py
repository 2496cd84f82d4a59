"""Every key of the frontier, with its type and its end. The braces keep a shard's keys in one cluster slot.

The scripts build the same names from the shard's prefix; the letters stand here and nowhere else in Python.
"""

from dataclasses import dataclass

import xxhash

from gossamer.valkey.shards import CONFIRM_KEY


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one shard."""

    prefix: str
    shard: int

    @property
    def base(self) -> str:
        """What all keys of the shard begin with, and KEYS[1] of every script."""
        return f"{self.prefix}:{{{self.shard}}}:"

    @property
    def meta(self) -> str:
        """hash: format, shards, secret, id. Ends never: shard 0's makes the rest readable, and a shard without its id
        has lost its data."""
        return f"{self.base}meta"

    @property
    def numbers(self) -> str:
        """hash: the last lease id and turn; whether any crawl ever had a wish. Ends never (three fields)."""
        return f"{self.base}n"

    def home(self, token: str) -> str:
        """hash, the crawl's home shard: state, run, when it began and ended (over: the end in the shard's time, where
        that is another), shards touched, number of the last stop; st:<spider> how its part ended, x:<spider> when it
        expires (0: never), ev:<spider> whose end is still to be told (empty: the run's). Ends with the retention; a
        stopped mark later."""
        return f"{self.base}h:{token}"

    def crawl(self, token: str) -> str:
        """hash: what a shard knows of a crawl, its counters. Ends with the retention.

        Fields: run gen st(ate) crawl; t: the first terms where they are short; closed: the version of the home record
        at which it was closed; parts: some spiders' have ended, st:<spider>; stop, purged: the last stop and what it
        dropped here; pu:<spider> what the end of its part (empty: the run's) dropped here; rebalance: the last
        one's number; A(dded) Z (done) R(eserved) Q(uota) Y (fetched) of a page budget, alone: no other shard has a say
        in it; n b (fingerprints and buckets of the seen-set), s: the only fingerprint; doms; and counters by spider:
        a: added, q: queued, l: later, h: held (leased), f: fetched, F: failed by reason, D: dropped by reason, L: links
        dropped by reason, p: queued by priority.
        """
        return f"{self.base}c:{token}"

    def terms(self, token: str) -> str:
        """hash: number -> one submission's terms, and d<digest> -> number; the first ones, where they are short, are a
        field of the crawl. Ends with the crawl."""
        return f"{self.base}t:{token}"

    def shares(self, token: str) -> str:
        """hash: domain -> the crawl's pages and queues there. Rows end when empty, the hash with the crawl."""
        return f"{self.base}d:{token}"

    def starved(self, token: str) -> str:
        """set: domains whose queues wait for a page of the budget. Ends when empty, or with the crawl."""
        return f"{self.base}z:{token}"

    def seen(self, token: str, generation: int, bucket: int) -> str:
        """set of integers: a bucket of fingerprints; a single one is a field of the crawl. Ends with the crawl, or
        after a fresh run began."""
        return f"{self.base}s:{token}:{generation}:{bucket}"

    def queue(self, token: str, spider: str, domain: str, priority: int) -> str:
        """list of entries. Ends when empty."""
        return f"{self.base}q:{token}|{spider}|{domain}|{priority}"

    def agenda(self, pool: str, spider: str, domain: str) -> str:
        """zset: "<token>|<priority>" by priority, then turn. Ends when empty."""
        return f"{self.base}a:{pool}|{spider}|{domain}"

    def ready(self, pool: str, spider: str, band: int, egress: str = "") -> str:
        """zset: domains by next allowed time. Ends when empty."""
        return f"{self.base}r:{pool}|{spider}|{band}" + (f"|{egress}" if egress else "")

    def off(self, pool: str, spider: str) -> str:
        """set: domains with work that are blacklisted or paused. Ends when empty."""
        return f"{self.base}off:{pool}|{spider}"

    def roster(self, pool: str, spider: str) -> str:
        """set: domains with work whose budget is per egress. Ends when empty."""
        return f"{self.base}roster:{pool}|{spider}"

    @property
    def backlog(self) -> str:
        """hash: "<pool>|<spider>" -> requests that wait in queues. Rows end when none does."""
        return f"{self.base}backlog"

    @property
    def homes(self) -> str:
        """zset: "<pool>|<spider>" by when work last came. Rows end an hour later if nothing waits there."""
        return f"{self.base}homes"

    @property
    def egresses(self) -> str:
        """zset: egress addresses by when one leased (within an hour), negative while being enrolled. Rows end after a
        week without."""
        return f"{self.base}egresses"

    @property
    def later(self) -> str:
        """zset: retries by due time. Ends when empty."""
        return f"{self.base}later"

    def throttle(self, scope: str) -> str:
        """string: the rolling window of one scope. Ends a window after the last hit, once nothing is in flight."""
        return f"{self.base}w:{scope}"

    def block(self, domain: str) -> str:
        """string: blocked until, crawl delay. Ends with the later of the two."""
        return f"{self.base}x:{domain}"

    def leases(self, worker: str) -> str:
        """hash: lease id -> where it came from and the entry; `last`: the last call. Ends with the worker."""
        return f"{self.base}l:{worker}"

    @property
    def workers(self) -> str:
        """zset: worker by last sign of life. Rows end when reclaimed."""
        return f"{self.base}workers"

    @property
    def dead(self) -> str:
        """zset: workers whose leases are being taken back. Ends when that is done."""
        return f"{self.base}dead"

    @property
    def deaths(self) -> str:
        """zset: workers that were taken for dead and have not spoken since, by when. Rows end after a week."""
        return f"{self.base}deaths"

    def waiting(self, pool: str) -> str:
        """zset: idle workers by the due time they wait for. Ends when one is woken, or after an hour."""
        return f"{self.base}wait:{pool}"

    @property
    def policy(self) -> str:
        """hash: "d:<domain>" and "*" -> policy; version. The operator's."""
        return f"{self.base}policy"

    @property
    def rescoring(self) -> str:
        """string: how far the change of the default policy has come. Ends when all domains are where it says."""
        return f"{self.base}rescoring"

    @property
    def idle(self) -> str:
        """zset: crawls with nothing to do on this shard, to be looked at. Rows end when decided, or with the crawl."""
        return f"{self.base}idle"

    @property
    def resting(self) -> str:
        """zset: crawls with nothing to do on this shard, by when they have been idle for long enough to end. Rows end
        then, or with the crawl."""
        return f"{self.base}resting"

    @property
    def opened(self) -> str:
        """zset, home shard: runs by when they began. Rows end with the first request there, or after the retention:
        a run without any then finishes."""
        return f"{self.base}opened"

    @property
    def halting(self) -> str:
        """hash, home shard: crawl -> version of its record that some shard may not know of. Rows end when all do."""
        return f"{self.base}halting"

    @property
    def starving(self) -> str:
        """set: crawls with queues that wait for a page of a budget. Rows end when none does."""
        return f"{self.base}starving"

    @property
    def ending(self) -> str:
        """zset: crawls by when their keys are to be removed. Rows end then."""
        return f"{self.base}ending"

    @property
    def marks(self) -> str:
        """zset: stopped and expired crawls by when their mark ends. Rows end then."""
        return f"{self.base}marks"

    @property
    def expiries(self) -> str:
        """zset, home shard: "<token>|<spider>" by when the part expires. Rows end then, or with the crawl."""
        return f"{self.base}expiries"

    @property
    def apps(self) -> str:
        """zset, home shard, by name: applications that have crawls. Rows end with their last."""
        return f"{self.base}apps"

    def crawls(self, appid: str) -> str:
        """set, home shard: an application's crawls. Rows end with their home record."""
        return f"{self.base}crawls:{appid}"

    def running(self, appid: str, only_spider: str = "") -> str:
        """set, home shard: an application's crawls that run, and for which something was submitted for this spider
        (empty: all of them). Rows end with the run, or the spider's part of it."""
        return f"{self.base}running:{only_spider}|{appid}"

    def app(self, appid: str) -> str:
        """hash: spider -> an application's requests that wait, in queues or for a retry. Rows end when none does."""
        return f"{self.base}app:{appid}"

    def app_domains(self, spider: str, appid: str) -> str:
        """hash: domain -> how many of an application's crawls have requests of the spider that wait there. Rows end
        when none has."""
        return f"{self.base}app-domains:{spider}|{appid}"

    def once(self, token: str, generation: int) -> str:
        """hash, home shard: what one process does once in a crawl -> since when and by whom, or empty: it is done. Ends
        30 days after the last change."""
        return f"{self.base}once:{token}:{generation}"

    def spiders(self, lane: str) -> str:
        """zset, shard 0 only: spiders by when a process of the lane announced them. Rows end after 30 days."""
        return f"{self.base}spiders:{lane}"

    @property
    def events(self) -> str:
        """zset, home shard: ids of the ends that are to be told, by time. Rows end when told or after the retention."""
        return f"{self.base}events"

    @property
    def event(self) -> str:
        """hash: id -> what is to be told. Rows end with those of `events`."""
        return f"{self.base}event"

    @property
    def teller(self) -> str:
        """hash: name of the process that publishes the events, and until when it alone does. Ends after an hour."""
        return f"{self.base}teller"

    @property
    def purge(self) -> str:
        """zset: crawls whose queues are being unlinked. Ends when that is done."""
        return f"{self.base}purge"

    @property
    def purging(self) -> str:
        """hash: crawl -> how far its purge has come. Ends when that is done."""
        return f"{self.base}purging"

    @property
    def old(self) -> str:
        """list: seen-sets that fresh runs left behind, to be removed. Ends when empty."""
        return f"{self.base}old"

    def fresh(self, name: str) -> str:
        """string: generation of the fresh run that the request of this name began or joined. Ends after an hour."""
        return f"{self.base}fresh:{name}"

    def call(self, name: str) -> str:
        """string: number and answer of the last addition of this name. Ends after an hour."""
        return f"{self.base}call:{name}"

    @property
    def confirmed(self) -> str:
        """string: written behind a call that waits for a replica. Ends after a millisecond."""
        return f"{self.base}{CONFIRM_KEY}"

    @property
    def clock(self) -> str:
        """hash: offset of the shard's time from the server's clock (ms), corrections of it, forgot: when the clock was
        last set forward, in the shard's time. There only once the server's clock was set. Ends never (three fields)."""
        return f"{self.base}clock"

    @property
    def clocks(self) -> str:
        """zset: process -> the shard's time when it last agreed with it. Ends after 30 days without any process."""
        return f"{self.base}clocks"

    def robots(self, origin: str) -> str:
        """string: an origin's robots.txt as the fetch room packed it. Ends with the time it was saved for."""
        return f"{self.base}robots:{origin}"

    def robots_of(self, domain: str) -> str:
        """zset: origin -> bytes of the domain's records saved until then. Ends with the last of them."""
        return f"{self.base}robots-of:{domain}"

    def robots_claim(self, origin: str) -> str:
        """string: somebody is fetching it. Ends by itself."""
        return f"{self.base}robots-claim:{origin}"

    def wake(self, pool: str) -> str:
        """channel: the number of a shard on which work became due sooner than somebody waits for."""
        return f"{self.prefix}:wake:{pool}"


def shard_of(domain: str, shards: int) -> int:
    """A domain's shard: everything about its queues and throttle is there."""
    return 0 if shards == 1 else int(xxhash.xxh3_64_intdigest(domain.encode()) % shards)


def home_shard(token: str, shards: int) -> int:
    """A crawl's home: which run it is in, and which shards it touched."""
    return 0 if shards == 1 else int(xxhash.xxh3_64_intdigest(token.encode()) % shards)

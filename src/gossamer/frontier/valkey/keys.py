"""Names of the frontier's keys: each pattern once, with the type of its value and when it expires.

The Lua scripts build the same names from the shard's base. A change of a pattern or of what a key holds needs a change
of the scripts, and another `FORMAT` in `identity`, because running frontiers have keys of the old form.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

import xxhash

from gossamer.errors import BadInput
from gossamer.model.request import Batch, name_error
from gossamer.valkey.shards import CONFIRM_KEY


class KeyPattern(StrEnum):
    """The keys of a shard, behind its base. "Home shard": the key is only on the shard that `home_shard` names.

    "Deleted with the crawl": maintenance deletes the key when the crawl's retention is over.
    """

    META = "meta"
    """Hash: format, shards, secret, id. Kept for ever: shard 0's makes the rest readable, and a shard without its id
    has lost its data."""
    NUMBERS = "n"
    """Hash: the last lease id and turn; whether any crawl ever requested a rate. Kept for ever (three fields)."""
    CLOCK = "clock"
    """Hash: offset of the shard's time from the server's clock (ms), number of corrections; forgot: when the clock was
    last set forward, in the shard's time. Exists only once the server's clock was set. Kept for ever (three fields)."""
    CLOCKS = "clocks"
    """Sorted set: process -> the shard's time when it last agreed with the process. Expires 30 days after the last."""
    CONFIRMED = CONFIRM_KEY
    """String: written behind a call that waits for a replica. Expires after a millisecond."""
    CALL = "call:{name}"
    """String: number and answer of the last addition under this name. Expires after an hour."""

    # --- crawls -------------------------------------------------------------------------------------------------------

    HOME = "h:{token}"
    """Hash, home shard, the record of a crawl: state, run, when it began and ended (over: the end in the shard's time,
    where that differs), shards touched, number of the last stop; st:<spider> how its part ended, x:<spider> when it
    expires (0: never), ev:<spider> whose end is not published yet (empty: the run's). Deleted after the retention;
    where the crawl was stopped, with the stop marker."""
    COUNTERS = "c:{token}"
    """Hash: the crawl and its counters on this shard. Deleted after the retention.

    Fields: run gen st(ate) crawl; t: the first terms where they are short; closed: the version of the home record at
    which the run was closed here; parts: the parts of some spiders have ended, st:<spider>; stop, purged: the last stop
    and the number of requests that it dropped here; pu:<spider> the number that the end of its part (empty: the run's)
    dropped here; rebalance: number of the last one; A(dded) Z (done) R(eserved) Q(uota) Y (fetched) of a page budget,
    alone: this is the only shard; n b (fingerprints and buckets of the seen-set), s: the only fingerprint; doms; and
    counters by spider: a: added, q: queued, l: later, h: held (leased), f: fetched, F: failed by reason, D: dropped by
    reason, L: links dropped by reason, p: queued by priority."""
    TERMS = "t:{token}"
    """Hash: number -> terms of a submission, and d<digest> -> number. The first terms are a field of COUNTERS where
    they are short. Deleted with the crawl."""
    SHARES = "d:{token}"
    """Hash: domain -> pages and queues of the crawl there. Rows are deleted when empty, the hash with the crawl."""
    STARVED = "z:{token}"
    """Set: domains whose queues wait for a page of the budget. Deleted when empty, or with the crawl."""
    SEEN = "s:{token}:{generation}:{bucket}"
    """Set of integers: a bucket of fingerprints; a single one is a field of COUNTERS. Deleted with the crawl, or after
    a fresh run began."""
    ONCE = "once:{token}:{generation}"
    """Hash, home shard: a task that one process does once in a crawl -> since when and by whom, or empty: it is done.
    Expires 30 days after the last change."""
    FRESH = "fresh:{name}"
    """String: generation of the fresh run that a request with this idempotency key began or joined. Expires after an
    hour."""

    # --- waiting requests ---------------------------------------------------------------------------------------------

    QUEUE = "q:{token}|{spider}|{domain}|{priority}"
    """List of entries. Deleted when empty."""
    AGENDA = "a:{pool}|{spider}|{domain}"
    """Sorted set: "<token>|<priority>" by priority, then turn. Deleted when empty."""
    READY = "r:{pool}|{spider}|{band}"
    """Sorted set: domains by next allowed time. Deleted when empty."""
    READY_FOR_EGRESS = "r:{pool}|{spider}|{band}|{egress}"
    """Sorted set: the same for one egress address, where the budget is per egress. Deleted when empty."""
    OFF = "off:{pool}|{spider}"
    """Set: domains with work that are blacklisted or paused. Deleted when empty."""
    ROSTER = "roster:{pool}|{spider}"
    """Set: domains with work whose budget is per egress. Deleted when empty."""
    LATER = "later"
    """Sorted set: retries by due time. Deleted when empty."""
    BACKLOG = "backlog"
    """Hash: "<pool>|<spider>" -> requests that wait in queues. Rows are deleted when none does."""
    HOMES = "homes"
    """Sorted set: "<pool>|<spider>" by when work last arrived. Rows are deleted an hour later if nothing waits
    there."""
    APP = "app:{appid}"
    """Hash: spider -> an application's requests that wait, in queues or for a retry. Rows are deleted when none
    does."""
    APP_DOMAINS = "app-domains:{spider}|{appid}"
    """Hash: domain -> number of the application's crawls with requests of the spider that wait there. Rows are deleted
    when no crawl has any."""

    # --- politeness ---------------------------------------------------------------------------------------------------

    THROTTLE = "w:{scope}"
    """String: the rolling window of one scope. Expires a window after the last hit, once nothing is in flight."""
    BLOCK = "x:{domain}"
    """String: blocked until, crawl delay. Deleted with the later of the two."""
    POLICY = "policy"
    """Hash: "d:<domain>" and "*" (the default) -> policy; version. The operator's, so it is kept for ever."""
    RESCORING = "rescoring"
    """String: how far the change of the default policy has come. Deleted when it applies to all domains."""
    EGRESSES = "egresses"
    """Sorted set: egress addresses by their last lease (within an hour), negative while one is being enrolled. Rows end
    after a week without a lease."""
    ROBOTS = "robots:{origin}"
    """String: an origin's robots.txt as the fetch package packed it. Expires after the time that it was saved for."""
    ROBOTS_OF = "robots-of:{domain}"
    """Sorted set: origin -> bytes of the domain's records saved until then. Deleted with the last of them."""
    ROBOTS_CLAIM = "robots-claim:{origin}"
    """String: a worker fetches the origin's robots.txt. Expires after the time that the worker asked for."""

    # --- workers ------------------------------------------------------------------------------------------------------

    WORKERS = "workers"
    """Sorted set: worker's session name by last heartbeat. Rows are deleted when reclaimed."""
    LEASES = "l:{worker}"
    """Hash: lease id -> origin of the request and its entry; `last`: the last call. Deleted with the worker."""
    DEAD = "dead"
    """Sorted set: workers whose leases are being taken back. Deleted when that is done."""
    DEATHS = "deaths"
    """Sorted set: workers that were declared dead and did not call since, by when. Rows are deleted after a week."""
    WAITING = "wait:{pool}"
    """Sorted set: idle workers by the due time they wait for. Deleted when one is woken, or after an hour."""
    SPIDERS = "spiders:{lane}"
    """Sorted set, shard 0 only: spiders by when a process of the lane announced them. Rows are deleted after 30
    days."""

    # --- unfinished operations and ends -------------------------------------------------------------------------------

    IDLE = "idle"
    """Sorted set: crawls that may have finished on this shard. Rows are deleted when that is decided, or with the
    crawl."""
    RESTING = "resting"
    """Sorted set: crawls with nothing to do on this shard, by when they have been idle for long enough to finish. Rows
    end then, or with the crawl."""
    OPENED = "opened"
    """Sorted set, home shard: runs by when they began. Rows are deleted with the first request there, or after the
    retention: a run without any request finishes then."""
    HALTING = "halting"
    """Hash, home shard: crawl -> version of its record that some shard may not know. Rows are deleted when all shards
    do."""
    STARVING = "starving"
    """Set: crawls with queues that wait for a page of a budget. Rows are deleted when none does."""
    ENDING = "ending"
    """Sorted set: crawls by when their keys are to be deleted. Rows are deleted then."""
    MARKS = "marks"
    """Sorted set: stopped and expired crawls by when their stop marker ends. Rows are deleted then."""
    EXPIRIES = "expiries"
    """Sorted set, home shard: "<token>|<spider>" by when the part expires. Rows are deleted then, or with the crawl."""
    PURGE = "purge"
    """Sorted set: crawls whose queues are being deleted. Deleted when that is done."""
    PURGING = "purging"
    """Hash: crawl -> how far its purge has come. Deleted when that is done."""
    OLD = "old"
    """List: seen-sets that fresh runs left behind, to be deleted. Deleted when empty."""

    # --- listings and events ------------------------------------------------------------------------------------------

    APPS = "apps"
    """Sorted set, home shard, by name: applications that have crawls. Rows are deleted with their last crawl."""
    CRAWLS = "crawls:{appid}"
    """Set, home shard: an application's crawls. Rows are deleted with their home record."""
    RUNNING = "running:|{appid}"
    """Set, home shard: an application's crawls that run. Rows are deleted with the run."""
    RUNNING_SPIDER = "running:{spider}|{appid}"
    """Set, home shard: the running crawls of an application to which something was submitted for this spider. Rows are
    deleted with the run, or with the spider's part of it."""
    EVENTS = "events"
    """Sorted set, home shard: ids of events that are not acknowledged, by time. Rows are deleted then, or after the
    retention."""
    EVENT = "event"
    """Hash: id -> event. Rows are deleted with those of EVENTS."""
    TELLER = "teller"
    """Hash: name of the process that publishes the events, and until when it alone does. Expires after an hour."""

    @property
    def kind(self) -> str:
        """The fixed first part, which distinguishes the pattern's keys from all others of the shard."""
        return self.value.partition(":")[0]


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one shard."""

    prefix: str
    shard: int

    @property
    def base(self) -> str:
        """Prefix of all keys of the shard, and KEYS[1] of every script. Its braces keep them in one cluster slot."""
        return f"{self.prefix}:{{{self.shard}}}:"

    def key(self, pattern: KeyPattern, **names: str | int) -> str:
        """Return the key of this pattern for these names."""
        return self.base + pattern.value.format(**names)

    def wake_channel(self, pool: str) -> str:
        """Return the channel on which a shard publishes its number when work became due sooner than a worker
        expects."""
        return f"{self.prefix}:wake:{pool}"


_OF_CRAWLS = (KeyPattern.COUNTERS, KeyPattern.SHARES, KeyPattern.HOME, KeyPattern.QUEUE, KeyPattern.SEEN)
_CRAWL_KEY = re.compile(rf":\{{\d+\}}:(?:{'|'.join(pattern.kind for pattern in _OF_CRAWLS)}):([\w=-]{{16}})".encode())


def crawl_token(key: bytes) -> str | None:
    """Return the token of the crawl that a large key belongs to. None: the key belongs to no crawl."""
    found = _CRAWL_KEY.search(key)
    return found[1].decode() if found else None


def shard_of(domain: str, shard_count: int) -> int:
    """Return the shard that has everything about a domain's queues and throttle."""
    return 0 if shard_count == 1 else int(xxhash.xxh3_64_intdigest(domain.encode()) % shard_count)


def home_shard(token: str, shard_count: int) -> int:
    """Return the shard that has a crawl's record: its current run, and which shards the run touched."""
    return 0 if shard_count == 1 else int(xxhash.xxh3_64_intdigest(token.encode()) % shard_count)


def check_names(*names: str) -> None:
    """Raise BadInput for a name of a pool, spider or egress that would make keys ambiguous."""
    for name in names:
        if fault := name_error(name):
            raise BadInput(fault)


def check_batch(batch: Batch) -> None:
    """Raise BadInput for a spider or domain that would make keys ambiguous. A domain may have a comma, as a host
    may."""
    check_names(batch.spider)
    if "|" in batch.domain or "\n" in batch.domain:
        raise BadInput(f"a domain may not contain '|' or a line break: {batch.domain[:200]!r}")

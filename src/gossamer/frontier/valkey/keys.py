"""Names of the frontier's keys: each pattern once, with the type of its value and when it expires.

The frontier's keys are divided into shards. The Lua scripts build the same names from the shard's base. A change of a
pattern or of what a key holds needs a change of the scripts, and another `FORMAT` in `identity`, because running
frontiers have keys of the old form. The values must not change. `shard_of` and `home_shard` must never change: they
find existing data.

The scripts set the lifetimes, or receive them as arguments (milliseconds) from the Python module that runs the script.
The docstrings below name them, too.

Words of the patterns:
- run: one life of a crawl, from its first request until nothing is left. Its generation is the number of its seen-set.
- terms: the options of one submission, which its requests and their links share.
- pool: a group of workers with requests of their own. Egress: the public address that requests leave from.
- part: one spider's share of a crawl, which may expire or be stopped by itself.
- spider: under which requests are stored; for those of the lane `browser`, its name and `,browser` (lanes.lua).
- lane: kind of worker that a request needs: Gossamer's or Scrapy's, as its spider says, and one with a browser or any.
- band: one of five ranges of priorities (`band_of` in places.lua); domains of a lower band are served first.
- turn: a counter of the shard. Queues of equal priority are served by turn; a served one gets a new turn, the last.
- site: registered domain. Account: name of one of a crawl's logins there.
- token: 16 characters that stand for a crawl (`CrawlId.token`).
"""

import re
from enum import StrEnum

import msgspec
import xxhash

from gossamer.errors import BadInput
from gossamer.model.request import Batch, name_error
from gossamer.valkey.shards import CONFIRM_KEY


class KeyPattern(StrEnum):
    """Key names of a shard; each follows `ShardKeys.base`. "Home shard": the key is only on the shard that `home_shard`
    returns.

    "Deleted with the crawl": maintenance deletes the key when the crawl's retention is over.
    """

    META = "meta"
    """Hash. Kept for ever: without shard 0's, no process can read the frontier; a shard without its `id` has lost its
    data. Fields:
    - format: number of the format of all keys
    - shards: number of shards
    - secret: key of the fingerprints
    - id: random id of the shard
    - process: id of the server's process after whose start the shard was repaired; only where a server may carry out
      half of a transaction
    """
    NUMBERS = "n"
    """Hash: the last number of a lease, the last turn, the last number of a call that retries, whether any crawl ever
    requested a rate, and how many events were given up. Kept for ever (a few fields)."""
    CLOCK = "clock"
    """Hash. Exists only once the server's clock was set. Kept for ever (three fields). Fields:
    - offset: shard's time minus the server's clock, ms
    - corrections: number of changes of the offset
    - forgot: when the server's clock was last set forward, in the shard's time. The server then expired keys too early,
      so the shard forgot what they held.
    """
    CLOCKS = "clocks"
    """Sorted set: process by the latest shard's time with which the process's own clock agreed. Expires 30 days after
    the last such agreement."""
    CONFIRMED = CONFIRM_KEY
    """String: the last write of a call that waits until a replica has its writes. Expires after a millisecond."""
    CALL = "call:{name}"
    """String: number and answer of the last addition under this name. Expires after an hour."""

    # --- crawls -------------------------------------------------------------------------------------------------------

    HOME = "h:{token}"
    """Hash, home shard: the home record of a crawl. Deleted after the retention; if the crawl was stopped, with its
    stop marker. Holds:
    - state and number of the run, when it began and ended, the shards that it touched, the number of the last stop
    - over: the end in the shard's time, where that differs
    - st:<spider>: how that part ended
    - x:<spider>: when that part expires (0: never)
    - ev:<spider>: the end of that part is not published yet (empty name: the end of the run)
    - export: id of the export that the crawl was imported from
    """
    COUNTERS = "c:{token}"
    """Hash: the crawl and its counters on this shard. Deleted after the retention. Fields:
    - run, gen, st: number, generation and state of the run; crawl: the packed Crawl
    - t: the first terms, where they are short
    - closed: version of the home record at which the run was closed here
    - parts: set when a part has ended; st:<spider>: how it ended
    - stop, purged: number of the last stop, and of the requests that it dropped here
    - pu:<spider>: number of requests that the end of the part (empty name: of the run) dropped here
    - rebalance: number of the last rebalancing of the page budget
    - A, Z: requests added and done; R, Q, Y: pages reserved, allotted and fetched of the page budget
    - alone: set when no other shard has a share in the page budget
    - n, b: numbers of fingerprints and of buckets of the seen-set; s: the only fingerprint
    - doms: number of domains
    - w: number of repairs that found wrong counts
    - import: number of the last line that was imported, where the crawl comes from another frontier; double: number of
      fingerprints of its seen-set that are counted on another shard, too
    - rebuild: set while the crawl is filled again from its records; it counts as one added request
    - g: packed counts of pages that may have no end, by the pattern of their URLs; see note_growth.lua
    - k, K: number and bytes of the requests in FAILED; v: number of those that failed when it was full
    - counters of a spider, by the letter before the colon: a added, q queued, l later, h leased, f fetched, F failed by
      reason, D dropped by reason, L links dropped by reason, T attempts followed by another one by reason, p queued by
      priority
    """
    TERMS = "t:{token}"
    """Hash: number -> terms of a submission, and d<digest> -> number. The first terms are a field of COUNTERS where
    they are short. Deleted with the crawl."""
    SHARES = "d:{token}"
    """Hash: domain -> pages and queues of the crawl there. Rows are deleted when empty, the hash with the crawl."""
    STARVED = "z:{token}"
    """Set: domains whose queues wait for a page of the budget. Deleted when empty, or with the crawl."""
    FAILED = "failed:{token}"
    """List: failed requests, each with the counter that counts it, to be retried: those that got no answer, or all, as
    the crawl asks for. Deleted when empty, with the crawl, and when a run begins with new counters; expires 30 days
    after the last addition."""
    SEEN = "s:{token}:{generation}:{bucket}"
    """Set of integers: a bucket of fingerprints; a single one is a field of COUNTERS. Deleted with the crawl, or after
    a fresh run began."""
    ONCE = "once:{token}:{generation}"
    """Hash, home shard: task that one process does once in a crawl -> start time and owner; an empty value means done.
    Expires 30 days after the last change."""
    JAR = "jar:{token}:{generation}|{account}|{site}"
    """Hash, on the shard of the site: digest of a cookie's identity -> the cookie, encrypted by the workers. The
    account is empty where the crawl only keeps cookies. Expires after the life that was set with the last change."""
    RENDER_CHOICES = "render:{token}|{site}"
    """Hash, on the shard of the site: digest of a URL pattern -> whether rendering changes its pages, and the number of
    plain pages until one is rendered again. Expires 30 days after the last change."""
    FRESH = "fresh:{name}"
    """String: generation of the fresh run that a request with this idempotency key began or joined. Expires after an
    hour."""

    # --- waiting requests ---------------------------------------------------------------------------------------------

    QUEUE = "q:{token}|{spider}|{domain}|{priority}"
    """List of packed requests (see `codec`). Deleted when empty."""
    AGENDA = "a:{pool}|{spider}|{domain}"
    """Sorted set: "<token>|<priority>" by priority, then turn. Deleted when empty."""
    READY = "r:{pool}|{spider}|{band}"
    """Sorted set, the ready set of a band: domains by next allowed time. Deleted when empty."""
    READY_FOR_EGRESS = "r:{pool}|{spider}|{band}|{egress}"
    """Sorted set: the same for one egress address, where the budget is per egress. Deleted when empty."""
    OFF = "off:{pool}|{spider}"
    """Set: domains with work that are blacklisted or paused. Deleted when empty."""
    PER_EGRESS = "per-egress:{pool}|{spider}"
    """Set: domains with work whose budget is per egress. Deleted when empty."""
    LATER = "later"
    """Sorted set: retries by due time. Deleted when empty."""
    BACKLOG = "backlog"
    """Hash: "<pool>|<spider>" -> number of requests that wait in queues. Rows are deleted when no request waits."""
    GROUPS = "groups"
    """Sorted set: "<pool>|<spider>" by when work last arrived. Rows are deleted an hour later if nothing waits
    there."""
    APP = "app:{appid}"
    """Hash: spider -> number of the application's requests that wait, in queues or for a retry. Rows are deleted when
    no request waits."""
    APP_DOMAINS = "app-domains:{spider}|{appid}"
    """Hash: domain -> number of the application's crawls with waiting requests of the spider there. Rows are deleted
    when no crawl has one."""

    # --- politeness ---------------------------------------------------------------------------------------------------

    THROTTLE = "w:{scope}"
    """String: the hits of one rate limit in its rolling window; a scope is a domain and, as its policy says, a spider
    or an egress address. If no request is in flight, expires when its hits no longer matter (two seconds after the
    longest window that counts), or up to twice as late. Crawls that share the scope have their turns in it."""
    BLOCK = "x:{domain}"
    """String: blocked until, crawl delay. Deleted with the later of the two."""
    POLICY = "policy"
    """Hash: "d:<domain>" and "*" (the default) -> policy; version. The operator's, so it is kept for ever."""
    APPLYING_POLICY = "applying-policy"
    """String: how far the change of the default policy has come. Deleted when it applies to all domains."""
    EGRESSES = "egresses"
    """Sorted set: egress addresses by the time of their last lease (up to an hour old). The time is negative while the
    address is being added to the ready sets. Rows are deleted after a week without a lease."""
    ROBOTS = "robots:{origin}"
    """String: an origin's robots.txt as the fetch package packed it. Expires after the time that it was saved for."""
    ROBOTS_OF = "robots-of:{domain}"
    """Sorted set: origin by the total bytes of the domain's records up to its own, in order of saving. So the
    difference of two scores is what was saved between them. Deleted with the last record."""
    ROBOTS_CLAIM = "robots-claim:{origin}"
    """String: name of the worker's task that is fetching the origin's robots.txt. Expires after the time that the
    worker requested."""

    # --- workers ------------------------------------------------------------------------------------------------------

    WORKERS = "workers"
    """Sorted set: worker's session name by last heartbeat. Rows are deleted when reclaimed."""
    LEASES = "l:{worker}"
    """Hash: lease id -> queue of the leased request and its entry. Field `last`: number, leases and time of the last
    call, so that a repeated call returns the same leases. Deleted with the worker."""
    DEAD = "dead"
    """Sorted set: dead workers whose leases are being reclaimed. Rows are deleted when no lease is left."""
    DEATHS = "deaths"
    """Sorted set: workers that were declared dead and have not called since, by time of death. Rows are deleted after a
    week."""
    PATIENCE = "patience"
    """String: longest time, ms, after which a worker that sends heartbeats wants to count as dead. Expires after ten
    times as long without one."""
    WAITING = "wait:{pool}"
    """Sorted set: idle workers by the time at which they will ask again by themselves. Rows are deleted when the worker
    is woken, the set after an hour."""
    SPIDERS = "spiders:{lane}"
    """Sorted set, shard 0 only: spiders by when a process of the lane announced them. Rows are deleted after 30
    days."""

    BROWSERS = "browsers"
    """Sorted set, shard 0 only: "<pool>|<worker>" of the workers with a browser, by the time until which they count as
    alive. Rows are deleted with a later announcement; expires with the last one."""

    LOGINS = "logins"
    """Sorted set, shard 0 only: names of the logins of a service, by when they end, epoch ms of the process that stored
    them. Rows are deleted with the login, or when another one is stored after its end."""
    LOGIN = "login:{name}"
    """String, shard 0 only: a login of a service (see `logins`), in which secrets are encrypted. Expires at its end."""
    LOGIN_FAILURES = "login-failures:{name}"
    """Hash, shard 0 only: account of a login -> why its login has failed. Deleted with the login, and when it is stored
    again or to be tried again; expires 90 days after the last failure."""
    LOGIN_UNUSABLE = "login-unusable:{name}"
    """String, shard 0 only: sentence on why a worker cannot use a login for which requests wait. Deleted when a worker
    can; expires 10 seconds after a worker has noted it."""

    # --- unfinished operations and ends -------------------------------------------------------------------------------

    IDLE = "idle"
    """Sorted set: crawls that may have finished on this shard. Rows are deleted when that is decided, or with the
    crawl."""
    IDLE_UNTIL = "idle-until"
    """Sorted set: crawls with nothing to do on this shard, by when they have been idle for long enough to finish. Rows
    end then, or with the crawl."""
    OPENED = "opened"
    """Sorted set, home shard: runs without a request yet, by when they began. Rows are deleted when the first request
    is added on this shard. After the retention, maintenance finishes a run that still has no request."""
    STOPPING = "stopping"
    """Hash, home shard: crawl -> version of its home record that some shard may not have applied yet. Rows are deleted
    when all shards have."""
    STARVING = "starving"
    """Set: crawls with queues that wait for a page of the crawl's budget. Rows are deleted when no queue of the crawl
    waits."""
    FORGOTTEN = "forgotten"
    """Hash: crawl that its home shard seems to have forgotten -> since when it has been at rest on all shards, and how
    many requests were added and done here by then. Rows are deleted when the home shard knows the crawl, when there is
    something to do again, or after the retention, when the crawl's run ends here."""
    ENDING = "ending"
    """Sorted set: crawls by when their keys are to be deleted. Rows are deleted then."""
    STOP_MARKERS = "stop-markers"
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
    """Set, home shard: an application's running crawls. It is RUNNING_SPIDER with an empty spider name, which means all
    spiders. Rows are deleted with the run."""
    RUNNING_SPIDER = "running:{spider}|{appid}"
    """Set, home shard: the running crawls of an application to which something was submitted for this spider. Rows are
    deleted with the run, or with the spider's part of it."""
    EVENTS = "events"
    """Sorted set, home shard: ids of events that are not acknowledged, by time. Rows are deleted then, or after the
    retention."""
    EVENT = "event"
    """Hash: id -> event. Rows are deleted with those of EVENTS."""
    PUBLISHER = "publisher"
    """Hash: name of the process that publishes the events, and the time until which no other process may. Expires after
    an hour."""

    @property
    def kind(self) -> str:
        """The fixed first part of the name. Two pairs of patterns share theirs: READY with READY_FOR_EGRESS, and
        RUNNING with RUNNING_SPIDER."""
        return self.value.partition(":")[0]


class ShardKeys(msgspec.Struct, frozen=True):
    """The keys of one shard."""

    prefix: str
    shard: int

    @property
    def base(self) -> str:
        """Prefix of all keys of the shard, and KEYS[1] of every script. The braces put all these keys into one slot of
        a cluster. Must not change."""
        return f"{self.prefix}:{{{self.shard}}}:"

    def key(self, pattern: KeyPattern, **names: str | int) -> str:
        """Return the key of this pattern for these names."""
        return self.base + pattern.value.format(**names)

    def wake_channel(self, pool: str) -> str:
        """Return the channel of a pool. A shard publishes its number there when work becomes due earlier than an idle
        worker expects."""
        return f"{self.prefix}:wake:{pool}"


_LARGE_KEYS = (KeyPattern.COUNTERS, KeyPattern.SHARES, KeyPattern.HOME, KeyPattern.QUEUE, KeyPattern.SEEN)
"""Keys that make up most of a crawl's memory, from which `crawl_token` reads the crawl. TERMS, STARVED and ONCE are
left out because they are small; more patterns may be added freely if their names begin with the token."""
_LARGE_KINDS = "|".join(pattern.kind for pattern in _LARGE_KEYS)
# Matches the braces of `ShardKeys.base`, and the 16 characters of a token.
_CRAWL_KEY = re.compile(rf":\{{\d+\}}:(?:{_LARGE_KINDS}):([\w=-]{{16}})".encode())


def crawl_token(key: bytes) -> str | None:
    """Return the token of the crawl that a large key belongs to. None: the key is none of _LARGE_KEYS."""
    found = _CRAWL_KEY.search(key)
    return found[1].decode() if found else None


def shard_of(domain: str, shard_count: int) -> int:
    """Return the shard that has everything about a domain's queues and throttle. Must never change: existing data would
    not be found."""
    return 0 if shard_count == 1 else int(xxhash.xxh3_64_intdigest(domain.encode()) % shard_count)


def home_shard(token: str, shard_count: int) -> int:
    """Return the shard that has a crawl's home record. Must never change: existing data would not be found."""
    return 0 if shard_count == 1 else int(xxhash.xxh3_64_intdigest(token.encode()) % shard_count)


def check_names(*names: str) -> None:
    """Raise BadInput for a name of a pool, spider or egress that would make keys ambiguous. Must not allow more: `|`
    separates the names in keys, `,` in lists of spiders."""
    for name in names:
        if fault := name_error(name):
            raise BadInput(fault)


def check_batch(batch: Batch) -> None:
    """Raise BadInput for a spider or domain that would make keys ambiguous. A comma is allowed in a domain, because
    hosts may contain one."""
    check_names(batch.spider)
    if "|" in batch.domain or "\n" in batch.domain:
        raise BadInput(f"a domain may not contain '|' or a line break: {batch.domain[:200]!r}")

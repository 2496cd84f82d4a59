"""Watches what the scripts do to requests, and compares it with the steps that their headers declare.

Every request is counted under exactly one status, by crawl and spider. What a script changed of these counters must be
a sum of steps that its header declares. The headers together are the table of the life cycle: a unit test says so.
"""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Self

import gossamer
from gossamer.frontier.lifecycle import RequestEvent, RequestStatus
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards

FOLDER = Path(gossamer.__file__).parent / "frontier" / "valkey" / "scripts"
_STEP = re.compile(r"^-- transition: (\w+) -> (\w+) on (\w+)$", re.MULTILINE)

Place = str
"""A status, with its event where the counters tell dropped requests apart: "queued", "dropped on stop"."""
Step = tuple[Place, Place]

_PLACES = {"q": "queued", "l": "later", "h": "leased", "f": "fetched", "F": "failed"}
_DROPPED = {
    "stopped": RequestEvent.STOP,
    "expired": RequestEvent.EXPIRE,
    "budget": RequestEvent.EXHAUST,
    "lost": RequestEvent.LOSE,
}
_WAITING = (RequestStatus.QUEUED.value, RequestStatus.LATER.value)


def _place(status: str, event: str) -> Place:
    if event == RequestEvent.DROPPED_BEFORE:  # its counters are those of a settlement
        event = RequestEvent.DROP.value
    return f"{status} on {event}" if status == RequestStatus.DROPPED else status


def declared_steps() -> dict[str, set[Step]]:
    """By script. A step that begins at "dropped" begins at what settlements dropped: nothing else is queued again."""
    return {
        path.stem: {
            (_place(before, RequestEvent.DROP), _place(after, event))
            for before, after, event in _STEP.findall(path.read_text())
        }
        for path in FOLDER.glob("*.lua")
    }


def _sinks(steps: set[Step]) -> list[set[Place]]:
    """All sets of places that no step leaves."""
    places = sorted({place for step in steps for place in step})
    subsets = chain.from_iterable(combinations(places, size) for size in range(1, len(places) + 1))
    return [set(s) for s in subsets if all(after in s for before, after in steps if before in s)]


DECLARED = declared_steps()
_SINKS = {name: _sinks(steps) for name, steps in DECLARED.items()}

_READ_COUNTERS = Script(
    "read_counters",
    """
local answer = {}
for i, key in ipairs(redis.call("KEYS", KEYS[1] .. "c:*")) do
  answer[i] = { key, redis.call("HGETALL", key) }
end
return answer
""",
    undeclared_keys=True,
)

_CALL = re.compile(r"""call\(["']?(\w+)""")
_READING = {
    "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN", "LLEN", "SCARD", "SISMEMBER", "SSCAN", "TIME",
    "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE",
}  # fmt: skip
"""Commands that change nothing."""

Counts = dict[tuple[str, str, str], Counter[Place]]
"""By crawl, run (with its generation) and spider."""
Rows = dict[bytes, list[bytes]]
"""Counters as they are stored, by the key of their crawl."""


@cache
def _only_reads(script: Script) -> bool:
    return set(_CALL.findall(script.source)) <= _READING


def _counts(rows: Rows, crawls: Collection[bytes]) -> Counts:
    found: Counts = {}
    for key in rows.keys() & crawls:
        row = rows[key]
        fields = {field.decode(): value for field, value in zip(row[::2], row[1::2], strict=True)}
        run = f"{fields['run'].decode()} of {fields['gen'].decode()}"
        for field, value in fields.items():
            kind, colon, rest = field.partition(":")
            if colon and kind in ("a", "D", *_PLACES):
                name, _, reason = rest.partition(":")
                spider = name.partition(",")[0]  # a request may change its lane, and stays one of its spider's
                counts = found.setdefault((key.decode(), run, spider), Counter())
                if kind == "a":
                    counts[RequestStatus.NEW.value] -= int(value)
                elif kind == "D":
                    event = _DROPPED.get(reason, RequestEvent.DROP)
                    counts[_place(RequestStatus.DROPPED, event)] += int(value)
                else:
                    counts[_PLACES[kind]] += int(value)
    return found


class StepObserver:
    """Connections to shards, for one client that works alone: what others change meanwhile is taken for its own."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, set[Step]] = defaultdict(set)
        """Steps that one request took alone, by script."""
        self.alone = True
        """False: others may change the counters too, so they are read before each script as well."""
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._last: dict[str, Rows] = {}
        """What the last script of each shard left, by the shard's base."""

    def watch(self, shards: Shards) -> Self:
        self._shards = shards
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("command", "everywhere"):  # which tests change counters with
            self._last.clear()
        return getattr(self._shards, name)

    async def call(self, shard: int, script: Script, keys: Any, *arguments: Any, **options: Any) -> Any:
        if _only_reads(script):
            return await self._shards.call(shard, script, keys, *arguments, **options)
        async with self._locks[shard]:
            before = self._last.pop(keys[0], None) if self.alone else None
            if before is None:
                before = await self._rows(keys[0])
            try:
                return await self._shards.call(shard, script, keys, *arguments, **options)
            finally:
                after = self._last[keys[0]] = await self._rows(keys[0])
                if before != after:
                    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
                    self._judge(script.name, _counts(before, changed), _counts(after, changed))

    async def _rows(self, base: str) -> Rows:
        return dict(await self._shards.call(int(base.split("{")[1].split("}")[0]), _READ_COUNTERS, [base], []))

    def _judge(self, name: str, before: Counts, after: Counts) -> None:
        runs = {(crawl, run) for crawl, run, _ in after}
        for part in before.keys() | after.keys():
            was, is_now = before.get(part, Counter()), after.get(part, Counter())
            if part[:2] not in runs:
                waiting = sum(was[place] for place in _WAITING)
                assert waiting == 0, f"{name} forgot {waiting} requests of {part} that waited"
                continue
            change = {place: is_now[place] - was[place] for place in was.keys() | is_now.keys()}
            change = {place: count for place, count in change.items() if count}
            if change:
                self._judge_change(name, part, change)

    def _judge_change(self, name: str, part: tuple[str, str, str], change: dict[Place, int]) -> None:
        what = f"{name} changed {part} by {change}"
        assert sum(change.values()) == 0, f"{what}: a request without a status, or with two"
        known = {place for step in DECLARED[name] for place in step}
        assert change.keys() <= known, f"{what}, which its header does not declare"
        # Steps lead into such a set and never out of it.
        for sink in _SINKS[name]:
            assert sum(change.get(place, 0) for place in sink) >= 0, f"{what}, which its header does not declare"
        if sorted(change.values()) == [-1, 1]:
            (gone,) = (place for place, count in change.items() if count < 0)
            (come,) = (place for place, count in change.items() if count > 0)
            self.seen[name].add((gone, come))

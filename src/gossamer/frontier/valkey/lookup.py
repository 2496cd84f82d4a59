"""Where one URL stands: for people who ask why it was not fetched. Reads much; not for programs in a loop."""

from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import Commands
from gossamer.model.crawl import Run
from gossamer.model.info import UrlInfo

_LOOK_AT = 100_000
_PAGE = 1000


async def find(
    commands: Commands, shard: int, run: Run, *, spider: str, domain: str, url: str, fingerprint: int
) -> UrlInfo:
    """Looks into the seen-set, then where a request can be: its queues, the retries, the workers' leases."""
    keys, token = commands.keys[shard], run.crawl.id.token
    seen = bool(await commands.call(shard, "seen_one", token, fingerprint))
    answer = UrlInfo(seen=seen, place="unknown")
    blocked, due, off = await commands.call(shard, "due", run.crawl.pool, spider, domain)
    answer.blocked_until = float(blocked) / 1000 if blocked else None
    answer.blacklisted = bool(off)
    if not seen:
        return answer
    answer.place = "done"
    row = await commands.plain(shard, "HGET", keys.shares(token), domain)
    priorities = sorted(info.domain_info(domain.encode(), row).by_priority, reverse=True) if row else []
    for priority in priorities:
        key = keys.queue(token, spider, domain, priority)
        for first in range(0, _LOOK_AT, _PAGE):
            entries = await commands.plain(shard, "LRANGE", key, first, first + _PAGE - 1)
            for offset, entry in enumerate(entries):
                if codec.decode_entry(entry)[4] == url:
                    answer.place, answer.priority, answer.position = "queued", priority, first + offset
                    answer.due = float(due) / 1000 if due else None
                    return answer
            if len(entries) < _PAGE:
                break
    cursor, looked = b"0", 0
    while True:
        cursor, page = await commands.plain(shard, "ZSCAN", keys.later, cursor, "COUNT", _PAGE)
        for member, score in info.pairs(page).items():
            if url.encode() in member and token.encode() in member:
                answer.place, answer.due = "later", float(score) / 1000
                return answer
        looked += _PAGE
        if cursor == b"0" or looked >= _LOOK_AT:
            break
    for worker in await commands.plain(shard, "ZRANGE", keys.workers, 0, -1):
        leases = info.pairs(await commands.plain(shard, "HGETALL", keys.leases(worker.decode())))
        for raw in leases.values():
            if url.encode() in raw and token.encode() in raw:
                answer.place, answer.held_by = "leased", worker.decode()
                return answer
    return answer

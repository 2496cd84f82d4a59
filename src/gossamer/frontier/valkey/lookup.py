"""Where one URL stands: for people who ask why it was not fetched. Reads much; not for programs in a loop."""

from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import Commands
from gossamer.frontier.valkey.session import worker_of
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
    blocked, due, ahead = await commands.call(shard, "due", run.crawl.pool, spider, domain)
    answer.blocked_until = float(blocked) / 1000 if blocked else None
    if not seen:
        return answer
    answer.place = "done"
    entry = _Entry(token, run.number, spider, url)
    row = await commands.plain(shard, "HGET", keys.shares(token), domain)
    priorities = sorted(info.domain_info(domain.encode(), row).by_priority, reverse=True) if row else []
    for priority in priorities:
        key = keys.queue(token, spider, domain, priority)
        for first in range(0, _LOOK_AT, _PAGE):
            entries = await commands.plain(shard, "LRANGE", key, first, first + _PAGE - 1)
            for offset, packed in enumerate(entries):
                if entry.is_in(packed):
                    answer.place, answer.priority, answer.position = "queued", priority, first + offset
                    answer.due = float(due) / 1000 if due else None
                    return answer
            if len(entries) < _PAGE:
                break
    cursor, looked = b"0", 0
    while True:
        cursor, page = await commands.plain(shard, "ZSCAN", keys.later, cursor, "COUNT", _PAGE)
        for member, score in info.pairs(page).items():
            if entry.is_later(member):
                answer.place, answer.due = "later", (float(score) + float(ahead)) / 1000
                return answer
        looked += _PAGE
        if cursor == b"0" or looked >= _LOOK_AT:
            break
    for holders in (keys.workers, keys.dead):
        for worker in await commands.plain(shard, "ZRANGE", holders, 0, -1):
            leases = info.pairs(await commands.plain(shard, "HGETALL", keys.leases(worker.decode())))
            if any(entry.is_leased(raw) for name, raw in leases.items() if name != b"last"):
                answer.place, answer.held_by = "leased", worker_of(worker.decode())
                return answer
    return answer


class _Entry:
    """One request, to be recognised wherever it is kept."""

    def __init__(self, token: str, run: int, spider: str, url: str) -> None:
        self._token, self._spider, self._encoded = token.encode(), spider.encode(), url.encode()
        self._run, self._url = run, url

    def is_in(self, entry: bytes) -> bool:
        return self._encoded in entry and codec.decode_entry(entry)[4] == self._url

    def is_later(self, member: bytes) -> bool:
        """Of a retry: token, run, priority, spider, domain, entry."""
        if not self._may_be_in(member):
            return False
        token, run, _, spider, _, entry = codec.unpack_parts(member, 6)
        return self._is_mine(token, run, spider) and self.is_in(entry)

    def is_leased(self, raw: bytes) -> bool:
        """Of a lease: run, token, priority, spider, domain, scope, entry, two of its last hop, its start, and the
        even gap."""
        if not self._may_be_in(raw):
            return False
        run, token, _, spider, _, _, entry, *_ = codec.unpack_parts(raw, 11)
        return self._is_mine(token, run, spider) and self.is_in(entry)

    def _may_be_in(self, raw: bytes) -> bool:
        """Reads nothing: most that is looked at is something else."""
        return self._encoded in raw and self._token in raw

    def _is_mine(self, token: bytes, run: bytes, spider: bytes) -> bool:
        return (token, spider) == (self._token, self._spider) and codec.unpack_number(run) == self._run

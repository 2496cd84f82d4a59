"""Four workers, two accounts, sessions that end, a kill and a stop: each page once and logged in, no account shared."""

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.fernet import Fernet

from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.spec import WebSpec
from gossamer.model.record import PageRecord
from gossamer_fakeweb.members import ACCOUNTS, Members
from tests.servers.crawling import command, records_of
from tests.servers.valkey import standalone, wait_until

PAGES = 240
IN_FLIGHT = 16
"""Requests of a worker at the site, at most."""
SESSION = """
accounts:
  alice: {{user: alice, password: {{env: ALICE}}}}
  bob: {{user: bob, password: {{env: BOB}}}}
login:
  form: {base}/login
  fields: {{user: user, password: password}}
"""


class Crew:
    """Workers that share a crawl, each with a folder of its own."""

    def __init__(self, folder: Path, base: str, frontier: str) -> None:
        self._folder = folder
        self._base = base
        self._frontier = frontier
        self._file = folder / "members.yaml"
        self._file.write_text(SESSION.format(base=base))
        self._environment = {
            **os.environ,
            "ALICE": ACCOUNTS["alice"],
            "BOB": ACCOUNTS["bob"],
            "GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode(),
            "GOSSAMER_WORKER__HEARTBEAT": "1",
        }
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        (self._folder / name).mkdir()
        flags = ("--crawl-id", "members", "--frontier", self._frontier, "-o", "pages.jsonl", "--rate", "40/1")
        session = ("--session", str(self._file), "--resolve", "members.test:127.0.0.1")
        self.running[name] = await asyncio.create_subprocess_exec(
            *command("crawl", f"{self._base}/", *flags, *session),
            cwd=self._folder / name,
            env=self._environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    def pages(self, name: str) -> list[PageRecord]:
        records = records_of(self._folder / name / "pages.jsonl")
        return [one for one in records if isinstance(one, PageRecord) and "id=member" in one.body]

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        await process.wait()

    def user_of(self, name: str) -> str:
        """The account by which a worker has fetched; it must be the only one."""
        users = {user for page in self.pages(name) for user in re.findall(r"id=member>(\w+)<", page.body)}
        assert len(users) <= 1, f"{name} used {users}"
        return min(users, default="")

    async def end(self) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def crew(folder: Path, base: str, frontier: str) -> AsyncIterator[Crew]:
    found = Crew(folder, base, frontier)
    try:
        yield found
    finally:
        await found.end()


def visit_of(page: PageRecord) -> int:
    """The place of a page among all that the site gave out. Its record may be later: of a worker that was stopped."""
    found = re.search(r"id=visit>(\d+)<", page.body)
    assert found is not None
    return int(found[1])


async def test_every_page_comes_once_and_logged_in_and_no_account_is_shared(tmp_path: Path) -> None:
    """One worker is killed, and one is stopped until another has its account, and goes on then."""
    names = ("one", "two", "three", "four")
    with standalone(tcp=True) as server:
        async with serve(WebSpec(members=PAGES)) as web:
            site = web.extra_site_of("members.test")
            assert isinstance(site, Members)
            async with crew(tmp_path, web.site.base("members.test"), server.address) as workers:

                def users(among: Iterable[str]) -> list[str]:
                    return sorted(filter(None, map(workers.user_of, among)))

                for name in names:
                    await workers.start(name)
                await asyncio.to_thread(
                    wait_until, lambda: users(names) == ["alice", "bob"], "both accounts to be used"
                )
                killed, stopped = (name for name in names if workers.user_of(name))
                others = [name for name in names if name not in (killed, stopped)]
                await workers.kill(killed)
                workers.running[stopped].send_signal(signal.SIGSTOP)
                await asyncio.to_thread(wait_until, lambda: users(others) == ["alice", "bob"], "others to take over")
                workers.running[stopped].send_signal(signal.SIGCONT)
                async with asyncio.timeout(60):
                    assert [await process.wait() for process in workers.running.values()] == [0, 0, 0]
                pages = sorted((visit_of(page), name) for name in names for page in workers.pages(name))
                used_by = {name: workers.user_of(name) for name in names}
                stored = Counter(page.url for name in others for page in workers.pages(name))
                stored_at_all = {page.url for name in names for page in workers.pages(name)}
    base = web.site.base("members.test")
    assert stored_at_all == {f"{base}/{f'p/{number}' if number else ''}" for number in range(PAGES)}
    assert set(stored.values()) == {1}
    assert site.logouts == 0
    for user in ACCOUNTS:
        used = [name for _, name in pages if used_by[name] == user]
        turns = [name for at, name in enumerate(used) if at == 0 or used[at - 1] != name]
        assert len(turns) == 2, f"{user} went back and forth: {turns}"
    visits = Counter(visit.path for visit in site.visits)
    assert sum(count - 1 for count in visits.values()) <= 2 * IN_FLIGHT, "more than the two can have had in flight"

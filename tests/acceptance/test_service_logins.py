"""Two crawls of a service by one login with two accounts, three workers, a kill: each page once in each crawl and
logged in, no account in two workers, no link that logs out followed, no secret in the frontier."""

import asyncio
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.spec import WebSpec
from gossamer.model.record import PageRecord
from gossamer_fakeweb.members import ACCOUNTS, Members
from tests.servers.crawling import command, gossamer, records_of
from tests.servers.service import talking, up
from tests.servers.valkey import wait_until

PAGES = 70
WORKERS = ("one", "two", "three")
SESSION = """
accounts:
  alice: {{user: alice, password: {{env: ALICE}}}}
  bob: {{user: bob, password: {{env: BOB}}}}
login:
  form: {base}/login
  fields: {{user: user, password: password}}
never_follow: ["/p/{forbidden}$"]
"""
FORBIDDEN = PAGES - 1


def pages_of(folder: Path, name: str) -> list[PageRecord]:
    """The pages that a worker has written."""
    records = records_of(folder / name / "pages.jsonl")
    return [one for one in records if isinstance(one, PageRecord) and one.success]


def user_of(folder: Path, name: str) -> str:
    """The account by which a worker has fetched; it must be the only one."""
    users = {user for page in pages_of(folder, name) for user in re.findall(r"id=member>(\w+)<", page.body)}
    assert len(users) <= 1, f"{name} used {users}"
    return min(users, default="")


def start(folder: Path, name: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    (folder / name).mkdir()
    flags = ("--data-dir", str(folder / ".gossamer"), "-o", "pages.jsonl", "--resolve", "members.test:127.0.0.1")
    return subprocess.Popen(
        command("worker", *flags, "--processes", "1", "-q"), cwd=folder / name, env={**os.environ, **environment}
    )


@pytest.mark.timeout(120)
async def test_crawls_share_a_login_and_no_account_is_in_two_workers(tmp_path: Path) -> None:
    environment = {
        "ALICE": ACCOUNTS["alice"],
        "BOB": ACCOUNTS["bob"],
        "GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode(),
        "GOSSAMER_WORKER__HEARTBEAT": "1",
    }
    async with serve(WebSpec(members=PAGES)) as web:
        site = web.extra_site_of("members.test")
        assert isinstance(site, Members)
        base = web.site.base("members.test")
        (tmp_path / "shop.yaml").write_text(SESSION.format(base=base, forbidden=FORBIDDEN))
        with up(tmp_path, "--allow-network", "127.0.0.0/8", command="serve", environment=environment) as service:
            put = await asyncio.to_thread(gossamer, "logins", "put", "shop", "shop.yaml", cwd=tmp_path, env=environment)
            assert put.returncode == 0, put.stderr

            async def domains(*words: str) -> None:
                changed = await asyncio.to_thread(gossamer, "domains", *words, cwd=tmp_path, env=environment)
                assert changed.returncode == 0, changed.stderr

            workers = {name: start(tmp_path, name, environment) for name in WORKERS}
            try:
                async with talking(service) as talk:
                    # Slow until the account has gone from the killed worker to the third one.
                    await domains("set", "members.test", "--hits", "5", "--window", "1")
                    fields = {"appid": "testapp", "url": f"{base}/", "maxdepth": 50, "rate": "40/1"}
                    await talk.say(*({**fields, "crawlid": name, "login": "shop"} for name in ("red", "blue")))

                    def users(*among: str) -> list[str]:
                        return sorted(filter(None, (user_of(tmp_path, name) for name in among)))

                    await asyncio.to_thread(
                        wait_until, lambda: users(*WORKERS) == ["alice", "bob"], "both accounts to be used"
                    )
                    killed = next(name for name in WORKERS if user_of(tmp_path, name))
                    workers[killed].kill()
                    others = [name for name in WORKERS if name != killed]
                    await asyncio.to_thread(
                        wait_until, lambda: users(*others) == ["alice", "bob"], "the third worker to take over"
                    )
                    await domains("remove", "members.test")
                    for crawl in ("red", "blue"):
                        await talk.event("finished", crawl)
            finally:
                for worker in workers.values():
                    worker.terminate()
                codes = {name: worker.wait(60) for name, worker in workers.items()}
            stored = b"".join(path.read_bytes() for path in (tmp_path / ".gossamer").rglob("*") if path.is_file())
    assert [codes[name] for name in others] == [0, 0]
    expected = {f"{base}/{f'p/{number}' if number else ''}" for number in range(PAGES) if number != FORBIDDEN}
    for crawl in ("red", "blue"):
        pages = {name: [page for page in pages_of(tmp_path, name) if page.crawlid == crawl] for name in WORKERS}
        assert {page.url for found in pages.values() for page in found} == expected
        assert all("id=member" in page.body for found in pages.values() for page in found)
        assert set(Counter(page.url for name in others for page in pages[name]).values()) == {1}
    assert site.logouts == 0
    for secret in (*ACCOUNTS.values(), *site.session_names):
        assert secret.encode() not in stored, secret

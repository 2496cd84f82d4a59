"""Crawls of a site for members: every page once and logged in, secrets nowhere, and refusals that say the way out."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gossamer.errors import BadInput, LoginFailed
from gossamer.fakeweb import FakeWeb
from gossamer.fakeweb.server import Server
from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.spec import WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, Terms
from gossamer.model.messages.requests import CrawlRequest
from gossamer.wiring.worker import open_worker
from gossamer_fakeweb.members import ACCOUNTS, Members
from tests.servers.crawling import Crawled, crawl, gossamer, resolving, settings_for
from tests.servers.crawls import info, open_crawl
from tests.servers.heard import listening
from tests.servers.valkey import Server as ValkeyServer
from tests.servers.valkey import standalone

PAGES = 120
SECRETS = (*ACCOUNTS.values(), "twice")


@asynccontextmanager
async def members(pages: int = PAGES) -> AsyncIterator[tuple[Server, Members]]:
    """Serve the site."""
    async with serve(WebSpec(members=pages)) as web:
        site = web.extra_site_of("members.test")
        assert isinstance(site, Members)
        yield web, site


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    for user, password in {**ACCOUNTS, "carol": "twice"}.items():
        monkeypatch.setenv(f"PASSWORD_OF_{user.upper()}", password)


def session_file(folder: Path, web: Server, *users: str, path: str = "/login", **more: object) -> Path:
    """Write a session file for accounts of the site."""
    document: dict[str, object] = {
        "accounts": {user: {"user": user, "password": {"env": f"PASSWORD_OF_{user.upper()}"}} for user in users},
        "login": {
            "form": f"{web.site.base('members.test')}{path}", "fields": {"user": "user", "password": "password"},
        },
        **more,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    file = folder / "members.yaml"
    file.write_text(json.dumps(document))
    return file


async def crawl_members(folder: Path, web: Server, session: str | Path, **changed: object) -> Crawled:
    url = f"{web.site.base('members.test')}/"
    return await crawl(folder, [url], ["members.test:127.0.0.1"], crawl__session=str(session), **changed)


def pages_of(crawled: Crawled) -> Counter[str]:
    """The pages behind the login, by their paths."""
    assert all(page.success for page in crawled.pages), [page.reason for page in crawled.pages if not page.success]
    return Counter("/" + page.url.split("/", 3)[3] for page in crawled.pages if "id=member" in page.body)


EXPECTED = Counter(["/", *(f"/p/{number}" for number in range(1, PAGES))])


async def test_each_page_comes_once_and_logged_in_although_sessions_end(tmp_path: Path) -> None:
    async with members() as (web, site):
        crawled = await crawl_members(tmp_path, web, session_file(tmp_path, web, "alice"))
    assert pages_of(crawled) == EXPECTED
    assert len(site.logins) >= 3
    assert site.logouts == 0


def all_bytes(folder: Path) -> bytes:
    """The contents of all files in a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_no_secret_and_no_cookie_is_in_anything_that_the_crawl_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET_KEYS", Fernet.generate_key().decode())
    async with members(10) as (web, site):
        file = session_file(tmp_path, web, "alice")
        await crawl_members(
            tmp_path,
            web,
            file,
            crawl__output=(str(tmp_path / "pages.jsonl"), str(tmp_path / "pages.warc")),
            records__secrets="keep",
        )
    left = all_bytes(tmp_path) + caplog.text.encode()
    assert b"id=member" in left
    assert site.session_names
    for secret in (*SECRETS, *site.session_names, *site.visitors):
        assert secret.encode() not in left, secret


@pytest.mark.parametrize(
    ("user", "path", "words"),
    [
        ("bob", "/login", "shows the form again after the login of bob. Check user and password"),
        ("carol", "/login", "asks for a second factor"),
        ("alice", "/login?captcha", "asks for a captcha"),
        ("alice", "/help", "has no form with a password"),
    ],
)
async def test_a_login_that_fails_ends_the_crawl_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, path: str, words: str
) -> None:
    monkeypatch.setenv("PASSWORD_OF_BOB", "wrong")
    async with members(10) as (web, site):
        with pytest.raises(LoginFailed, match=words) as raised:
            await crawl_members(tmp_path, web, session_file(tmp_path, web, user, path=path))
    assert not site.visits
    for_persons = "factor" in words or "captcha" in words
    assert ("export the cookies of members.test" in str(raised.value)) == for_persons
    assert not any(secret in str(raised.value) for secret in SECRETS)


async def test_a_crawl_goes_on_after_the_login_was_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with members(10) as (web, _):
        file = session_file(tmp_path, web, "alice")
        with monkeypatch.context() as wrong:
            wrong.setenv("PASSWORD_OF_ALICE", "wrong")
            with pytest.raises(LoginFailed):
                await crawl_members(tmp_path, web, file)
        crawled = await crawl_members(tmp_path, web, file)
    assert len(pages_of(crawled)) == 10


async def test_a_login_that_gets_no_answer_is_tried_again_like_a_page(tmp_path: Path) -> None:
    async with members(10) as (web, site):
        site.busy = 2
        crawled = await crawl_members(tmp_path, web, session_file(tmp_path, web, "alice"))
    assert len(pages_of(crawled)) == 10
    assert site.logins == ["alice"]


async def test_a_page_that_the_account_may_not_see_costs_one_login_and_fails(tmp_path: Path) -> None:
    async with members(10) as (web, site):
        site.forbidden = "/p/7"
        crawled = await crawl_members(tmp_path, web, session_file(tmp_path, web, "alice"))
    [failed] = [page for page in crawled.pages if not page.success]
    assert (failed.url.rpartition("/")[2], failed.reason) == ("7", "logged_out")
    assert len(crawled.pages) == 10
    assert site.logins == ["alice", "alice"]


@pytest.mark.parametrize("has_key", [True, False])
async def test_cookies_that_a_person_exports_begin_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    """Also where cookies are stored: the copy, which is read each second, has them."""
    if has_key:
        monkeypatch.setenv("GOSSAMER_SECRET_KEYS", Fernet.generate_key().decode())
    async with members(10) as (web, site):
        [name] = site.begin_sessions("alice")
        (tmp_path / "cookies.txt").write_text(f"members.test\tFALSE\t/\tFALSE\t0\tsid\t{name}\n")
        file = tmp_path / "members.yaml"
        file.write_text("site: members.test\naccounts:\n  me: {cookies: cookies.txt}\n")
        crawled = await crawl_members(tmp_path, web, file, crawl__rate="6/1" if has_key else "100/1")
    assert len(pages_of(crawled)) == 10
    assert site.logins == []


async def test_cookies_alone_are_kept_by_a_crawl_that_asks_for_them(tmp_path: Path) -> None:
    async with members(10) as (web, site):
        site.greets = True  # the first page sets a cookie that the others need
        crawled = await crawl_members(tmp_path, web, "cookies")
    assert len(pages_of(crawled)) == 10


LOGINS = {
    "token": {
        "request": "{base}/token",
        "fields": {"name": "user", "password": "password"},
        "token": "data.token",
        "header": "X-Token: T {token}",
    },
    "basic": {"basic": True},
    "spider": {"spider": True},
}

CLUB = """
from gossamer import Spider

class Club(Spider):
    def parse(self, page):
        for link in page.links:
            yield page.follow(link)

    async def login(self, session):
        BODY
"""
BY_FORM = """page = await session.get("BASE/login")
        answer = await session.submit(page, {name: session.values[name] for name in ("user", "password")})
        if answer.css("input[type=password]"):
            session.fail("the form came again")
"""
BY_JSON = """values = {"name": session.account, "password": session.values["password"]}
        answer = await session.post("BASE/token", json=values)
        session.headers["X-Token"] = "T " + answer.json()["data"]["token"]
"""


def club(folder: Path, base: str, body: str) -> str:
    """Write a spider that logs in."""
    (folder / "club.py").write_text(CLUB.replace("BODY", body).replace("BASE", base))
    return str(folder / "club.py")


def spider_session(folder: Path, web: Server, user: str = "alice") -> Path:
    return session_file(folder, web, user, site="members.test", login=LOGINS["spider"])


async def test_a_spider_logs_in(tmp_path: Path) -> None:
    """Again where the session has ended. It keeps its links and items."""
    async with members() as (web, site):
        spider = club(tmp_path, web.site.base("members.test"), BY_FORM)
        crawled = await crawl_members(tmp_path, web, spider_session(tmp_path, web), crawl__spider=spider)
    assert pages_of(crawled) == EXPECTED
    assert len(site.logins) >= 3
    assert site.logouts == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (BY_FORM, "The login of alice failed: the form came again"),
        ('raise ValueError(session.values["password"])', "failed for alice: ValueError: <redacted>"),
        ('session.headers["a b"] = "c"', "not a valid header name"),
        ('await session.get("http://other.test/")', "leads to other.test, and secrets stay on members.test"),
        ('await session.get("ftp://members.test/")', "Only http and https"),
        ('await session.post("BASE/login")', "name either fields or json"),
        ('await session.submit(await session.get("BASE/help"), {})', "/help has no form with a password"),
    ],
)
async def test_a_login_of_a_spider_that_fails_ends_the_crawl_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.setenv("PASSWORD_OF_ALICE", "wrong")
    async with members(10) as (web, site):
        spider = club(tmp_path, web.site.base("members.test"), body)
        with pytest.raises(LoginFailed) as raised:
            await crawl_members(tmp_path, web, spider_session(tmp_path, web), crawl__spider=spider)
    assert words in str(raised.value)
    assert "wrong" not in str(raised.value)
    assert not site.visits


async def test_a_spider_without_a_login_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    async with members(10) as (web, site):
        words = (
            r"true stands for .* link has no method login\. .* --spider shop.py.* fetch .* login: \{spider: shop.py\}"
        )
        with pytest.raises(BadInput, match=words):
            await crawl_members(tmp_path, web, spider_session(tmp_path, web))
        missing = session_file(tmp_path, web, "alice", site="members.test", login={"spider": "none.py"})
        with pytest.raises(BadInput, match=f"login: spider: {tmp_path}/none.py cannot be read"):
            await crawl_members(tmp_path, web, missing)
    assert not site.visits


async def test_a_session_file_names_a_spider_beside_it(tmp_path: Path) -> None:
    async with members(3) as (web, site):
        base = web.site.base("members.test")
        (tmp_path / "files").mkdir()
        club(tmp_path / "files", base, BY_FORM)
        file = session_file(tmp_path / "files", web, "alice", site="members.test", login={"spider": "club.py:Club"})
        words = ("fetch", "--session", str(file), "--resolve", "members.test:127.0.0.1", f"{base}/p/1")
        shown = await asyncio.to_thread(gossamer, *words, cwd=tmp_path)
        assert "response   200" in shown.stdout, shown.stderr
        assert site.logins == ["alice"]
        crawled = await crawl_members(tmp_path, web, file)
    assert len(pages_of(crawled)) == 3
    assert site.logins == ["alice", "alice"]


@pytest.mark.parametrize(("kind", "header", "value"), [
    ("token", "x-token", "T abc"), ("spider", "x-token", "T abc"),
    ("basic", "authorization", "Basic YWxpY2U6d29uZGVybGFuZA=="),
])  # fmt: skip
async def test_the_header_of_a_login_goes_to_its_site_only(tmp_path: Path, kind: str, header: str, value: str) -> None:
    bodies = {"/token": b'{"data": {"token": "abc"}}'}
    async with listening(bodies=bodies) as (port, heard):
        base = f"http://www.a.test:{port}"
        bodies["/"] = f'<a href="/in"></a><a href="http://b.test:{port}/out"></a>'.encode()
        document = {
            "site": "a.test",
            "accounts": {"alice": {"user": "alice", "password": {"env": "PASSWORD_OF_ALICE"}}},
            "login": json.loads(json.dumps(LOGINS[kind]).replace("{base}", base)),
        }
        file = tmp_path / "session.json"
        file.write_text(json.dumps(document))
        spider = {"crawl__spider": club(tmp_path, base, BY_JSON)} if kind == "spider" else {}
        crawled = await crawl(
            tmp_path,
            [f"{base}/"],
            ["*:127.0.0.1"],
            crawl__session=str(file),
            **spider,
            crawl__scope="any",
            records__secrets="keep",
        )
    got = {f"{one.header('host')}".partition(":")[0] + one.head.split(" ", 2)[1]: one for one in heard}
    assert {place: one.header(header) for place, one in got.items() if place != "www.a.test/token"} == {
        "www.a.test/": value, "www.a.test/in": value, "b.test/out": None,
    }  # fmt: skip
    assert all(page.success for page in crawled.pages)
    assert value.encode() not in all_bytes(tmp_path)
    if kind != "basic":
        assert json.loads(got["www.a.test/token"].body) == {"name": "alice", "password": "wonderland"}


REFUSED = b"401 Unauthorized\r\nWWW-Authenticate: Basic realm=members"


@pytest.mark.parametrize(
    ("refused", "sent", "words"),
    [
        (("/", "/p/1", "/p/2", "/p/3"), 1, "a.test answers alice with 401 Unauthorized. Check user and password."),
        (("/p/1", "/p/2", "/p/3", "/p/4"), 4, "401 Unauthorized, 3 pages in a row. Check user and password. If the"),
        (("/p/2",), 5, ""),
    ],
)
async def test_a_wrong_password_of_basic_auth_is_sent_as_seldom_as_that_of_a_form(
    tmp_path: Path, refused: tuple[str, ...], sent: int, words: str
) -> None:
    """Where the first page is for all, some more times; a page that the account may not see ends nothing."""
    paths = ("/", *(f"/p/{number}" for number in range(1, 5)))
    bodies = {path: f"<h1>Page {path}</h1>".encode() for path in paths}
    async with listening(dict.fromkeys(refused, REFUSED), bodies) as (port, heard):
        file = tmp_path / "session.json"
        account = {"user": "alice", "password": {"env": "PASSWORD_OF_ALICE"}}
        file.write_text(json.dumps({"site": "a.test", "accounts": {"alice": account}, "login": LOGINS["basic"]}))
        urls = [f"http://a.test:{port}{path}" for path in paths]

        async def crawled() -> Crawled:
            options = {"crawl__session": str(file), "crawl__domain_concurrency": 1}
            return await crawl(tmp_path, urls, ["*:127.0.0.1"], **options)

        if words:
            with pytest.raises(LoginFailed, match=re.escape(words)):
                await crawled()
        else:
            assert [page.reason for page in (await crawled()).pages if not page.success] == ["logged_out"]
        assert len(heard) == sent
        words_of_fetch = ("fetch", "--session", str(file), "--resolve", "*:127.0.0.1", f"http://a.test:{port}/p/2")
        fetched = await asyncio.to_thread(gossamer, *words_of_fetch, cwd=tmp_path)
    assert "answers alice with 401 Unauthorized. Check user and password." in fetched.stderr


async def test_fetch_names_cookies_that_are_not_valid_any_more(tmp_path: Path) -> None:
    async with members(3) as (web, _):
        (tmp_path / "cookies.txt").write_text("members.test\tFALSE\t/\tFALSE\t0\tsid\told\n")
        (tmp_path / "me.yaml").write_text("site: members.test\naccounts:\n  me: {cookies: cookies.txt}\n")
        words = ("fetch", "--session", "me.yaml", "--resolve", "*.test:127.0.0.1", web.site.base("members.test"))
        fetched = await asyncio.to_thread(gossamer, *words, cwd=tmp_path)
    assert fetched.returncode == 1
    assert "The session of me at members.test has ended" in fetched.stderr
    assert "export its cookies again." in fetched.stderr


async def test_fetch_tries_a_session_file(tmp_path: Path) -> None:
    async with members(10) as (web, site):
        file = session_file(tmp_path, web, "alice")
        url, name = f"{web.site.base('members.test')}/p/7", "members.test:127.0.0.1"
        shown = await asyncio.to_thread(gossamer, "fetch", "--session", str(file), "--resolve", name, url, cwd=tmp_path)
        visitor = await asyncio.to_thread(
            gossamer, "fetch", "--session", "cookies", "--resolve", name, url, cwd=tmp_path
        )
        wrong = await asyncio.to_thread(
            gossamer, "fetch", "--session", str(file), "--resolve", name, url, cwd=tmp_path,
            env={"PASSWORD_OF_ALICE": "wrong"},
        )  # fmt: skip
    assert wrong.returncode == 1
    assert "Check user and password" in wrong.stderr
    assert shown.returncode == 0, shown.stderr
    assert "response   200" in shown.stdout
    assert "/logout   deny_regex: never followed in a session: it may log out" in shown.stdout
    assert "session    logged in to members.test as alice\n" in shown.stdout
    assert "session    " not in visitor.stdout
    assert site.logins == ["alice"]
    assert "/login?next=/p/7" in visitor.stdout
    for secret in (*SECRETS, *site.session_names, *site.visitors):
        assert secret not in shown.stdout + shown.stderr + visitor.stdout


@pytest.mark.parametrize("command", ["fetch", "crawl"])
async def test_a_login_for_another_site_is_refused_before_anything_is_fetched(tmp_path: Path, command: str) -> None:
    async with members(3) as (web, site):
        file = session_file(tmp_path, web, "alice")
        options = ("--session", str(file), "--resolve", "*.test:127.0.0.1")
        url = web.site.base("members.test").replace("members", "www.other")
        done = await asyncio.to_thread(gossamer, command, *options, f"{url}/", cwd=tmp_path)
    assert done.returncode == 2
    assert f"--session: it logs in to members.test, and {url}/ is at other.test." in done.stderr
    assert not site.visitors


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with standalone(tcp=True) as running:
        yield running


def users_of(crawled: Crawled) -> set[str]:
    """The accounts by which a worker has fetched pages."""
    return {user for page in crawled.pages for user in re.findall(r"id=member>(\w+)<", page.body)}


async def test_each_account_is_used_by_one_worker_at_a_time(tmp_path: Path, server: ValkeyServer) -> None:
    async with members() as (web, site):
        file = session_file(tmp_path, web, "alice", "bob")
        shared = {"crawl_id": "shared", "frontier": server.address, "crawl__rate": "80/1"}
        crawls = await asyncio.gather(
            *(
                crawl_members(tmp_path / name, web, file, data_dir=tmp_path / name / "data", **shared)
                for name in ("one", "two", "three")
                if (tmp_path / name).mkdir() is None
            )
        )
    assert sum(map(pages_of, crawls), Counter()) == EXPECTED
    used = [user for crawled in crawls for user in users_of(crawled)]
    assert len(used) == len(set(used))
    assert all(len(users_of(crawled)) <= 1 for crawled in crawls)
    assert site.logouts == 0


async def test_with_a_budget_for_each_account_the_policy_of_the_site_counts_by_address(
    tmp_path: Path, server: ValkeyServer
) -> None:
    async with members(10) as (web, _):
        file = session_file(tmp_path, web, "alice", budget="account")
        crawled = await crawl_members(tmp_path, web, file, crawl_id="budget", frontier=server.address)
    frontier = await ValkeyFrontier.connect(server.address)
    try:
        assert (await frontier.domain_policy("members.test")).scope is BudgetScope.IP
        await frontier.set_domain_policy("members.test", None)
    finally:
        await frontier.close()
    assert len(pages_of(crawled)) == 10


@pytest.mark.parametrize(
    ("flags", "environment", "told"),
    [
        (["--session", "none.yaml"], {}, "--session: cannot read none.yaml"),
        (["--session", "cookies"], {"GOSSAMER_SECRET_KEYS": "short"}, "a key for secrets is not valid"),
        (["--session", "cookies"], {"GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode()}, "Install the extra"),
        (["--session", "cookies"], {"GOSSAMER_SECRET_KEYS_FILE": "keys"}, "the file keys has no key for secrets"),
        (["--session", "cookies"], {"GOSSAMER_SECRET_KEYS_FILE": "keys"}, "Install the extra session: "),
    ],
)
def test_what_a_session_lacks_is_named_before_anything_is_fetched(
    flags: list[str], environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "keys").touch()
    if "Install" in told:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cryptography'] = None\n")
        environment = environment | {"PYTHONPATH": str(tmp_path)}
    done = gossamer("crawl", "http://127.0.0.1:9/", "--allow-private", *flags, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_crawl_without_a_session_loads_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('gossamer.session', 'gossamer.wiring.sessions', 'cryptography'):\n"
        "    sys.modules[name] = None\n"
    )
    with FakeWeb.start(WebSpec(pages=3)) as web:
        done = gossamer(
            "crawl", web.seeds()[0], *resolving(web.resolve_overrides()), "--rate", "100/1",
            cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 pages" in done.stdout


@pytest.mark.parametrize("has_key", [True, False])
async def test_a_request_to_a_service_asks_for_cookies_and_workers_share_them_by_a_key(
    tmp_path: Path, server: ValkeyServer, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    if has_key:
        monkeypatch.setenv("GOSSAMER_SECRET_KEYS", Fernet.generate_key().decode())
    settings = settings_for(tmp_path, ["members.test:127.0.0.1"])
    crawl_id = CrawlId("app", f"cookies-{has_key}")
    frontier = await ValkeyFrontier.connect(server.address)
    async with members(10) as (web, site):
        site.greets = True
        for path in ("/", "/p/3"):  # each is fetched by a worker of its own
            url = f"{web.site.base('members.test')}{path}"
            request = CrawlRequest(appid="app", crawlid=crawl_id.crawlid, url=url, session="cookies")
            terms = request.terms(domain_max_pages=None, domain_max_pending=None)
            run = await open_crawl(frontier, [url], terms, crawl=Crawl(id=crawl_id))
            async with open_worker(settings, frontier, pool="shared", run=run) as worker:
                await asyncio.wait_for(worker.run(), 30)
    keys = await frontier.connection.command("gossamer:{0}:x", "KEYS", "gossamer:*:jar:*")
    lives = [await frontier.connection.command(key.decode(), "PTTL", key) for key in keys]
    values = [await frontier.connection.command(key.decode(), "HGETALL", key) for key in keys]
    await frontier.close()
    assert [visit.path for visit in site.visits] == (["/", "/p/3"] if has_key else ["/"])
    mine = [at for at, key in enumerate(keys) if crawl_id.token.encode() in key]
    assert len(mine) == has_key
    for at in mine:
        assert 0 < lives[at] <= 86_400_000
        assert site.session_names[0].encode() not in b"".join(values[at])


async def test_a_worker_without_the_session_file_ends_and_says_so(tmp_path: Path, server: ValkeyServer) -> None:
    settings = settings_for(tmp_path, ["members.test:127.0.0.1"])
    frontier = await ValkeyFrontier.connect(server.address)
    crawl_id = CrawlId("app", "elsewhere")
    async with members(10) as (web, site):
        crawl_of_command = Crawl(id=crawl_id, pool="elsewhere")
        run = await open_crawl(
            frontier, [f"{web.site.base('members.test')}/"], Terms(session="login"), crawl=crawl_of_command
        )
        with pytest.raises(LoginFailed, match="needs a login"):
            async with open_worker(settings, frontier, pool="elsewhere", run=run) as worker:
                await asyncio.wait_for(worker.run(), 30)
        left = await info(frontier, crawl_id)
    await frontier.close()
    assert (left.total().queued, left.total().fetched) == (1, 0), "the request waits for a worker that can log in"
    assert not site.visits

"""Who crawls: the User-Agent header with and without a contact, the line that recommends one, and -v."""

import json
from pathlib import Path

import pytest

from gossamer.crawling.seeds import has_public_host
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.settings import load
from gossamer.settings.fetch import DEFAULT_USER_AGENT
from tests.servers.crawling import gossamer, resolving

ADVICE = "--contact with a URL or an e-mail address"


@pytest.mark.parametrize(
    ("options", "agent"),
    [
        ((), DEFAULT_USER_AGENT),
        (("--contact", "https://example.org/bot"), f"{DEFAULT_USER_AGENT} (+https://example.org/bot)"),
        (("--contact", "me@example.org", "--user-agent", "my/1"), "my/1 (+mailto:me@example.org)"),
    ],
)
def test_the_user_agent_has_the_contact(options: tuple[str, ...], agent: str, tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=2)) as web:
        done = gossamer(
            "crawl",
            *web.seeds(),
            *resolving(web.resolve_overrides()),
            "--rate",
            "99/1",
            "-o",
            "p.jsonl",
            *options,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    assert ADVICE not in done.stderr  # a host that --resolve names is the user's own
    records = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert all(record["request_headers"]["User-Agent"] == [agent] for record in records)


def test_fetch_shows_the_user_agent_that_was_sent(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        flags = ["fetch", *web.seeds(), *resolving(web.resolve_overrides()), "--contact", "me@example.org"]
        agent = f"{DEFAULT_USER_AGENT} (+mailto:me@example.org)"
        assert f"  agent      {agent}\n" in gossamer(*flags, cwd=tmp_path).stdout
        assert json.loads(gossamer(*flags, "--json", cwd=tmp_path).stdout)["user_agent"] == agent


def test_a_crawl_resumes_when_a_contact_is_added(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=2)) as web:
        flags = [*web.seeds(), *resolving(web.resolve_overrides()), "--rate", "99/1"]
        gossamer("crawl", *flags, cwd=tmp_path)
        again = gossamer("crawl", *flags, "--contact", "me@example.org", cwd=tmp_path)
    assert "already finished" in again.stdout


@pytest.mark.parametrize(
    ("seeds", "private", "options", "public"),
    [
        (["https://example.com/"], (), {}, True),
        (["http://localhost:8000/"], ("localhost",), {}, False),
        (["http://127.0.0.1/"], ("127.0.0.1",), {}, False),
        (["http://shop.test/"], (), {}, False),
        (["http://a.example.com/"], (), {"fetch.resolve": {"*.example.com": "127.0.0.1"}}, False),
        (["http://127.0.0.1/", "https://example.com/"], ("127.0.0.1",), {}, True),
    ],
)
def test_public_hosts_are_told_from_the_users_own(
    seeds: list[str], private: tuple[str, ...], options: dict[str, object], public: bool
) -> None:
    assert has_public_host(load(options), seeds, private) is public


def test_a_crawl_of_a_public_site_recommends_a_contact_in_one_line(tmp_path: Path) -> None:
    """The frontier is away, so nothing is fetched."""
    name = "http://gossamer.example.com/"  # no such host
    flags = ("crawl", name, "--ignore-robots", "--retries", "0", "--frontier", f"unix://{tmp_path}/none.sock")
    without, with_contact = gossamer(*flags, cwd=tmp_path), gossamer(*flags, "--contact", "me@a.org", cwd=tmp_path)
    assert without.returncode == with_contact.returncode == 4
    assert sum(ADVICE in line for line in without.stderr.splitlines()) == 1
    assert ADVICE not in with_contact.stderr


def test_verbose_logs_what_happens(tmp_path: Path) -> None:
    flags = ("crawl", "http://a.test:1/", "--resolve", "a.test:127.0.0.1", "--retries", "0", "--ignore-robots", "-q")
    quiet = gossamer(*flags, "--crawl-id", "a", cwd=tmp_path).stderr
    verbose = gossamer(*flags, "--crawl-id", "b", "-v", cwd=tmp_path).stderr
    assert " INFO " not in quiet
    assert " INFO gossamer.worker: worker_started" in verbose

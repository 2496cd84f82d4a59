"""Events are written with what they report, and each is sent until it is accepted or dead."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import Connection, select, update

from gossamer.errors import BadInput
from gossamer_platform.delivery.addresses import WebhookAddresses, check_url
from gossamer_platform.delivery.sending import WebhookSender, new_secret, signature_of
from gossamer_platform.manager.variables import ProjectVariables
from gossamer_platform.manager.vault import SecretVault
from gossamer_platform.manager.watching import report_slow_jobs
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.schedules.firing import fire_due
from gossamer_platform.state import events, jobs, nodes, projects, schedules, webhooks
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.events import EventKind
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import deliveries
from gossamer_platform.state.tables import jobs as job_table
from tests.servers.receiver import Receiver, receiver

_VAULT = SecretVault([Fernet.generate_key().decode()])
_SECRET = new_secret()
_LOCAL = WebhookAddresses(["127.0.0.0/8", "::1/128"])


@pytest.fixture
def received() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def _hook(connection: Connection, url: str = "http://localhost:1/", *, project: str = "shop", **columns: Any) -> Any:
    wanted = [kind.value for kind in EventKind]
    secret = _VAULT.encrypt(project, "webhook:x", _SECRET)
    values = {"url": url, "events": wanted, "slow_factor": 2.0, "secret_name": "webhook:x", "secret": secret}
    return webhooks.add_webhook(connection, project, {**values, **columns})


def _add_project(connection: Connection, name: str = "shop") -> int:
    number = projects.add_version(connection, name, "1", digest="d", file=f"{name}/1.egg")
    projects.take_listing(connection, "node")
    assert projects.record_listing(connection, number, incarnation="node", spiders=["a"], fault="")
    return number


def _run(connection: Connection, name: str, end: AttemptEnd, *, seconds: float = 1.0, **fields: Any) -> int:
    """A job that has ended so."""
    number = jobs.add_job(connection, NewJob("shop", "a", name, **fields))
    [row] = take_jobs(connection, JobTaker("n", name, 100), free=1)
    jobs.record_start(connection, number, row.attempt, pid=1)
    began = update(job_table).where(job_table.c.id == number)
    connection.execute(began.values(started_at=job_table.c.started_at - seconds))
    jobs.record_end(connection, number, row.attempt, end)
    return number


def _good(items: int) -> AttemptEnd:
    return AttemptEnd(exit_code=0, finish_reason="finished", stats={"item_scraped_count": items})


def _events(connection: Connection) -> list[Any]:
    return list(connection.execute(select(deliveries).order_by(deliveries.c.id)))


async def test_a_failed_job_is_reported_once_and_a_retry_is_not(database: StateDatabase) -> None:
    def work(connection: Connection) -> Any:
        _add_project(connection)
        _hook(connection)
        _hook(connection, project="")
        _hook(connection, project="other")
        _hook(connection, events=["node.lost"])
        number = _run(connection, "x", AttemptEnd(exit_code=3), policy=JobPolicy(retries=1, retry_seconds=0))
        assert _events(connection) == []
        take_jobs(connection, JobTaker("n", "again", 100), free=1)
        jobs.record_end(connection, number, 2, AttemptEnd(signal=9))
        first, second = _events(connection)
        assert first.event_id == second.event_id
        return first.event, first.body["project"], first.body["data"]["job"]["reason"]

    assert await database.write(work) == ("job.failed", "shop", "signal: 9")


async def test_a_change_that_is_rolled_back_reports_nothing(database: StateDatabase) -> None:
    def work(connection: Connection) -> None:
        _add_project(connection)
        _hook(connection)
        _run(connection, "x", AttemptEnd(exit_code=3))
        raise KeyError

    with pytest.raises(KeyError):
        await database.write(work)
    assert await database.read(_events) == []


async def test_few_items_and_slow_jobs_are_compared_with_earlier_good_ones(database: StateDatabase) -> None:
    def work(connection: Connection) -> Any:
        _add_project(connection)
        _hook(connection)
        for number in range(3):
            _run(connection, f"usual{number}", _good(100), seconds=100)
        _run(connection, "failed", AttemptEnd(exit_code=1), seconds=9000)
        _run(connection, "fine", _good(60), seconds=190)
        _run(connection, "few", _good(40), seconds=100)
        _run(connection, "none", _good(0), seconds=100)
        _run(connection, "slow", _good(100), seconds=250)
        return [(row.event, row.body["data"]["job"]["name"]) for row in _events(connection)]

    assert await database.write(work) == [
        ("job.failed", "failed"),
        ("job.few_items", "few"),
        ("job.few_items", "none"),
        ("job.slow", "slow"),
    ]


async def test_a_slow_job_is_reported_once_while_it_runs(database: StateDatabase) -> None:
    def start(connection: Connection, name: str, seconds: float) -> int:
        number = jobs.add_job(connection, NewJob("shop", "a", name))
        take_jobs(connection, JobTaker("n", name, 100), free=1)
        jobs.record_start(connection, number, 1, pid=1)
        began = update(job_table).where(job_table.c.id == number)
        connection.execute(began.values(started_at=job_table.c.started_at - seconds))
        return number

    def work(connection: Connection) -> tuple[int, int]:
        _add_project(connection)
        for number in range(3):
            _run(connection, f"usual{number}", _good(100), seconds=100)
        return start(connection, "fine", 150), start(connection, "slow", 250)

    fine, slow = await database.write(work)
    assert await database.read(events.find_slow_jobs) == []  # no webhook wants to know
    await database.write(lambda c: (_hook(c), _hook(c, slow_factor=3.0), _hook(c, paused=True), _hook(c, project="x")))
    assert await report_slow_jobs(database, set()) == {slow}
    assert await report_slow_jobs(database, set()) == {slow}  # another manager
    [row] = await database.read(_events)
    assert (row.event, row.webhook_id) == ("job.slow", 1)
    assert row.body["data"]["usual_seconds"] == pytest.approx(100, abs=20)
    job = row.body["data"]["job"]
    assert (job["id"], job["state"], job["ended_at"]) == (slow, "running", None)
    assert 250 <= job["seconds"] < 1000
    # At its end only the webhook hears of it that finds it slow by now.
    longer = update(job_table).where(job_table.c.id == slow).values(started_at=job_table.c.started_at - 100)
    await database.write(lambda c: (c.execute(longer), jobs.record_end(c, slow, 1, _good(100))))
    assert [(each.event, each.webhook_id) for each in await database.read(_events)] == [
        ("job.slow", 1),
        ("job.slow", 2),
    ]
    await database.write(lambda c: events.report_slow_job(c, slow))  # it has ended meanwhile
    assert await report_slow_jobs(database, set()) == set()
    await database.write(lambda c: jobs.record_end(c, fine, 1, _good(100)))
    assert len(await database.read(_events)) == 2


async def test_a_missed_time_of_a_schedule_is_reported(database: StateDatabase) -> None:
    columns = {"kind": "every", "rule": "86400.0", "time_zone": "UTC", "start_at": 1000.0, "jitter": 0.0}
    columns |= {"missed": "skip", "if_running": "run", "spider": "a", "arguments": {}, "settings": {}}
    columns |= {"priority": 0.0, "policy": {}}

    def work(connection: Connection) -> float:
        _add_project(connection)
        _hook(connection)
        late = schedules.database_time(connection) - 3600
        for name, due in (("missed", late), ("kept", late + 3600)):
            number = schedules.add_schedule(connection, "shop", name, columns)
            assert number is not None
            schedules.change_schedule(connection, number, next_at=due, due_at=due)
        assert fire_due(connection) == 2
        return late

    late = await database.write(work)
    [row] = await database.read(_events)
    found = row.body["data"]["schedule"]
    assert (row.event, found["name"], found["result"]) == ("schedule.missed", "missed", "missed")
    assert datetime.fromisoformat(found["time"]).timestamp() == pytest.approx(late, abs=0.001)


async def test_a_secret_outlives_the_change_of_the_operators_keys(database: StateDatabase, received: Receiver) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))

    def fill(connection: Connection, project: str) -> None:
        secret = SecretVault([old]).encrypt(project, "webhook:x", _SECRET)
        events.emit_test(connection, _hook(connection, received.url, project=project, secret=secret))

    await database.write(lambda c: (_add_project(c), fill(c, "shop"), fill(c, "")))
    await _send(database, vault=SecretVault([new]))
    assert ["none of the manager's keys" in row.error for row in await database.read(_events)] == [True, True]
    done = await ProjectVariables(database, SecretVault([new, old])).rotate()
    assert done == (2, [])
    assert await ProjectVariables(database, SecretVault([new, old])).rotate() == (2, [])  # repeated
    await database.write(lambda c: c.execute(update(deliveries).values(next_at=0.0, error="")))
    await _send(database, vault=SecretVault([new]))
    for event in received.events:
        timestamp = int(event.headers["webhook-timestamp"])
        wanted = signature_of(_SECRET, event.headers["webhook-id"], timestamp, event.raw)
        assert event.headers["webhook-signature"] == wanted
    assert len(received.events) == 2
    assert (await ProjectVariables(database, SecretVault([old])).rotate()).unreadable == [
        "shop/webhook 1",
        "all projects/webhook 2",
    ]


async def test_broken_versions_and_lost_nodes_are_reported(database: StateDatabase) -> None:
    def work(connection: Connection) -> Any:
        _add_project(connection)
        _hook(connection)
        _hook(connection, project="other")
        _hook(connection, project="")
        number = projects.add_version(connection, "shop", "2", digest="e", file="shop/2.egg")
        projects.take_listing(connection, "node")
        projects.record_listing(connection, number, incarnation="node", spiders=[], fault="no module")
        new = nodes.NewNode("n", "folder", "process", 4, [], "host", "")
        nodes.register_node(connection, new, limit_seconds=10)
        job = jobs.add_job(connection, NewJob("shop", "a", "x"))
        take_jobs(connection, JobTaker("n", "1", 100), free=1)
        row = nodes.find_node(connection, "n")
        assert row is not None
        assert nodes.lose_node(connection, "n", beats=row.beats)
        found = [(each.webhook_id, each.event, each.body["data"]) for each in _events(connection)]
        assert [each[2] for each in found if each[1] == "node.lost"] == [{"node": "n", "jobs": [job]}] * 2
        return sorted(each[:2] for each in found)

    assert await database.write(work) == [
        (1, "job.failed"),
        (1, "node.lost"),
        (1, "version.broken"),
        (3, "job.failed"),
        (3, "node.lost"),
        (3, "version.broken"),
    ]


async def _send(
    database: StateDatabase, *, guard: WebhookAddresses = _LOCAL, senders: int = 1, vault: SecretVault = _VAULT
) -> None:
    """Run senders until nothing is due or being sent."""
    stopping = asyncio.Event()
    tasks = [asyncio.create_task(WebhookSender(database, vault, guard).run(stopping)) for _ in range(senders)]
    under_way = select(deliveries.c.id).where(deliveries.c.state == "waiting", deliveries.c.error == "")
    async with asyncio.timeout(60):
        while await database.read(lambda c: c.execute(under_way).first()) is not None:  # noqa: ASYNC110 (in the database)
            await asyncio.sleep(0.05)
    stopping.set()
    await asyncio.gather(*tasks)


async def test_several_managers_send_each_event_once_and_signed(database: StateDatabase, received: Receiver) -> None:
    def fill(connection: Connection) -> None:
        _add_project(connection)
        hook = _hook(connection, received.url)
        for _ in range(20):
            events.emit_test(connection, hook)

    await database.write(fill)
    await _send(database, senders=3)
    ids = [event.headers["webhook-id"] for event in received.events]
    assert len(ids) == len(set(ids)) == 20
    for event in received.events:
        timestamp = int(event.headers["webhook-timestamp"])
        wanted = signature_of(_SECRET, event.headers["webhook-id"], timestamp, event.raw)
        assert event.headers["webhook-signature"] == wanted
        assert event.headers["host"].startswith("localhost:")
        assert (event.body["type"], event.body["project"]) == ("webhook.test", "shop")


async def test_a_receiver_that_fails_gets_the_event_again_until_it_is_dead(
    database: StateDatabase, received: Receiver
) -> None:
    received.status = 302  # a redirect is not followed, either

    def fill(connection: Connection) -> None:
        _add_project(connection)
        events.emit_test(connection, _hook(connection, received.url))

    await database.write(fill)
    await _send(database)
    [row] = await database.read(_events)
    assert (row.state, row.status, row.attempts, row.error) == ("waiting", 302, 1, "the receiver answered 302")
    assert 9 < row.next_at - row.created_at < 40
    # The last attempt: nine were made before it.
    at_once = update(deliveries).values(attempts=9, next_at=0.0, error="")
    await database.write(lambda c: c.execute(at_once))
    await _send(database)
    [row] = await database.read(_events)
    assert (row.state, row.attempts) == ("dead", 10)
    received.status = 200
    assert await database.write(lambda c: webhooks.send_again(c, row.webhook_id, row.id))
    await database.write(lambda c: c.execute(update(deliveries).values(error="")))
    await _send(database)
    [row] = await database.read(_events)
    assert (row.state, row.status) == ("sent", 200)
    assert len({event.headers["webhook-id"] for event in received.events}) == 1


async def test_a_delivery_of_a_manager_that_died_is_sent_by_another_one(
    database: StateDatabase, received: Receiver
) -> None:
    def fill(connection: Connection) -> Any:
        _add_project(connection)
        events.emit_test(connection, _hook(connection, received.url))
        return webhooks.lease_deliveries(connection, 10)

    [dead] = await database.write(fill)
    assert not await database.read(webhooks.has_due)
    await database.write(lambda c: c.execute(update(deliveries).values(leased_until=0.0)))
    await _send(database)
    await database.write(lambda c: webhooks.record_failure(c, dead, "too late", None))  # its lease is over
    [row] = await database.read(_events)
    assert (row.state, row.error, len(received.events)) == ("sent", "", 1)


async def test_an_address_that_is_not_public_is_not_called(database: StateDatabase, received: Receiver) -> None:
    def fill(connection: Connection) -> None:
        _add_project(connection)
        events.emit_test(connection, _hook(connection, received.url))

    await database.write(fill)
    await _send(database, guard=WebhookAddresses())
    [row] = await database.read(_events)
    assert "not public" in row.error
    assert received.events == []


async def test_a_slow_receiver_keeps_no_other_waiting(database: StateDatabase) -> None:
    """Few events of one webhook are under way at a time, however many it has; others get theirs first."""

    def add(connection: Connection) -> tuple[int, int]:
        _add_project(connection)
        slow, other = _hook(connection), _hook(connection)
        for _ in range(20):
            events.emit_test(connection, slow)
        events.emit_test(connection, other)
        return slow.id, other.id

    slow, other = await database.write(add)
    leased = await database.write(lambda connection: webhooks.lease_deliveries(connection, 2))
    assert sorted(row.webhook_id for row in leased) == [slow, other]
    more = await database.write(lambda connection: webhooks.lease_deliveries(connection, 16))
    assert [row.webhook_id for row in more] == 3 * [slow]
    assert await database.write(lambda connection: webhooks.lease_deliveries(connection, 16)) == []
    await database.write(lambda connection: webhooks.record_sent(connection, more[0], 200))
    assert len(await database.write(lambda connection: webhooks.lease_deliveries(connection, 16))) == 1


async def test_no_more_events_are_kept_than_may_wait(database: StateDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)

    def fill(connection: Connection) -> Any:
        _add_project(connection)
        hook = _hook(connection)
        for _ in range(5):
            events.emit_test(connection, hook)
        found = webhooks.find_webhook(connection, hook.id)
        assert found is not None
        return found.dropped, len(_events(connection))

    assert await database.write(fill) == (2, 3)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "192.168.0.1",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fc00::1",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
        "::",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "fec0::1",
        "192.0.0.192",
        "2a00:1450::5efe:a00:1",
        "2a00:1450::200:5efe:a00:1",
        "2002:808:808::1",
        "2001:0:4136:e378:8000:63bf:f7f7:f7f7",
        "3ffe::1",
        "127.1",
        "0x7f.1",
        "2130706433",
    ],
)
async def test_private_addresses_are_refused(address: str) -> None:
    """The guard of pages decides (`tests/unit/net/test_guard.py` has its table)."""
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(BadInput, match=r"not public\. An operator permits it in GOSSAMER_WEBHOOK_NETWORKS"):
        await WebhookAddresses().resolve(f"http://{host}/hook")


async def test_public_addresses_and_permitted_networks_are_called() -> None:
    for address in ("93.184.216.34", "2606:2800:220:1::1", "64:ff9b::808:808"):
        host = f"[{address}]" if ":" in address else address
        assert await WebhookAddresses().resolve(f"https://{host}/") == address
    guard = WebhookAddresses.of({"GOSSAMER_WEBHOOK_NETWORKS": "10.0.0.0/8, ::1/128"})
    assert await guard.resolve("http://10.1.2.3/") == "10.1.2.3"
    assert await guard.resolve("http://[::1]:8080/") == "::1"
    with pytest.raises(BadInput, match="not public"):
        await guard.resolve("http://127.0.0.1/")
    with pytest.raises(BadInput, match="GOSSAMER_WEBHOOK_NETWORKS"):
        WebhookAddresses.of({"GOSSAMER_WEBHOOK_NETWORKS": "10.0.0.1/8"})


@pytest.mark.parametrize(
    "url", ["", "ftp://a/", "file:///etc/passwd", "http://", "http://u:p@a/", "http://a:x/", "//a"]
)
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="url"):
        check_url(url)

"""Calls on one server."""

import asyncio

import pytest
import uvloop

from gossamer.errors import BadInput, FrontierError, FrontierFull, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey import server_check
from gossamer.valkey.connection import retrying
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from tests.servers.program import require
from tests.servers.valkey import Server, standalone, wait_until

COUNT = Script("count", "return redis.call('INCRBY', KEYS[1] .. 'n', ARGV[1])")
ECHO = Script("echo", "return {KEYS[1], ARGV[1], 7, false, {ARGV[2]}}")
FAILING = Script("failing", "return redis.call('LPUSH', KEYS[1], 'x') + redis.call('INCR', KEYS[1])")


async def test_an_answer_has_bytes_numbers_none_and_lists(shards: Shards) -> None:
    assert await shards.call(0, ECHO, ["{0}:"], [b"\xff\x00", 1.5]) == [b"{0}:", b"\xff\x00", 7, None, [b"1.5"]]


async def test_many_calls_at_once_get_their_own_answers(shards: Shards) -> None:
    answers = await asyncio.gather(*(shards.call(0, ECHO, ["{0}:"], [str(i), ""]) for i in range(2_000)))
    assert [int(answer[1]) for answer in answers] == list(range(2_000))


def test_the_same_on_uvloop(one_server: Server) -> None:
    async def ask() -> None:
        for address in (one_server.address, f"{one_server.address}?db=1"):
            shards = await Shards.connect(address)
            answers = await asyncio.gather(
                *(shards.call(0, ECHO, ["{0}:"], [i, "x" * i]) for i in range(0, 50_000, 99))
            )
            assert [len(answer[4][0]) for answer in answers] == list(range(0, 50_000, 99))
            heard = shards.subscribe("wake")
            assert await anext(heard) is None
            one_server.command("CLIENT", "KILL", "TYPE", "normal")
            assert await retrying(lambda at=shards: at.command("a", "PUBLISH", "wake", "x")) == 1  # type: ignore[misc]
            assert await anext(heard) == b"x"
            await heard.aclose()  # type: ignore[attr-defined]
            await shards.close()

    uvloop.run(ask())


async def test_a_script_that_the_server_forgot_is_loaded_again(shards: Shards) -> None:
    assert await shards.call(0, COUNT, ["{0}:"], [1]) == 1
    assert await shards.everywhere("SCRIPT", "FLUSH") == [b"OK"]
    assert await shards.call(0, COUNT, ["{0}:"], [1]) == 2


async def test_a_plain_command(shards: Shards) -> None:
    assert await shards.command("{0}:a", "SET", "{0}:a", b"\x00\r\n") == b"OK"
    assert await shards.command("{0}:a", "GET", "{0}:a") == b"\x00\r\n"


async def test_a_script_that_fails_names_itself_and_its_shard(shards: Shards) -> None:
    with pytest.raises(FrontierError, match=r"failing on shard 3 .*WRONGTYPE"):
        await shards.call(3, FAILING, ["{3}:"], [])


async def test_what_the_server_is_like_is_known(shards: Shards) -> None:
    assert shards.max_intset_entries == 512
    assert int(shards.version.split(".")[0]) >= 7


async def test_a_password_lets_in_and_its_absence_says_what_to_do(guarded_server: Server) -> None:
    good = await Shards.connect(f"redis://:open%20sesame%2F1@127.0.0.1:{guarded_server.port}/2")
    assert await good.command("a", "SET", "a", "1") == b"OK"
    await good.close()
    with pytest.raises(ServerUnsuitable, match="asks for a password"):
        await Shards.connect(f"redis://127.0.0.1:{guarded_server.port}")
    with pytest.raises(ServerUnsuitable, match="does not know this user and password") as refused:
        await Shards.connect(f"redis://:wrong-secret@127.0.0.1:{guarded_server.port}")
    assert "wrong-secret" not in str(refused.value)


async def test_a_server_without_cluster_is_not_asked_as_one(guarded_server: Server) -> None:
    with pytest.raises(ServerUnsuitable, match="write redis://"):
        await Shards.connect(f"redis+cluster://:open%20sesame%2F1@127.0.0.1:{guarded_server.port}")


async def test_a_database_that_is_not_there(one_server: Server) -> None:
    with pytest.raises(ServerUnsuitable, match="database"):
        await Shards.connect(f"{one_server.address}?db=99")


async def test_nobody_listens() -> None:
    with pytest.raises(FrontierUnavailable, match="No such file"):
        await Shards.connect("unix:///nowhere/s.sock")


async def test_an_address_that_is_none() -> None:
    with pytest.raises(BadInput, match="expected one of"):
        await Shards.connect("http://127.0.0.1")


async def test_a_killed_server_is_unavailable_and_there_again_after_its_restart() -> None:
    with standalone(options={"appendfsync": "always"}) as server:
        shards = await Shards.connect(server.address)
        assert await shards.call(0, COUNT, ["{0}:"], [5]) == 5
        server.kill()
        with pytest.raises(FrontierUnavailable):
            await shards.call(0, COUNT, ["{0}:"], [1])
        with pytest.raises(FrontierUnavailable):
            await shards.call(0, COUNT, ["{0}:"], [1], confirmed=True)
        server.start()
        assert await shards.call(0, COUNT, ["{0}:"], [1]) == 6
        await shards.close()


async def test_a_connection_lost_in_mid_call(shards: Shards, one_server: Server) -> None:
    """The call may have been done or not; the next one connects again."""
    waiting = asyncio.ensure_future(shards.command("{0}:q", "BLPOP", "{0}:q", 0))
    other = asyncio.ensure_future(shards.command("{0}:q", "BLPOP", "{0}:q", 0))
    await blocked(one_server, 1)
    one_server.command("CLIENT", "KILL", "TYPE", "normal")
    for lost in (waiting, other):
        with pytest.raises(FrontierUnavailable):
            await lost
    assert await shards.call(0, COUNT, ["{0}:"], [1]) == 1


async def test_an_answer_that_takes_too_long_ends_the_connection(one_server: Server) -> None:
    shards = await Shards.connect(one_server.address, call_seconds=0.1)
    with pytest.raises(FrontierUnavailable, match="no answer within"):
        await shards.command("{0}:q", "BLPOP", "{0}:q", 0)
    assert await shards.command("{0}:q", "LLEN", "{0}:q") == 0
    await shards.close()


async def test_a_cancelled_call_leaves_the_others_their_answers(shards: Shards, one_server: Server) -> None:
    waiting = asyncio.ensure_future(shards.command("{0}:q", "BLPOP", "{0}:q", 0))
    await blocked(one_server, 1)
    after = asyncio.ensure_future(shards.call(0, ECHO, ["{0}:"], ["mine", ""]))
    waiting.cancel()
    one_server.command("RPUSH", "{0}:q", "x")
    assert (await after)[1] == b"mine"


async def test_full_memory_refuses_adding_and_says_so() -> None:
    with standalone(options={"maxmemory": "4mb"}) as server:
        shards = await Shards.connect(server.address)
        fill = Script("fill", "return redis.call('APPEND', KEYS[1], string.rep('x', 1000000))")
        finish = Script("finish", "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1] .. 's', 1)")
        answers = [await asyncio.gather(shards.call(0, fill, ["{0}:"], []), return_exceptions=True) for _ in range(8)]
        refusal = next(answer for (answer,) in answers if isinstance(answer, FrontierFull))
        assert "of 4.00M; raise maxmemory" in str(refusal)
        assert await shards.call(0, finish, ["{0}:"], []) == b"OK"
        await shards.close()


async def test_a_server_that_evicts_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with standalone(options={"maxmemory-policy": "allkeys-lru"}) as server:
        await (await Shards.connect(server.address)).close()
    assert "may forget URLs" in caplog.text


async def test_a_server_that_keeps_nothing_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Once, however many connections a process has. One that does is not, nor that a single server has no replica."""
    with standalone(options={"appendonly": "no"}) as server:
        shards = await Shards.connect(server.address)
        await (await Shards.connect(server.address)).close()
        assert caplog.text.count("keeps nothing on disk") == 1
        assert len(shards.warnings) == 1
        await shards.close()
        caplog.clear()
        server.command("CONFIG", "SET", "save", "3600 1")
        shards = await Shards.connect(server.address)
        assert caplog.text.count("keeps no append-only file") == 1
        assert shards.warnings == ()
        await shards.close()
        caplog.clear()
        server.command("CONFIG", "SET", "appendonly", "yes")
        shards = await Shards.connect(server.address)
        assert await shards.call(0, COUNT, ["{0}:"], [1], confirmed=True) == 1
        await shards.close()
        # Until its first file is whole, a server refuses to end.
        wait_until(lambda: server.info("persistence")["aof_rewrite_in_progress"] == "0", "the file to be written")
    assert caplog.text == ""


async def blocked(server: Server, count: int) -> None:
    """Until so many clients hang in a blocking command; the loop goes on meanwhile."""
    await asyncio.to_thread(
        wait_until, lambda: int(server.info("clients")["blocked_clients"]) >= count, "a client to hang"
    )


@pytest.mark.parametrize(
    ("option", "warned"), [({}, True), ({"aof-load-truncated": "no"}, False), ({"appendonly": "no"}, False)]
)
async def test_a_server_that_keeps_half_transactions_is_warned_about(option: dict[str, str], warned: bool) -> None:
    """Where it may load a file that was cut. The server that Gossamer runs does not keep them."""
    for program in ("", require("redis-server")):
        with standalone(options=option, program=program) as server:
            shards = await Shards.connect(server.address)
            told = any("keeps half of a transaction" in warning for warning in shards.warnings)
            assert told == shards.keeps_torn == shards.clone().keeps_torn == (warned and bool(program))
            await shards.close()


@pytest.mark.parametrize(
    ("version", "keeps"),
    [(None, True), ("8.1.8", True), ("9.1.1", True), ("9.1.2", False), ("9.2.0-rc1", False), ("10.0.0", False)],
)
def test_versions_that_keep_half_transactions(version: str | None, keeps: bool) -> None:
    known = {"redis_version": "7.2.4"} | ({"valkey_version": version} if version else {})
    assert server_check._keeps_torn_transactions(known) is keeps
    assert not server_check._keeps_torn_transactions({}), "a server that hides its version"

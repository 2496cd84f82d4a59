"""What only Streams have to promise: bounds, and the end of every key."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.bus.streams import StreamsBus
from gossamer.bus.streams_store import SCRIPTS, StreamKeys
from gossamer.errors import BusFull
from gossamer.valkey.client import read_info
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server

from .test_bus import take


@pytest.fixture
async def shards(one_server: Server) -> AsyncIterator[Shards]:
    one_server.command("FLUSHALL")
    connected = await Shards.connect(one_server.address)
    yield connected
    await connected.close()


async def test_a_topic_of_requests_refuses_what_it_cannot_keep_until_some_are_acknowledged(shards: Shards) -> None:
    bus = StreamsBus(shards, keep_until_acknowledged=("in",), max_topic_bytes=100_000)

    async def fill() -> None:
        for _ in range(1000):
            await bus.publish("in", [b"x" * 1000])

    with pytest.raises(BusFull):
        await fill()
    [topic] = await bus.topics()
    assert topic.messages == 100_000 // 1032
    consumer = await bus.consume(["in"], group="g")
    await consumer.acknowledge(await take(consumer, topic.messages))
    assert (await bus.topics())[0].messages == 0
    await bus.publish("in", [b"x" * 1000])
    await consumer.close()


async def test_requests_stay_until_every_group_has_acknowledged_them(shards: Shards) -> None:
    bus = StreamsBus(shards, keep_until_acknowledged=("in",))
    one, two = await bus.consume(["in"], group="g"), await bus.consume(["in"], group="h")
    await bus.publish("in", [b"1", b"2"])
    await one.acknowledge(await take(one, 2))
    assert (await bus.topics())[0].messages == 2
    messages = await take(two, 2)
    await two.acknowledge(messages[:1])
    assert (await bus.topics())[0].messages == 1
    await two.acknowledge(messages[1:])
    assert (await bus.topics())[0].messages == 0
    await one.close()
    await two.close()


async def test_of_pages_the_oldest_go_and_what_nobody_read_is_counted(shards: Shards) -> None:
    bus = StreamsBus(shards, max_topic_bytes=1_000_000)
    consumer = await bus.consume(["pages"], group="slow")
    for _ in range(30):
        await bus.publish("pages", [b"x" * 1000] * 100)
    [topic] = await bus.topics()
    assert topic.messages <= 1_000_000 // 1032
    assert bus.trimmed["pages"] + topic.messages == 3000
    assert len(await take(consumer, topic.messages)) == topic.messages
    await bus.publish("pages", [b"x" * 1000] * 100)
    assert bus.trimmed["pages"] + topic.messages == 3000, "what was read leaves without a word"
    await consumer.close()


@pytest.mark.parametrize("sizes", [(10, 50_000), (50_000, 10)], ids=["small-large", "large-small"])
async def test_bytes_are_counted_however_sizes_change(shards: Shards, sizes: tuple[int, int]) -> None:
    """Neither does a flood of small messages hide the large ones, nor do a few large ones drive out all the small."""
    most = 1_000_000
    for keep in (False, True):
        bus = StreamsBus(
            shards, prefix=f"sizes{keep}", keep_until_acknowledged=("t",) if keep else (), max_topic_bytes=most
        )
        held = 0
        for size in sizes:
            for _ in range(18):
                count = max(1, 50_000 // (size + 32))
                try:
                    await bus.publish("t", [b"x" * size] * count)
                except BusFull:
                    break
        reader = await bus.read(["t"], from_beginning=True)
        messages = await take(reader, (await bus.topics())[0].messages)
        held = sum(len(message.value) + 32 for message in messages)
        assert most - 2 * 50_032 <= held <= most
        await reader.close()


async def test_who_holds_up_a_full_topic_is_named(shards: Shards) -> None:
    bus = StreamsBus(shards, keep_until_acknowledged=("in",), max_topic_bytes=10_000)
    fast, slow = await bus.consume(["in"], group="fast"), await bus.consume(["in"], group="slow")
    await bus.publish("in", [b"x" * 1000] * 9)
    await fast.acknowledge(await take(fast, 9))
    with pytest.raises(BusFull, match=r"fast: 0, slow: 9"):
        await bus.publish("in", [b"x" * 1000])
    for consumer in (fast, slow):
        await consumer.close()


async def test_a_topic_waits_for_no_other(shards: Shards) -> None:
    bus = StreamsBus(shards)
    await bus.publish("busy", [b"x"] * 100)
    await bus.publish("quiet", [b"x"])
    consumer = await bus.consume(["busy", "quiet"], group="g")
    messages = await take(consumer, 2) + await consumer.take(at_most=10, wait_seconds=1.0)
    assert "quiet" in {message.topic for message in messages}
    await consumer.close()


async def test_members_that_are_gone_are_forgotten(shards: Shards) -> None:
    """A group does not grow with every restart of its members; one that holds messages is kept for them."""
    bus, key = StreamsBus(shards), StreamKeys("gossamer").stream("in")
    await bus.publish("in", [b"x"])
    await shards.command(key, "XGROUP", "CREATE", key, "g", "0")
    for member in ("holding", "empty"):
        await shards.command(key, "XREADGROUP", "GROUP", "g", member, "COUNT", 1, "STREAMS", key, ">")

    async def members() -> list[bytes]:
        return [row[1] for row in await shards.command(key, "XINFO", "CONSUMERS", key, "g")]

    assert await members() == [b"empty", b"holding"]
    await shards.call(0, SCRIPTS["join_group"], [key], ["g", 1000, 3600_000])
    assert await members() == [b"empty", b"holding"], "they may be back"
    await shards.call(0, SCRIPTS["join_group"], [key], ["g", 1000, -1])
    assert await members() == [b"holding"]


async def test_what_was_given_in_an_answer_that_nobody_heard_is_given_again(shards: Shards) -> None:
    bus = StreamsBus(shards, claim_seconds=1000.0)
    consumer = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"%d" % n for n in range(9)])
    held = await take(consumer, 3)
    taking = asyncio.create_task(consumer.take(at_most=3, wait_seconds=10.0))
    await asyncio.sleep(0)  # it has asked
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    rest = await take(consumer, 6)
    assert [message.value for message in held + rest] == [b"%d" % n for n in range(9)]
    await consumer.close()


async def test_a_topic_that_ended_is_made_again(shards: Shards) -> None:
    bus, key = StreamsBus(shards), StreamKeys("gossamer").stream("pages")
    consumer = await bus.consume(["pages"], group="g")
    await shards.command(key, "DEL", key)
    assert await consumer.lag() == 0
    await bus.publish("pages", [b"1"])
    assert [message.value for message in await take(consumer, 1)] == [b"1"]
    await consumer.close()


async def test_every_key_ends_but_requests_that_wait(shards: Shards) -> None:
    bus = StreamsBus(shards, keep_until_acknowledged=("in",))
    consumer = await bus.consume(["in", "nothing"], group="g")
    await bus.publish("in", [b"1"])
    await bus.publish("pages", [b"1"])
    endless = [key for key in await shards.command("x", "KEYS", "*") if await shards.command("x", "TTL", key) < 0]
    assert sorted(endless) == [b"{gossamer:bus:in}", b"{gossamer:bus:in}:facts"]
    await consumer.acknowledge(await take(consumer, 1))
    for key in await shards.command("x", "KEYS", "*"):
        assert await shards.command("x", "TTL", key) > 0
    await consumer.close()


class FullMemory:
    """A server whose memory is full from now on, with topics of a few megabytes."""

    def __init__(self, server: Server, shards: Shards) -> None:
        self._server = server
        self._shards = shards

    async def begin(self) -> None:
        [told] = await self._shards.everywhere("INFO", "memory")
        memory = read_info(told)
        # What waits to be appended to the server's file does not count: under load, megabytes.
        used = int(memory["used_memory"]) - int(memory["mem_not_counted_for_evict"])
        self._server.command("CONFIG", "SET", "maxmemory", str(used - 1_000_000))

    def end(self) -> None:
        self._server.command("CONFIG", "SET", "maxmemory", "0")


@pytest.fixture
def full_memory(one_server: Server, shards: Shards) -> Iterator[FullMemory]:
    memory = FullMemory(one_server, shards)
    yield memory
    memory.end()


BATCH = [b"x" * 1000] * 500


async def test_with_full_memory_a_topic_makes_room_of_what_every_group_has_acknowledged(
    shards: Shards, full_memory: FullMemory
) -> None:
    """So finished pages can be published for as long as they are consumed. Not one more is deleted."""
    bus = StreamsBus(shards)
    fast, slow = await bus.consume(["pages"], group="fast"), await bus.consume(["pages"], group="slow")
    for _ in range(8):
        await bus.publish("pages", BATCH)
    await fast.acknowledge(await take(fast, 4000))
    await full_memory.begin()
    for call in (bus.publish("pages", BATCH), bus.check_room()):
        with pytest.raises(BusFull, match="maxmemory"):
            await call
    assert (await bus.topics())[0].messages == 4000
    await slow.acknowledge(await take(slow, 3000))
    await bus.publish("pages", BATCH)
    assert (await bus.topics())[0].messages == 1500
    assert len(await take(slow, 1500)) == 1500
    assert bus.trimmed == {}
    await bus.check_room()
    await fast.close()
    await slow.close()


async def test_with_full_memory_a_topic_makes_room_of_what_is_over_its_time(
    shards: Shards, full_memory: FullMemory
) -> None:
    """Publishing deletes it otherwise, and cannot when it is refused."""
    bus = StreamsBus(shards)
    key = StreamKeys(bus.prefix).stream("pages")
    for number in range(1, 4001):  # of the year 1970
        await shards.command(key, "XADD", key, f"{number}-0", "v", BATCH[0], "c", "0")
    await full_memory.begin()
    await bus.publish("pages", [b"new"])
    assert (await bus.topics())[0].messages == 1


@pytest.mark.parametrize("has_group", [False, True])
async def test_with_full_memory_the_older_half_of_copies_goes_unless_a_group_needs_it(
    shards: Shards, full_memory: FullMemory, has_group: bool
) -> None:
    bus = StreamsBus(shards, copies=("firehose",))
    consumer = await bus.consume(["firehose"], group="g") if has_group else None
    for topic in ("firehose", "own"):
        for _ in range(8):
            await bus.publish(topic, BATCH)
    await full_memory.begin()
    with pytest.raises(BusFull):
        await bus.publish("own", BATCH)
    if consumer is None:
        await bus.publish("firehose", BATCH)
        assert {topic.name: topic.messages for topic in await bus.topics()} == {"firehose": 2500, "own": 4000}
    else:
        with pytest.raises(BusFull):
            await bus.publish("firehose", BATCH)
        full_memory.end()
        await consumer.close()

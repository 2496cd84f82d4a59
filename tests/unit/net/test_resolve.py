"""The resolver: what it returns may be connected to, what it remembers is bounded, one look-up serves all who ask."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping

import pytest

from gossamer.errors import BadInput, BlockedAddress, DnsFailed
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.planner import ConnectionPlan, ConnectionPlanner
from gossamer.fetch.request import RequestEncoder
from gossamer.net.resolve import TEMPORARY_SECONDS, DnsLimits, Resolver, parse_override

PUBLIC = "93.184.216.34"
PUBLIC_V6 = "2606:4700:4700::1111"


class Zone:
    """A name server in memory: each name has a row of answers; the last one stays."""

    def __init__(self, rows: Mapping[str, list[list[str] | OSError]]) -> None:
        self.rows = {name: list(answers) for name, answers in rows.items()}
        self.asked: list[str] = []
        self.was_asked = asyncio.Event()
        self.answer_now = asyncio.Event()
        self.answer_now.set()

    async def lookup(self, name: str) -> list[str]:
        """The Lookup contract. Waits while `answer_now` is clear."""
        self.asked.append(name)
        self.was_asked.set()
        await self.answer_now.wait()
        answers = self.rows.get(name) or [socket.gaierror(socket.EAI_NONAME, "Name or service not known")]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def system() -> AsyncIterator[Resolver]:
    """A resolver that asks the system, as in production."""
    resolver = Resolver()
    yield resolver
    resolver.close()


async def test_localhost_is_resolved_by_the_system_and_refused(system: Resolver) -> None:
    """The default look-up is real, and the message names host, address and reason."""
    with pytest.raises(BlockedAddress, match=r"localhost is .*127\.0\.0\.1 \(loopback\)|localhost is ::1 \(loopback\)"):
        await system.addresses("localhost", 80)
    found = set(await system.addresses("localhost", 80, allow_private=True))
    assert found
    assert found <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["127.1", "2130706433", "[::ffff:127.0.0.1]", "::1", "10.0.0.1", "[64:ff9b::a00:1]"])
async def test_literals_pass_through_the_guard(system: Resolver, host: str) -> None:
    """No spelling of a private address gets by."""
    with pytest.raises(BlockedAddress):
        await system.addresses(host, 80)


async def test_public_literals_need_no_look_up() -> None:
    """They come back in their shortest form, which can be connected to."""
    zone = Zone({})
    resolver = Resolver(lookup=zone.lookup)
    assert await resolver.addresses("8.8.8.8", 80) == ("8.8.8.8",)
    assert await resolver.addresses("[2606:4700:4700:0::1111]", 80) == (PUBLIC_V6,)
    assert zone.asked == []


@pytest.mark.parametrize("host", ["", "a b", "a..b", "x" * 64 + ".test", "fe80::1%lo", "a\x00b", "é.test", ".", "a/b"])
async def test_what_is_no_host_name_is_never_asked_for(host: str) -> None:
    """It fails as DNS would, without an exception of another kind."""
    zone = Zone({})
    resolver = Resolver(lookup=zone.lookup)
    with pytest.raises(DnsFailed):
        await resolver.addresses(host, 80)
    assert zone.asked == []


async def test_an_unknown_name_fails_and_the_failure_is_remembered_for_a_while() -> None:
    """A dead name costs one look-up in 30 seconds."""
    clock, zone = Clock(), Zone({})
    resolver = Resolver(lookup=zone.lookup, clock=clock)
    for _ in range(3):
        with pytest.raises(DnsFailed, match=r"gone\.test: Name or service not known"):
            await resolver.addresses("gone.test", 80)
    assert zone.asked == ["gone.test"]
    clock.seconds += 31
    with pytest.raises(DnsFailed):
        await resolver.addresses("gone.test", 80)
    assert zone.asked == ["gone.test"] * 2


async def test_a_temporary_failure_is_remembered_briefly() -> None:
    """A name server's bad minute must not fail a retry that comes after it."""
    clock = Clock()
    zone = Zone({"a.test": [socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), [PUBLIC]]})
    resolver = Resolver(lookup=zone.lookup, clock=clock)
    for _ in range(2):
        with pytest.raises(DnsFailed, match="Temporary failure") as raised:
            await resolver.addresses("a.test", 80)
        assert not raised.value.denied
    with pytest.raises(DnsFailed) as raised:
        await resolver.addresses("nobody.test", 80)
    assert raised.value.denied
    clock.seconds += TEMPORARY_SECONDS
    assert await resolver.addresses("a.test", 80) == (PUBLIC,)


async def test_an_answer_is_remembered_until_its_time_is_over() -> None:
    """Then the name is asked for again, and the new answer counts."""
    clock, zone = Clock(), Zone({"a.test": [[PUBLIC], ["1.1.1.1"]]})
    resolver = Resolver(lookup=zone.lookup, clock=clock, limits=DnsLimits(ttl_seconds=300))
    assert await resolver.addresses("a.test", 80) == (PUBLIC,)
    clock.seconds += 299
    assert await resolver.addresses("a.test", 443) == (PUBLIC,)
    clock.seconds += 1
    assert await resolver.addresses("a.test", 80) == ("1.1.1.1",)


async def test_rebinding_to_a_private_address_is_refused() -> None:
    """A name that was public first and private later is judged anew; what is returned is an address, never a name."""
    clock, zone = Clock(), Zone({"evil.test": [[PUBLIC], ["127.0.0.1"]]})
    resolver = Resolver(lookup=zone.lookup, clock=clock, limits=DnsLimits(ttl_seconds=0))
    assert await resolver.addresses("evil.test", 80) == (PUBLIC,)
    with pytest.raises(BlockedAddress, match=r"evil\.test is 127\.0\.0\.1 \(loopback\)"):
        await resolver.addresses("evil.test", 80)


async def test_all_addresses_are_judged_and_the_refused_left_out() -> None:
    """One public address does not carry the private ones through."""
    zone = Zone({"mixed.test": [["10.0.0.1", PUBLIC, "::1"]], "inside.test": [["10.0.0.1", "fd00::1"]]})
    resolver = Resolver(lookup=zone.lookup)
    assert await resolver.addresses("mixed.test", 80) == (PUBLIC,)
    with pytest.raises(BlockedAddress, match=r"10\.0\.0\.1 \(private\), fd00::1 \(unique local\)"):
        await resolver.addresses("inside.test", 80)


async def test_the_families_take_turns_beginning_with_the_preferred() -> None:
    """RFC 8305: a broken family costs one attempt, not all of its addresses. Repeats are left out."""
    zone = Zone(
        {
            "six.test": [["2606:4700::1", "2606:4700::2", "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.1"]],
            "four.test": [["1.1.1.1", "1.1.1.2", "2606:4700::1"]],
        }
    )
    resolver = Resolver(lookup=zone.lookup)
    six = ("2606:4700::1", "1.1.1.1", "2606:4700::2", "1.1.1.2", "1.1.1.3")
    assert await resolver.addresses("six.test", 80) == six
    assert await resolver.addresses("four.test", 80) == ("1.1.1.1", "2606:4700::1", "1.1.1.2")


async def test_fifty_callers_at_once_cost_one_look_up() -> None:
    """And one that gives up fails nobody else."""
    zone = Zone({"a.test": [[PUBLIC]]})
    zone.answer_now.clear()
    resolver = Resolver(lookup=zone.lookup)
    tasks = [asyncio.create_task(resolver.addresses("a.test", 80)) for _ in range(50)]
    await zone.was_asked.wait()
    tasks[0].cancel()
    zone.answer_now.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [(PUBLIC,)] * 49
    assert zone.asked == ["a.test"]


async def test_a_look_up_that_takes_too_long_fails() -> None:
    """By DnsFailed, as a name server that does not answer."""
    zone = Zone({"slow.test": [[PUBLIC]]})
    zone.answer_now.clear()
    resolver = Resolver(lookup=zone.lookup, limits=DnsLimits(timeout_seconds=0.01))
    with pytest.raises(DnsFailed, match=r"slow\.test: no answer within 0\.01 s"):
        await resolver.addresses("slow.test", 80)


async def test_the_memory_is_bounded() -> None:
    """The oldest answer makes room."""
    zone = Zone({f"h{n}.test": [[PUBLIC]] for n in range(5)})
    resolver = Resolver(lookup=zone.lookup, limits=DnsLimits(max_entries=3))
    for n in range(5):
        await resolver.addresses(f"h{n}.test", 80)
    await resolver.addresses("h4.test", 80)
    await resolver.addresses("h0.test", 80)
    assert zone.asked == ["h0.test", "h1.test", "h2.test", "h3.test", "h4.test", "h0.test"]


async def test_an_override_replaces_dns_for_its_host_and_permits_its_address_there_only() -> None:
    """A private address is fine where the operator wrote it, and nowhere else."""
    zone = Zone({"b.test": [["127.0.0.1"]]})
    resolver = Resolver(lookup=zone.lookup, overrides={"A.test.": "127.1"})
    assert await resolver.addresses("a.test", 80) == ("127.0.0.1",)
    assert zone.asked == []
    for host in ("b.test", "127.0.0.1"):
        with pytest.raises(BlockedAddress):
            await resolver.addresses(host, 80)


async def test_override_patterns() -> None:
    """The exact host wins over the longest suffix, that over the star; the suffix itself and literals are not meant."""
    overrides = {"a.x.test": "127.0.0.1", "*.x.test": "127.0.0.2", "*.test": "127.0.0.3", "*": "127.0.0.4"}
    resolver = Resolver(overrides=overrides)
    expected = {
        "a.x.test": "127.0.0.1",
        "b.x.test": "127.0.0.2",
        "c.b.x.test": "127.0.0.2",
        "x.test": "127.0.0.3",
        "test": "127.0.0.4",
        "example.com": "127.0.0.4",
        "8.8.8.8": "8.8.8.8",
    }
    for host, ip in expected.items():
        assert await resolver.addresses(host, 80) == (ip,)
    with pytest.raises(BlockedAddress):
        await resolver.addresses("10.0.0.1", 80)


async def test_private_hosts_and_networks_are_permitted_as_named() -> None:
    """A host by its exact name, a network for everybody."""
    zone = Zone({"intra.test": [["10.0.0.1"]], "other.test": [["10.0.0.1"]], "lab.test": [["192.168.7.7"]]})
    resolver = Resolver(
        lookup=zone.lookup, allow_private_hosts=["Intra.test", "127.1"], allow_networks=["192.168.7.0/24"]
    )
    assert await resolver.addresses("intra.test", 80) == ("10.0.0.1",)
    assert await resolver.addresses("127.0.0.1", 80) == ("127.0.0.1",)
    assert await resolver.addresses("lab.test", 80) == ("192.168.7.7",)
    for host in ("other.test", "sub.intra.test", "127.0.0.2", "192.168.8.1"):
        with pytest.raises((BlockedAddress, DnsFailed)):
            await resolver.addresses(host, 80)


def test_an_override_on_the_command_line() -> None:
    """HOST:ADDRESS; an IPv6 address may stand in brackets or not."""
    assert parse_override("Example.com:127.1") == ("example.com", "127.0.0.1")
    assert parse_override("*.test:[::1]") == ("*.test", "::1")
    assert parse_override("a.test:::1") == ("a.test", "::1")


@pytest.mark.parametrize(
    "text", ["", "a.test", "a.test:", ":127.0.0.1", "a.test:b.test", "a.test:80:127.0.0.1", "a.test:999"]
)
def test_an_override_that_cannot_be_read_is_bad_input(text: str) -> None:
    """One line that says what is wrong."""
    with pytest.raises(BadInput):
        parse_override(text)


async def test_close_may_be_repeated(system: Resolver) -> None:
    """Also before anything was looked up."""
    system.close()
    system.close()


async def test_a_cached_plan_follows_the_resolver() -> None:
    """A host that has moved gets a new plan, and a private address is in no plan but that of a request that may reach
    it."""
    zone, clock = Zone({"a.test": [[PUBLIC], [PUBLIC_V6]], "b.test": [["10.0.0.1"]]}), Clock()
    resolver = Resolver(lookup=zone.lookup, limits=DnsLimits(ttl_seconds=60), clock=clock)
    planner, encoder = ConnectionPlanner(resolver), RequestEncoder()

    def cached(request: FetchRequest) -> ConnectionPlan | None:
        return planner.find_cached(request, encoder.split(request.url)[0])

    request = FetchRequest("http://a.test/")
    assert cached(request) is None
    found = await planner.find(request, encoder.split(request.url)[0])
    plan = cached(request)
    assert plan == found
    assert cached(request) is plan
    insecure = cached(FetchRequest("http://a.test/", insecure=True))
    assert insecure is not None
    assert insecure.pool_keys != found.pool_keys
    assert cached(FetchRequest("http://a.test/", proxy="http://proxy.test:1")) is None
    clock.seconds += 60
    assert cached(request) is None
    await resolver.addresses("a.test", 80)
    moved = cached(request)
    assert moved is not None
    assert moved.ips == (PUBLIC_V6,)

    await resolver.addresses("b.test", 80, allow_private=True)
    private = FetchRequest("http://b.test/", allow_private=True)
    assert (cached(private) or found).ips == ("10.0.0.1",)
    assert cached(FetchRequest("http://b.test/")) is None

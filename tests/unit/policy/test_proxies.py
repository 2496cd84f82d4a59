"""The choice of a proxy, and rests."""

import pytest

from gossamer.policy.proxies import ProxyPool, ProxyRests

RESTS = ProxyRests(first_seconds=10, longest_seconds=40)


def pool_of(*names: str, sticky: bool = False) -> ProxyPool:
    return ProxyPool(names, sticky=sticky, rests=RESTS)


def chosen(pool: ProxyPool, domain: str = "a", *, now: float = 0.0, times: int = 6) -> list[str | None]:
    return [pool.choose(domain, now=now) for _ in range(times)]


def test_requests_take_turns() -> None:
    assert chosen(pool_of("x", "y", "z")) == ["x", "y", "z", "x", "y", "z"]


def test_a_failing_proxy_rests_longer_each_time_and_comes_back() -> None:
    pool, now = pool_of("x", "y"), 0.0
    for rest in (10, 20, 40, 40):
        pool.on_failure("x", now=now, random=0.999_999)
        assert set(chosen(pool, now=now + rest - 0.1)) == {"y"}
        assert set(chosen(pool, now=now + rest)) == {"x", "y"}
        now += rest
    pool.on_response("x", "a")
    pool.on_failure("x", now=now, random=0.999_999)
    assert set(chosen(pool, now=now + 10)) == {"x", "y"}  # a response ended the row


def test_requests_that_fail_together_count_as_one_failure() -> None:
    pool = pool_of("x", "y")
    for _ in range(50):
        pool.on_failure("x", now=0, random=0.999_999)
    assert "x" in chosen(pool, now=10)


def test_a_rest_is_at_least_half_of_its_length() -> None:
    pool = pool_of("x", "y")
    pool.on_failure("x", now=0, random=0)
    assert "x" not in chosen(pool, now=4.9)
    assert "x" in chosen(pool, now=5)


def test_a_refusing_site_does_not_concern_others() -> None:
    pool = pool_of("x", "y")
    pool.on_refusal("x", "a", now=0, random=0.5)
    assert set(chosen(pool, "a")) == {"y"}
    assert set(chosen(pool, "b")) == {"x", "y"}


def test_nothing_is_chosen_while_all_rest() -> None:
    pool = pool_of("x", "y")
    pool.on_refusal("x", "a", now=0, random=0.999_999)
    pool.on_failure("y", now=2, random=0.999_999)
    assert pool.choose("a", now=3) is None
    assert pool.seconds_until_usable("a", now=3) == pytest.approx(7, abs=0.01)
    assert pool.choose("b", now=3) == "x"
    assert pool.seconds_until_usable("b", now=3) == 0


def test_a_silent_proxy_rests_after_several_domains_a_silent_site_does_not_make_it_rest() -> None:
    pool = pool_of("x", "y")
    for _ in range(5):
        pool.on_no_response("x", "down", now=0, random=0.5)
    assert "x" in chosen(pool, "other")
    pool.on_no_response("x", "b", now=0, random=0.5)
    pool.on_response("x", "c")  # it works, so the count begins again
    pool.on_no_response("x", "d", now=0, random=0.5)
    pool.on_no_response("x", "e", now=0, random=0.5)
    assert "x" in chosen(pool, "other")
    pool.on_no_response("x", "f", now=0, random=0.5)
    assert "x" not in chosen(pool, "other")


def test_a_single_proxy_never_rests() -> None:
    pool = pool_of("x")
    pool.on_failure("x", now=0, random=0)
    pool.on_refusal("x", "a", now=0, random=0)
    assert chosen(pool, times=1) == ["x"]
    assert pool.seconds_until_usable("a", now=0) == 0


def test_a_domain_keeps_its_proxy_in_every_process() -> None:
    names = [f"p{number}" for number in range(10)]
    one, other = pool_of(*names, sticky=True), pool_of(*reversed(names), sticky=True)
    domains = [f"site{number}" for number in range(200)]
    keeps = {domain: one.choose(domain, now=0) for domain in domains}
    assert {domain: other.choose(domain, now=0) for domain in domains} == keeps
    assert set(keeps.values()) == set(names)  # spread over all of them
    one.on_failure("p3", now=0, random=0.5)
    moved = {domain for domain in domains if one.choose(domain, now=0) != keeps[domain]}
    assert moved == {domain for domain, proxy in keeps.items() if proxy == "p3"}
    assert {domain: one.choose(domain, now=10) for domain in domains} == keeps


def test_the_memory_of_rests_is_bounded() -> None:
    pool = pool_of("x", "y")
    for number in range(30_000):
        pool.on_refusal("x", f"site{number}", now=0, random=0.5)
    assert len(pool._domain_rests._rests) == 10_000
    assert pool.choose("site29999", now=0) == "y"

"""Domain policies under several editors."""

import asyncio
from typing import Any

import pytest

from gossamer.control import domains
from gossamer.errors import FrontierUnavailable, PoliciesChanged
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.model.crawl import DomainPolicy

from .pair import Pair
from .stage import Stage


async def test_an_edit_of_what_somebody_changed_meanwhile_is_refused(pair: Pair) -> None:
    frontier = pair.frontier
    mine = await frontier.domain_policy("a.test")
    await frontier.set_domain_policy("a.test", DomainPolicy(hits=2))
    with pytest.raises(PoliciesChanged):
        await frontier.set_domain_policy("a.test", DomainPolicy(scale=0.5), expected=mine)
    assert await frontier.domain_policy("a.test") == DomainPolicy(hits=2)


@pytest.mark.parametrize("domain", ["a.test", None])
async def test_an_edit_whose_answer_was_lost_may_be_repeated(stage: Stage, domain: str | None) -> None:
    pair = await stage.pair()
    stage.connections[-1].countdown = 0
    with pytest.raises(FrontierUnavailable):
        await pair.frontier.set_domain_policy(domain, DomainPolicy(window_seconds=0.3), expected=DomainPolicy())
    await pair.frontier.set_domain_policy(domain, DomainPolicy(window_seconds=0.3), expected=DomainPolicy())
    assert await pair.frontier.domain_policy(domain) == DomainPolicy(window_seconds=0.3)
    await stage.leave(pair)


@pytest.mark.parametrize("domain", ["a.test", None])
async def test_many_editors_of_different_fields_lose_nothing(pair: Pair, domain: str | None) -> None:
    await asyncio.gather(
        domains.change_policy(pair.frontier, domain, DomainPolicy(hits=7)),
        domains.change_policy(pair.frontier, domain, DomainPolicy(window_seconds=0.1)),
        domains.change_policy(pair.frontier, domain, DomainPolicy(scale=0.5)),
        domains.change_policy(pair.frontier, domain, DomainPolicy(concurrency=3)),
        domains.change_policy(pair.frontier, domain, DomainPolicy(moderated=False)),
    )
    assert await pair.frontier.domain_policy(domain) == DomainPolicy(
        hits=7, window_seconds=0.1, scale=0.5, concurrency=3, moderated=False
    )


async def test_the_blacklist_and_the_budget_are_edited_apart(pair: Pair) -> None:
    frontier = pair.frontier
    await domains.set_blacklisted(frontier, "a.test", blacklisted=True)
    await domains.change_policy(frontier, "a.test", DomainPolicy(hits=5, window_seconds=60.0))
    assert await frontier.domain_policy("a.test") == DomainPolicy(hits=5, window_seconds=60.0, blacklisted=True)
    await domains.remove_policy(frontier, "a.test")
    assert await frontier.domain_policy("a.test") == DomainPolicy(blacklisted=True)
    await domains.set_blacklisted(frontier, "a.test", blacklisted=False)
    assert (await frontier.domain_policies())[1] == {}


async def test_all_policies_are_replaced_at_once_unless_somebody_was_quicker(pair: Pair) -> None:
    frontier = pair.frontier
    await domains.replace_all(frontier, "default: {hits: 2}\ndomains: {a.test: {hits: 3}, b.test: {hits: 4}}")
    default, policies, version = await domains.snapshot(frontier)
    text = domains.dump_policies(default, policies)
    await domains.change_policy(frontier, "c.test", DomainPolicy(hits=5))
    with pytest.raises(PoliciesChanged):
        await domains.replace_all(frontier, "domains: {a.test: {hits: 9}}", expected_version=version)
    assert (await frontier.domain_policies())[1]["a.test"] == DomainPolicy(hits=3)
    *_, version = await domains.snapshot(frontier)
    await domains.replace_all(frontier, "blacklist: [a.test]", expected_version=version)
    assert await frontier.domain_policies() == (DomainPolicy(), {"a.test": DomainPolicy(blacklisted=True)})
    assert await domains.replace_all(frontier, text) > version
    assert (await domains.snapshot(frontier))[:2] == (default, policies)


async def test_an_edit_beside_a_replacement_is_never_lost(pair: Pair) -> None:
    frontier = pair.frontier
    names = [f"d{n}.test" for n in range(20)]
    text = "domains: {" + ", ".join(f"{name}: {{hits: 1}}" for name in names) + "}"

    async def edit(name: str) -> None:
        await domains.change_policy(frontier, name, DomainPolicy(scale=0.5))

    await asyncio.gather(domains.replace_all(frontier, text), *(edit(name) for name in names))
    _, policies = await frontier.domain_policies()
    # Each edit came before the replacement took that state into account, or stands beside it.
    assert all(policies[name] in (DomainPolicy(hits=1), DomainPolicy(hits=1, scale=0.5)) for name in names)
    await edit(names[0])
    assert (await frontier.domain_policy(names[0])).scale == 0.5


async def test_the_default_is_that_of_the_first_shard_while_the_others_have_an_older_one(stage: Stage) -> None:
    frontier = await stage.frontier()
    await frontier.set_domain_policy(None, DomainPolicy(hits=2))
    newer = codec.pack_policy(DomainPolicy(hits=3))
    await frontier._commands.call(0, "set_policy", "", newer, confirmed=True)  # the editor then dies
    assert (await frontier.domain_policies())[0] == DomainPolicy(hits=3) == await frontier.domain_policy(None)
    await domains.replace_all(frontier, "default: {hits: 4}")
    assert (await frontier.domain_policies())[0] == DomainPolicy(hits=4)
    await stage.leave()


async def test_an_editor_of_the_default_that_was_held_up_overwrites_no_later_edit(stage: Stage) -> None:
    slow, fast = await stage.frontier(), await stage.frontier()
    set_first, held_up = slow._commands.call, DomainPolicy(hits=2)

    async def set_then_wait(*arguments: Any, **options: Any) -> Any:
        reply = await set_first(*arguments, **options)
        if "set_policy" in arguments:
            await fast.set_domain_policy(None, DomainPolicy(hits=3), expected=held_up)
        return reply

    slow._commands.call = set_then_wait  # type: ignore[method-assign, assignment]
    await slow.set_domain_policy(None, held_up, expected=DomainPolicy())
    fields = [
        await fast._commands.plain(s, "HGET", keys.key(KeyPattern.POLICY), "*")
        for s, keys in enumerate(fast._commands.keys)
    ]
    assert fields == [codec.pack_policy(DomainPolicy(hits=3))] * stage.shards
    await stage.leave()

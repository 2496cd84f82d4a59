"""Domain policies under several editors."""

import asyncio

import pytest

from gossamer.control import domains
from gossamer.errors import FrontierUnavailable, PoliciesChanged
from gossamer.model.domain import DomainPolicy

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
        domains.change(pair.frontier, domain, DomainPolicy(hits=7)),
        domains.change(pair.frontier, domain, DomainPolicy(window_seconds=0.1)),
        domains.change(pair.frontier, domain, DomainPolicy(scale=0.5)),
        domains.change(pair.frontier, domain, DomainPolicy(concurrency=3)),
        domains.change(pair.frontier, domain, DomainPolicy(moderated=False)),
    )
    assert await pair.frontier.domain_policy(domain) == DomainPolicy(
        hits=7, window_seconds=0.1, scale=0.5, concurrency=3, moderated=False
    )


async def test_the_blacklist_and_the_budget_are_edited_apart(pair: Pair) -> None:
    frontier = pair.frontier
    await domains.blacklist(frontier, "a.test", blacklisted=True)
    await domains.put(frontier, "a.test", DomainPolicy(hits=5, window_seconds=60.0))
    assert await frontier.domain_policy("a.test") == DomainPolicy(hits=5, window_seconds=60.0, blacklisted=True)
    await domains.remove(frontier, "a.test")
    assert await frontier.domain_policy("a.test") == DomainPolicy(blacklisted=True)
    await domains.blacklist(frontier, "a.test", blacklisted=False)
    assert (await frontier.domain_policies())[1] == {}

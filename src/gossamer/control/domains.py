"""Changing how fast a site is fetched, live: single domains, the default, or all of it as one YAML text."""

from collections.abc import Collection

from gossamer.control.policy_yaml import checked_domain, dump_policies, load_policies, merged
from gossamer.errors import PoliciesChanged
from gossamer.frontier.base import Frontier
from gossamer.model.domain import DomainPolicy, WhenBlacklisted

_ATTEMPTS = 20
"""Of an edit that others get ahead of; each time only because one of them succeeded."""


class Blacklist:
    """The operator's blacklist, read again whenever a policy has changed."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._version = -1
        self._default = DomainPolicy()
        self._policies: dict[str, DomainPolicy] = {}

    async def of(self, domains: Collection[str]) -> dict[str, WhenBlacklisted]:
        """Return those of the domains that are blacklisted, with what becomes of their requests."""
        version = await self._frontier.policies_version()
        if version != self._version:
            self._default, self._policies = await self._frontier.domain_policies()
            self._version = version
        found = {}
        for domain in domains:
            policy = merged(self._default, self._policies.get(domain, DomainPolicy()))
            if policy.blacklisted:
                found[domain] = policy.when_blacklisted or WhenBlacklisted.HELD
        return found


async def policy_of_domain(frontier: Frontier, domain: str) -> DomainPolicy:
    """What is set for a domain itself; nothing set is an empty policy. Raises BadInput for what is no domain."""
    _, policies = await frontier.domain_policies()
    return policies.get(checked_domain(domain), DomainPolicy())


async def change(frontier: Frontier, domain: str | None, changes: DomainPolicy) -> DomainPolicy:
    """Set what `changes` has, keep the rest; None: the default policy. What is in force then.

    Two editors at once both get what they asked for, unless they set the same field."""
    return await _edit(frontier, domain, changes, keep=True)


async def put(frontier: Frontier, domain: str | None, policy: DomainPolicy) -> DomainPolicy:
    """Replace a domain's policy (None: the default); a blacklisted domain stays so unless `policy` says otherwise."""
    return await _edit(frontier, domain, policy, keep=False)


async def remove(frontier: Frontier, domain: str | None) -> None:
    """Forget what was set, all but the blacklist. May be repeated."""
    await _edit(frontier, domain, DomainPolicy(), keep=False)


async def blacklist(frontier: Frontier, domain: str, *, blacklisted: bool) -> None:
    """Put a domain on the blacklist, or take it off; the rest of its policy stays. May be repeated."""
    await _edit(frontier, domain, DomainPolicy(blacklisted=blacklisted or None), keep=True, off=not blacklisted)


async def dump(frontier: Frontier) -> tuple[str, int]:
    """(all policies as YAML, their version)."""
    while True:
        version = await frontier.policies_version()
        default, policies = await frontier.domain_policies()
        if version == await frontier.policies_version():
            return dump_policies(default, policies), version


async def load(
    frontier: Frontier, text: str | bytes, *, expected_version: int | None = None, whole: bool = False
) -> int:
    """Put this text's policies in the place of all there are; the new version. `whole`: as for `load_policies`.

    Raises BadInput, and PoliciesChanged when they are no longer at `expected_version` (None: whatever they are at)."""
    default, policies = load_policies(text, whole=whole)
    while True:
        version = await frontier.policies_version() if expected_version is None else expected_version
        try:
            return await frontier.replace_policies(default, policies, expected_version=version)
        except PoliciesChanged:
            if expected_version is not None:
                raise


async def _edit(
    frontier: Frontier, domain: str | None, changes: DomainPolicy, *, keep: bool, off: bool = False
) -> DomainPolicy:
    name = None if domain is None else checked_domain(domain)
    for attempt in range(_ATTEMPTS):
        before = await frontier.domain_policy(name)
        base = before if keep else DomainPolicy(blacklisted=before.blacklisted)
        after = merged(base, changes)
        if off:
            after = DomainPolicy(**{f: getattr(after, f) for f in after.__struct_fields__ if f != "blacklisted"})
        try:
            await frontier.set_domain_policy(name, None if after == DomainPolicy() else after, expected=before)
        except PoliciesChanged:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return after
    raise AssertionError

"""Changing how fast a site is fetched, live: single domains, the default, or all of it as one YAML text."""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

import yaml

from gossamer.errors import BadInput, PoliciesChanged
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import BudgetScope, DomainPolicy, WhenBlacklisted
from gossamer.policy.urls import registered_domain

MOST_BYTES = 16 * 1024 * 1024
EVERY_DOMAIN = "*"
"""What stands for the default policy where a domain is asked for."""
_DEEPEST = 10

_FIELDS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {}
"""By its name in YAML: the policy's field, what a value must be, and what makes it one (ValueError else)."""


def load_policies(text: str | bytes, *, whole: bool = False) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
    """(the default, the domains') of a YAML text:

        blacklist: [bad.example]
        default: {hits: 2, window: 1}
        domains:
          one.example: {window: 60, hits: 60}
          two.example: {window: 60, hits: 30, scale: 0.5, moderated: false, scope: ip, concurrency: 4}

    An empty text is no policy at all. Raises BadInput that names the faulty entry; `whole`: also for a text that may be
    the beginning of a longer one, because it is empty or something in it has no value.
    """
    if len(text) > MOST_BYTES:
        raise BadInput(f"the policies are longer than {MOST_BYTES // 2**20} MiB")
    try:
        _check_events(text)
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(f"this is no YAML: {' '.join(str(error).split())[:300]}") from None
    if whole:
        _check_whole(document)
    if document is None:
        return DomainPolicy(), {}
    if not isinstance(document, dict):
        raise BadInput("the policies must be a mapping with blacklist, default and domains")
    if unknown := set(document) - {"blacklist", "default", "domains"}:
        raise BadInput(f"{sorted(map(str, unknown))[0]}: unknown; there are blacklist, default and domains")
    default = policy_of(document.get("default") or {}, where="default")
    policies = {}
    for name, fields in _mapping(document.get("domains"), "domains").items():
        domain = checked_domain(name)
        policies[domain] = policy_of(fields or {}, where=f"domains: {domain}")
    for name in _sequence(document.get("blacklist"), "blacklist"):
        domain = checked_domain(name)
        policies[domain] = _changed(policies.get(domain, DomainPolicy()), {"blacklisted": True})
    return default, policies


def dump_policies(default: DomainPolicy, policies: Mapping[str, DomainPolicy]) -> str:
    """The same back, sorted; load_policies(dump_policies(x), whole=True) == x."""
    document: dict[str, Any] = {}
    if fields := fields_of(default):
        document["default"] = fields
    domains = {}
    for name, policy in sorted(policies.items()):
        fields = fields_of(policy)
        fields.pop("blacklisted", None)
        if fields or not policy.blacklisted:
            domains[name] = fields
    if domains:
        document["domains"] = domains
    if blacklist := sorted(name for name, policy in policies.items() if policy.blacklisted):
        document["blacklist"] = blacklist
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True) if document else "domains: {}\n"


def policy_of(fields: object, *, where: str) -> DomainPolicy:
    """A policy from its YAML or JSON fields. Raises BadInput with `where` in it."""
    given: dict[str, Any] = {}
    for name, value in _mapping(fields, where).items():
        if name not in _FIELDS:
            raise BadInput(f"{where}: {name}: unknown; there are {', '.join(_FIELDS)}")
        field, what, make = _FIELDS[name]
        if value is None:
            continue
        try:
            given[field] = make(value)
        except (ValueError, TypeError, OverflowError):
            raise BadInput(f"{where}: {name}: must be {what}, not {value!r:.80}") from None
    return DomainPolicy(**given)


def fields_of(policy: DomainPolicy) -> dict[str, Any]:
    """What is set of a policy, by its names in YAML and JSON."""
    named = {}
    for name, (field, _, _) in _FIELDS.items():
        value = getattr(policy, field)
        if value is not None:
            named[name] = value.value if isinstance(value, StrEnum) else value
    return named


def merged(policy: DomainPolicy, changes: DomainPolicy) -> DomainPolicy:
    """`policy` with what is set in `changes`."""
    return _changed(policy, {f: v for f in policy.__struct_fields__ if (v := getattr(changes, f)) is not None})


def checked_domain(name: object) -> str:
    """The registered domain that is meant: budgets are kept for nothing smaller. Raises BadInput."""
    if not isinstance(name, str) or not name or len(name) > 253 or any(mark in name for mark in " /:@?#\t\n"):
        raise BadInput(f"{name!r:.80} is no domain; write one like example.com")
    if name == EVERY_DOMAIN:
        raise BadInput("* is no domain; what counts for every domain is the default policy")
    lowered = name.lower().rstrip(".")
    try:
        ascii_name = lowered if lowered.isascii() else lowered.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{name!r:.80} is no domain; write one like example.com") from None
    registered = registered_domain(ascii_name)
    if registered != ascii_name:
        raise BadInput(f"{name} is a part of {registered}, and budgets are kept for that; use {registered}")
    return registered


def _check_events(text: str | bytes) -> None:
    """Neither tags (the safe loader sees to that) nor aliases nor depth: the first make objects, the second make a
    small text enormous, the third takes the parser time that grows with its square."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise BadInput("YAML aliases (*name) are not taken; write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise BadInput("this is no YAML of policies: it is nested too deep")


def _check_whole(document: object) -> None:
    if not document:
        raise BadInput("it is empty; to remove all policies write domains: {}")
    for section, entries in _items(document):
        if entries is None:
            raise BadInput(f"{section}: has no value; write {'[]' if section == 'blacklist' else '{}'} for none")
        for name, fields in _items(entries):
            if fields is None:
                raise BadInput(f"{section}: {name}: has no value")
            for field, value in _items(fields):
                if value is None:
                    raise BadInput(f"{section}: {name}: {field}: has no value")


def _items(part: object) -> Iterable[tuple[object, object]]:
    return part.items() if isinstance(part, dict) else ()


def _changed(policy: DomainPolicy, fields: dict[str, Any]) -> DomainPolicy:
    return DomainPolicy(**{f: fields.get(f, getattr(policy, f)) for f in policy.__struct_fields__})


def _mapping(value: object, where: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: must be a mapping, not {value!r:.80}")
    return value


def _sequence(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{where}: must be a list, not {value!r:.80}")
    return value


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def make(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or not least <= value <= most:
            raise ValueError
        return int(value)

    return make


def _number(least: float, most: float) -> Callable[[Any], float]:
    def make(value: Any) -> float:
        if isinstance(value, bool | str) or not least <= value <= most:
            raise ValueError
        return float(value)

    return make


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_FIELDS |= {
    "hits": ("hits", "a whole number from 1 to 1,000,000", _whole(1, 1_000_000)),
    "window": ("window_seconds", "seconds from 0.001 to 604800", _number(0.001, 7 * 86400)),
    "scale": ("scale", "a number from 0 to 1", _number(0, 1)),
    "moderated": ("moderated", "true or false", _yes_or_no),
    "elastic": ("elastic", "true or false", _yes_or_no),
    "scope": ("scope", "domain, type, ip or type+ip", BudgetScope),
    "concurrency": ("concurrency", "a whole number from 1 to 10,000", _whole(1, 10_000)),
    "blacklisted": ("blacklisted", "true or false", _yes_or_no),
    "when_blacklisted": ("when_blacklisted", "held or dropped", WhenBlacklisted),
}


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

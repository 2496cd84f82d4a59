"""Domain policies: reading and writing them as YAML or JSON, and changing them in a running frontier.

A policy limits how fast a domain is fetched, or puts it on the blacklist. To add a field, add it to DomainPolicy, which
explains the fields, and to `_FIELDS` here; the REST model in `api.domains` and the schema `domain.json` describe the
same fields. Fixed: the names in `_FIELDS` and of the sections `blacklist`, `default` and `domains`, because operators'
files have them; and that an edit passes the policy it has read as `expected`, because otherwise one of two concurrent
edits would be lost."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import yaml

from gossamer.errors import BadInput, PoliciesChanged
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import (
    CONCURRENCY_RANGE,
    HITS_RANGE,
    SCALE_RANGE,
    WINDOW_SECONDS_RANGE,
    BudgetScope,
    DomainPolicy,
    WhenBlacklisted,
)
from gossamer.net.names import domain_name
from gossamer.policy.urls import registered_domain
from gossamer.storage.documents import check_keys

MAX_YAML_BYTES = 16 * 1024 * 1024
"""Size limit of a text with policies, in UTF-8. A lower limit refuses longer lists, and a text of this size already
keeps the parser busy for many seconds."""
_MAX_YAML_DEPTH = 10
"""Levels of nesting. Not below 3, which a valid text has; the parser's time grows with the square of the depth."""
DEFAULT_POLICY = "*"
"""Name of the default policy, in place of a domain, in requests and in the API: fixed."""
_MAX_DOMAIN_CHARACTERS = 253
"""Longest name in DNS: fixed. The schema `domain.json` has the same limit."""
_MAX_ERROR_CHARACTERS = 300
"""Characters of a YAML error that are repeated."""


class _Field(NamedTuple):
    """A field of a policy in YAML and JSON."""

    attribute: str
    """Name in DomainPolicy."""
    valid: str
    """Description of valid values, for error messages."""
    convert: Callable[[Any], Any]
    """Returns the value for DomainPolicy. Raises ValueError, TypeError or OverflowError for an invalid value."""


def _whole_number(limits: tuple[int, int]) -> tuple[str, Callable[[Any], int]]:
    """Return `valid` and `convert` for whole numbers in this range. 2.0 counts as a whole number, True does not."""
    low, high = limits

    def convert(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or not low <= value <= high:
            raise ValueError
        return int(value)

    return f"a whole number from {low:,} to {high:,}", convert


def _number(unit: str, limits: tuple[float, float]) -> tuple[str, Callable[[Any], float]]:
    """Return `valid` and `convert` for numbers in this range."""
    low, high = limits

    def convert(value: Any) -> float:
        if isinstance(value, bool | str) or not low <= value <= high:
            raise ValueError
        return float(value)

    return f"{unit} from {low} to {high}", convert


def _true_or_false(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_FLAG = ("true or false", _true_or_false)

_FIELDS: dict[str, _Field] = {
    "hits": _Field("hits", *_whole_number(HITS_RANGE)),
    "window": _Field("window_seconds", *_number("seconds", WINDOW_SECONDS_RANGE)),
    "scale": _Field("scale", *_number("a number", SCALE_RANGE)),
    "moderated": _Field("moderated", *_FLAG),
    "elastic": _Field("elastic", *_FLAG),
    "scope": _Field("scope", "domain, type, ip or type+ip", BudgetScope),
    "concurrency": _Field("concurrency", *_whole_number(CONCURRENCY_RANGE)),
    "blacklisted": _Field("blacklisted", *_FLAG),
    "when_blacklisted": _Field("when_blacklisted", "held or dropped", WhenBlacklisted),
}
"""Fields of a policy by their names in YAML and JSON, in the order in which they are written."""


# --- policies as text -------------------------------------------------------------------------------------------------


def load_policies(text: str | bytes, *, whole: bool = False) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
    """Return the default policy and the policies by domain from a YAML text:

        blacklist: [bad.example]
        default: {hits: 2, window: 1}
        domains:
          one.example: {window: 60, hits: 60}
          two.example: {window: 60, hits: 30, scale: 0.5, moderated: false, scope: ip, concurrency: 4}

    An empty text has no policies. Raises BadInput that names the invalid entry. `whole`: also raise it for a text that
    may be the beginning of a longer one, because it is empty or an entry in it has no value.
    """
    if len(text.encode(errors="replace") if isinstance(text, str) else text) > MAX_YAML_BYTES:
        raise BadInput(f"the policies are longer than {MAX_YAML_BYTES // 2**20} MiB")
    try:
        _check_structure(text)
        document = yaml.load(text, Loader=_PolicyLoader)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(
            f"the policies are not valid YAML: {' '.join(str(error).split())[:_MAX_ERROR_CHARACTERS]}"
        ) from None
    if whole:
        _check_whole(document)
    if document is None:
        return DomainPolicy(), {}
    if not isinstance(document, dict):
        raise BadInput("the policies must be a mapping with blacklist, default and domains")
    if unknown := set(document) - {"blacklist", "default", "domains"}:
        raise BadInput(f"{sorted(map(str, unknown))[0]}: unknown; use blacklist, default and domains")
    default = parse_policy(document.get("default") or {}, where="default")
    policies = {}
    for name, fields in _mapping(document.get("domains"), "domains").items():
        domain = parse_domain(name)
        policies[domain] = parse_policy(fields or {}, where=f"domains: {domain}")
    for name in _sequence(document.get("blacklist"), "blacklist"):
        domain = parse_domain(name)
        policies[domain] = merge_policies(policies.get(domain, DomainPolicy()), DomainPolicy(blacklisted=True))
    return default, policies


def dump_policies(default: DomainPolicy, policies: Mapping[str, DomainPolicy]) -> str:
    """Return policies as YAML, sorted: `load_policies(dump_policies(x), whole=True) == x`."""
    document: dict[str, Any] = {}
    if fields := policy_fields(default):
        document["default"] = fields
    domains = {}
    for name, policy in sorted(policies.items()):
        fields = policy_fields(policy)
        if policy.blacklisted:  # an explicit False stays: it exempts the domain from a default that blacklists all
            del fields["blacklisted"]
        if fields or not policy.blacklisted:
            domains[name] = fields
    if domains:
        document["domains"] = domains
    if blacklist := sorted(name for name, policy in policies.items() if policy.blacklisted):
        document["blacklist"] = blacklist
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True) if document else "domains: {}\n"


def parse_policy(fields: object, *, where: str) -> DomainPolicy:
    """Return the policy for a mapping from YAML or JSON. Raises BadInput; its message begins with `where`."""
    given: dict[str, Any] = {}
    for name, value in _mapping(fields, where).items():
        if name not in _FIELDS:
            raise BadInput(f"{where}: {name}: unknown; the fields are {', '.join(_FIELDS)}")
        field = _FIELDS[name]
        if value is None:
            continue
        try:
            given[field.attribute] = field.convert(value)
        except (ValueError, TypeError, OverflowError):
            raise BadInput(f"{where}: {name}: must be {field.valid}, not {value!r:.80}") from None
    return DomainPolicy(**given)


def policy_fields(policy: DomainPolicy) -> dict[str, Any]:
    """Return the fields of a policy that are set, by their names in YAML and JSON."""
    named = {}
    for name, field in _FIELDS.items():
        value = getattr(policy, field.attribute)
        if value is not None:
            named[name] = value.value if isinstance(value, StrEnum) else value
    return named


def merge_policies(policy: DomainPolicy, changes: DomainPolicy) -> DomainPolicy:
    """Return `policy` with the fields that are set in `changes`."""
    merged = {}
    for field in policy.__struct_fields__:
        change = getattr(changes, field)
        merged[field] = getattr(policy, field) if change is None else change
    return DomainPolicy(**merged)


def parse_domain(name: object) -> str:
    """Return a registered domain as the frontier spells it. Raises BadInput for anything else, also for a subdomain,
    because rate limits apply to registered domains only."""
    if name == DEFAULT_POLICY:
        raise BadInput("* is not a domain; to change the limits of all domains, change the default policy")
    try:
        spelled = domain_name(name) if isinstance(name, str) and len(name) <= _MAX_DOMAIN_CHARACTERS else ""
    except BadInput:
        spelled = ""
    if not spelled or ".." in spelled:
        raise BadInput(f"{name!r:.80} is not a domain; write one like example.com")
    registered = registered_domain(spelled)
    if registered != spelled:
        raise BadInput(
            f"{name} is a part of {registered}, and policies apply to the registered domain; use {registered}"
        )
    return registered


class _PolicyLoader(yaml.CSafeLoader):
    """Loader that refuses a key that stands twice, such as a domain, of which one policy would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        check_keys(node)
        return super().construct_mapping(node, deep)


def _check_structure(text: str | bytes) -> None:
    """Raise BadInput for aliases, which make a small text enormous, and for deep nesting. Must come before the text is
    loaded. The safe loader itself refuses tags, which create objects."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise BadInput("YAML aliases (*name) are not allowed; write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_YAML_DEPTH:
            raise BadInput("the policies are nested too deep")


def _check_whole(document: object) -> None:
    """Raise BadInput for an empty document, and for an entry without a value. A text that is cut off between two lines
    is one of these."""
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
    """Return the entries of a mapping; nothing for anything else, which `load_policies` refuses."""
    return part.items() if isinstance(part, dict) else ()


def _mapping(value: object, where: str) -> dict[Any, Any]:
    """Return a mapping, an empty one for None. Raises BadInput; its message begins with `where`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: must be a mapping, not {value!r:.80}")
    return value


def _sequence(value: object, where: str) -> list[Any]:
    """Return a list, an empty one for None. Raises BadInput; its message begins with `where`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{where}: must be a list, not {value!r:.80}")
    return value


# --- policies in the frontier -----------------------------------------------------------------------------------------

EDIT_ATTEMPTS = 20
"""Attempts of an edit when other edits come first. Each failed attempt means that another edit succeeded. More attempts
let an edit succeed among more concurrent ones."""


class Blacklist:
    """The operator's blacklist. It is loaded again from the frontier (the store of waiting requests) whenever a policy
    has changed; otherwise `among` is cheap."""

    def __init__(self, frontier: ValkeyFrontier) -> None:
        self._frontier = frontier
        self._version = -1
        """Version of the policies that are loaded here. -1, which the frontier never has: none are yet."""
        self._default = DomainPolicy()
        self._policies: dict[str, DomainPolicy] = {}

    async def among(self, domains: Collection[str]) -> dict[str, WhenBlacklisted]:
        """Return those of the domains that are blacklisted, and whether their requests are held or dropped."""
        version = await self._frontier.policies_version()
        if version != self._version:
            self._default, self._policies = await self._frontier.domain_policies()
            self._version = version
        return _blacklisted(self._default, {name: self._policies.get(name, DomainPolicy()) for name in domains})


async def blacklisted_among(frontier: ValkeyFrontier, domains: Sequence[str]) -> dict[str, WhenBlacklisted]:
    """Return what `Blacklist.among` does, for a single look at a few domains: only their policies are read."""
    default, *own = await asyncio.gather(*(frontier.domain_policy(name) for name in (None, *domains)))
    return _blacklisted(default, dict(zip(domains, own, strict=True)))


def _blacklisted(default: DomainPolicy, policies: Mapping[str, DomainPolicy]) -> dict[str, WhenBlacklisted]:
    found = {}
    for domain, own in policies.items():
        policy = merge_policies(default, own)
        if policy.blacklisted:
            found[domain] = policy.when_blacklisted or WhenBlacklisted.HELD
    return found


async def change_policy(frontier: ValkeyFrontier, domain: str | None, changes: DomainPolicy) -> DomainPolicy:
    """Set the fields that are set in `changes`, keep the others, and return the new policy. `domain` None: the default
    policy.

    Two concurrent edits both succeed, unless they set the same field."""
    return await _edit(frontier, domain, changes, keep_others=True)


async def remove_policy(frontier: ValkeyFrontier, domain: str | None) -> None:
    """Unset all fields of a policy (None: the default policy) but `blacklisted`. May be repeated."""
    await _edit(frontier, domain, DomainPolicy(), keep_others=False)


async def remove_rate_limit(frontier: ValkeyFrontier, domain: str | None) -> None:
    """Unset `hits`, `window` and `scale` of a policy (None: the default policy), and keep the rest. May be repeated."""
    await _edit(frontier, domain, DomainPolicy(), keep_others=True, unset=("hits", "window_seconds", "scale"))


async def set_blacklisted(frontier: ValkeyFrontier, domain: str, *, blacklisted: bool) -> None:
    """Set a domain's `blacklisted` to True, or unset it, and keep the rest of its policy. May be repeated."""
    # `changes` cannot unset a field, because None in it means no change.
    changes = DomainPolicy(blacklisted=blacklisted or None)
    await _edit(frontier, domain, changes, keep_others=True, unset=() if blacklisted else ("blacklisted",))


_READS = 3
"""Times that policies are read until they are as one version has them."""
_MAX_KEPT = 100_000
"""Policies that a `PolicyList` keeps, about half a kilobyte each."""


async def snapshot(frontier: ValkeyFrontier) -> tuple[DomainPolicy, dict[str, DomainPolicy], int]:
    """Return the default policy, the policies by domain, and the version that they have together.

    While thousands are being changed one after the other, they never have one: then they are as they were read, with a
    version that is over, so that no edit of it is accepted."""
    # `domain_policies` makes several calls. An edit between these changes the version; then all is read again.
    for _ in range(_READS):
        version = await frontier.policies_version()
        default, policies = await frontier.domain_policies()
        if version == await frontier.policies_version():
            break
    return default, policies, version


class PolicyList:
    """Policies in the order of their names, which are read again only after a change."""

    def __init__(self, frontier: ValkeyFrontier) -> None:
        self._frontier = frontier
        self._version: int | None = None
        self._read: tuple[DomainPolicy, dict[str, DomainPolicy], list[str]] | None = None

    async def read(self) -> tuple[DomainPolicy, dict[str, DomainPolicy], list[str], int]:
        """Return the default policy, the policies by domain, their domains in order, and their version."""
        if self._read is not None and await self._frontier.policies_version() == self._version:
            assert self._version is not None
            return *self._read, self._version
        default, policies, version = await snapshot(self._frontier)
        names = sorted(policies)
        is_kept = len(names) <= _MAX_KEPT
        self._read, self._version = ((default, policies, names), version) if is_kept else (None, None)
        return default, policies, names, version


async def replace_all(
    frontier: ValkeyFrontier, text: str | bytes, *, expected_version: int | None = None, whole: bool = False
) -> int:
    """Replace all policies with those of a YAML text, and return their version. `whole`: see `load_policies`.

    Raises BadInput, and PoliciesChanged if the version is no longer `expected_version` (None: any)."""
    default, policies = load_policies(text, whole=whole)
    while True:
        version = await frontier.policies_version() if expected_version is None else expected_version
        try:
            return await frontier.replace_policies(default, policies, expected_version=version)
        except PoliciesChanged:
            if expected_version is not None:
                raise


async def _edit(
    frontier: ValkeyFrontier,
    domain: str | None,
    changes: DomainPolicy,
    *,
    keep_others: bool,
    unset: Collection[str] = (),
) -> DomainPolicy:
    """Set the fields that are set in `changes`, and return the new policy. `keep_others` False: unset all other fields
    but `blacklisted`. `unset`: further fields to unset."""
    name = None if domain is None else parse_domain(domain)
    for attempt in range(EDIT_ATTEMPTS):
        before = await frontier.domain_policy(name)
        base = before if keep_others else DomainPolicy(blacklisted=before.blacklisted)
        after = merge_policies(base, changes)
        after = msgspec.structs.replace(after, **dict.fromkeys(unset))
        try:
            await frontier.set_domain_policy(name, None if after == DomainPolicy() else after, expected=before)
        except PoliciesChanged:
            if attempt + 1 == EDIT_ATTEMPTS:
                raise
        else:
            return after
    raise AssertionError("the last attempt returns or raises")

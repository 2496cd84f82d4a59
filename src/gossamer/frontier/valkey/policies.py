"""The operator's policies: rules for fetching from a domain (rate, concurrency, blacklist), and a default for all.

A domain's policy is on the shard (part of the frontier) that has its queues. The default is on all shards, and shard
0's counts; the others have another one while a change is under way, or after one that was interrupted, until the next.
A change of the default moves the waiting domains of every shard (`apply_default_policy`); maintenance resumes an
interrupted move.

Fixed: the names of stored fields, and that a new default is first set on shard 0, where it is compared with what the
editor expects: otherwise editors could overwrite each other's changes.
"""

import asyncio
from collections.abc import Mapping

from gossamer.errors import PoliciesChanged
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern, shard_of
from gossamer.model.crawl import DomainPolicy

# Stored fields of the policy hash (policies.lua): the default, and the prefix of a domain's. The only other field is
# `version`. Must not change.
_DEFAULT = "*"
_DOMAIN = "d:"

_DOMAINS_A_STEP = 300
"""Domains that one call moves after a change of the default (about). More make each call longer, and a shard executes
no other call meanwhile."""


async def read_policy(commands: ScriptCommands, domain: str | None) -> DomainPolicy:
    """Return a domain's policy (None: the default); an empty one where none is set."""
    shard, field = (0, _DEFAULT) if domain is None else (shard_of(domain, commands.count), _DOMAIN + domain)
    blob = await _stored_policy(commands, shard, field)
    return codec.unpack_policy(blob) if blob else DomainPolicy()


async def _stored_policy(commands: ScriptCommands, shard: int, field: str) -> bytes:
    """Return a packed policy. Empty: none is set."""
    blob: bytes | None = await commands.plain(shard, "HGET", commands.keys[shard].key(KeyPattern.POLICY), field)
    return blob or b""


async def set_policy(
    commands: ScriptCommands, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None
) -> None:
    """Set or (None) remove the policy of a domain (None: the default). May be repeated.

    `expected`: raise PoliciesChanged unless this policy or the new one is set. None: replace any.
    """
    packed = _pack(policy or DomainPolicy())
    expectation: list[Argument] = [] if expected is None else [_pack(expected)]
    shard = 0 if domain is None else shard_of(domain, commands.count)
    if not await commands.call(shard, "set_policy", domain or "", packed, *expectation, confirmed=True):
        raise PoliciesChanged(domain or "the default policy")
    if domain is None:
        await _copy_default(commands)
        await asyncio.gather(*(apply_default_policy(commands, shard) for shard in range(commands.count)))


async def _copy_default(commands: ScriptCommands) -> None:
    """Copy the default of shard 0 to the other shards; again if another editor changed it meanwhile."""
    default = await _stored_policy(commands, 0, _DEFAULT)
    while True:
        await asyncio.gather(*(commands.call(shard, "set_policy", "", default) for shard in range(1, commands.count)))
        latest = await _stored_policy(commands, 0, _DEFAULT)
        if latest == default:
            return
        default = latest


def _pack(policy: DomainPolicy) -> bytes:
    """Return the stored form. Empty: the policy sets nothing, and is not stored."""
    return b"" if policy == DomainPolicy() else codec.pack_policy(policy)


async def read_policies(commands: ScriptCommands) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
    """Return the default, and the policies of domains by name."""
    default, domains, _ = await _read(commands)
    return default, domains


async def policies_version(commands: ScriptCommands) -> int:
    """Return the sum of the shards' versions, which grows with every change on any shard."""
    versions = await asyncio.gather(
        *(
            commands.plain(shard, "HGET", keys.key(KeyPattern.POLICY), "version")
            for shard, keys in enumerate(commands.keys)
        )
    )
    return sum(int(version or 0) for version in versions)


async def replace_policies(
    commands: ScriptCommands, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
) -> int:
    """Replace all policies, one after the other; returns the new version. Raises PoliciesChanged when another caller
    changes one meanwhile."""
    old_default, old, version = await _read(commands)
    if version != expected_version:
        raise PoliciesChanged(f"they are at version {version}, no longer at {expected_version}")
    changes: list[tuple[str | None, DomainPolicy, DomainPolicy]] = [
        (name, old.get(name, DomainPolicy()), policies.get(name, DomainPolicy()))
        for name in sorted(old.keys() | policies.keys())
    ]
    changes.append((None, old_default, default))
    for name, before, after in changes:
        if before != after:
            await set_policy(commands, name, after, expected=before)
    return await policies_version(commands)


async def _read(commands: ScriptCommands) -> tuple[DomainPolicy, dict[str, DomainPolicy], int]:
    """Return the default, the policies of domains by name, and the version."""
    default, domains, version = DomainPolicy(), {}, 0
    for shard, keys in enumerate(commands.keys):
        row = codec.hash_fields(await commands.plain(shard, "HGETALL", keys.key(KeyPattern.POLICY)))
        for field_bytes, value in row.items():
            field = field_bytes.decode()
            if field == _DEFAULT:
                default = codec.unpack_policy(value) if shard == 0 else default  # see above: shard 0's counts
            elif field.startswith(_DOMAIN):
                domains[field.removeprefix(_DOMAIN)] = codec.unpack_policy(value)
            else:  # the shard's `version`
                version += int(value)
    return default, domains, version


async def apply_default_policy(commands: ScriptCommands, shard: int) -> None:
    """Move a shard's waiting domains to the places that the new default gives them. May be repeated by any process."""
    while await commands.call(shard, "apply_default_policy", _DOMAINS_A_STEP):
        pass

"""The operator's policies: a domain's policy is on its shard; the default is on all shards, and shard 0's counts.

A change of the default moves the waiting domains of every shard (`apply_default_policy`); maintenance resumes an
interrupted move.
"""

import asyncio
from collections.abc import Mapping

from gossamer.errors import PoliciesChanged
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern, shard_of
from gossamer.model.crawl import DomainPolicy

_DEFAULT = "*"
_DOMAIN = "d:"
"""Fields of the policy hash: the default, and prefix of a domain's."""
_DOMAINS_A_STEP = 300
"""Domains that one call moves after a change of the default. More make the call longer."""


async def read_policy(commands: ScriptCommands, domain: str | None) -> DomainPolicy:
    """Return a domain's policy (None: the default); an empty one where none is set."""
    shard, field = (0, _DEFAULT) if domain is None else (shard_of(domain, commands.count), _DOMAIN + domain)
    blob = await commands.plain(shard, "HGET", commands.keys[shard].key(KeyPattern.POLICY), field)
    return DomainPolicy() if blob is None else codec.unpack_policy(blob)


async def set_policy(
    commands: ScriptCommands, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None
) -> None:
    """Set or (None) remove a policy. `expected`: raise PoliciesChanged unless it or the new policy is set. May be
    repeated."""
    wanted = [policy or DomainPolicy(), *([] if expected is None else [expected])]
    arguments: list[Argument] = [b"" if p == DomainPolicy() else codec.pack_policy(p) for p in wanted]
    name = domain or ""
    shard = 0 if domain is None else shard_of(domain, commands.count)
    if not await commands.call_confirmed(shard, "set_policy", name, *arguments):
        raise PoliciesChanged(domain or "the default policy")
    if domain is None:
        await commands.everywhere("set_policy", "", arguments[0])
        await asyncio.gather(*(apply_default_policy(commands, shard) for shard in range(commands.count)))


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
    """Return the default, the policies of domains, and the version."""
    default, domains, version = DomainPolicy(), {}, 0
    for shard, keys in enumerate(commands.keys):
        row = codec.hash_fields(await commands.plain(shard, "HGETALL", keys.key(KeyPattern.POLICY)))
        for field_bytes, value in row.items():
            field = field_bytes.decode()
            if field == _DEFAULT:
                default = codec.unpack_policy(value)
            elif field.startswith(_DOMAIN):
                domains[field.removeprefix(_DOMAIN)] = codec.unpack_policy(value)
            else:
                version += int(value)
    return default, domains, version


async def apply_default_policy(commands: ScriptCommands, shard: int) -> None:
    """Move a shard's waiting domains to the places that the new default gives them. May be repeated by any process."""
    while await commands.call(shard, "apply_default_policy", _DOMAINS_A_STEP):
        pass

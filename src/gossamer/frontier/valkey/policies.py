"""The operator's policies: a domain's on its shard; the default on all, where shard 0 decides between two changes."""

import asyncio
from collections.abc import Mapping

from gossamer.errors import PoliciesChanged
from gossamer.frontier.valkey import codec, info
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import shard_of
from gossamer.model.crawl import DomainPolicy

_DOMAINS_A_STEP = 300


async def read_policy(commands: ScriptCommands, domain: str | None) -> DomainPolicy:
    """The default's for None; nothing set: one without a field."""
    shard, field = (0, "*") if domain is None else (shard_of(domain, commands.count), f"d:{domain}")
    blob = await commands.plain(shard, "HGET", commands.keys[shard].policy, field)
    return DomainPolicy() if blob is None else codec.unpack_policy(blob)


async def set_policy(
    commands: ScriptCommands, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
) -> None:
    """`expected`: only if it is what is there, or the new one already; else PoliciesChanged. May be repeated."""
    wanted = [policy or DomainPolicy(), *([] if expected is None else [expected])]
    arguments: list[Argument] = [b"" if p == DomainPolicy() else codec.pack_policy(p) for p in wanted]
    name = domain or ""
    shard = 0 if domain is None else shard_of(domain, commands.count)
    if not await commands.call_confirmed(shard, "set_policy", name, *arguments):
        raise PoliciesChanged(domain or "the default policy")
    if domain is None:
        await commands.everywhere("set_policy", "", arguments[0])
        await asyncio.gather(*(rescore(commands, shard) for shard in range(commands.count)))


async def read_policies(commands: ScriptCommands) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
    """The default, and those of domains by name."""
    default, domains, _ = await _read(commands)
    return default, domains


async def policies_version(commands: ScriptCommands) -> int:
    """Grows with every change on any shard."""
    versions = await asyncio.gather(
        *(commands.plain(shard, "HGET", keys.policy, "version") for shard, keys in enumerate(commands.keys))
    )
    return sum(int(version or 0) for version in versions)


async def replace_policies(
    commands: ScriptCommands, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
) -> int:
    """All at once, one by one; the new version. Raises PoliciesChanged when somebody else changed one meanwhile."""
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
    default, domains, version = DomainPolicy(), {}, 0
    for shard, keys in enumerate(commands.keys):
        row = info.pairs(await commands.plain(shard, "HGETALL", keys.policy))
        for field, value in row.items():
            if field == b"*":
                default = codec.unpack_policy(value)
            elif field.startswith(b"d:"):
                domains[field[2:].decode()] = codec.unpack_policy(value)
            else:
                version += int(value)
    return default, domains, version


async def rescore(commands: ScriptCommands, shard: int) -> None:
    """After a change of the default: put the shard's domains where it says now. May be repeated, by anybody."""
    while await commands.call(shard, "apply_default_policy", _DOMAINS_A_STEP):
        pass

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


async def _stored_policy(commands: ScriptCommands, shard: int, field: str) -> bytes:
    """Return a packed policy. Empty: none is set."""
    blob: bytes | None = await commands.plain(shard, "HGET", commands.keys[shard].key(KeyPattern.POLICY), field)
    return blob or b""


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


class PolicyStore:
    """The part of ValkeyFrontier for the operator's policies."""

    _commands: ScriptCommands

    async def domain_policy(self, domain: str | None) -> DomainPolicy:
        """Return the operator's policy for a domain itself (None: the default); an empty policy where none is set."""
        shard, field = (0, _DEFAULT) if domain is None else (shard_of(domain, self._commands.count), _DOMAIN + domain)
        blob = await _stored_policy(self._commands, shard, field)
        return codec.unpack_policy(blob) if blob else DomainPolicy()

    async def set_domain_policy(
        self, domain: str | None, policy: DomainPolicy | None, *, expected: DomainPolicy | None = None
    ) -> None:
        """Set or (None) remove a domain's policy; domain None: the default. The next lease applies it.

        `expected`: raise PoliciesChanged unless this policy (empty: none) or the new one is set, so that two editors
        never overwrite each other's changes. None: overwrite any."""
        packed = _pack(policy or DomainPolicy())
        expectation: list[Argument] = [] if expected is None else [_pack(expected)]
        shard = 0 if domain is None else shard_of(domain, self._commands.count)
        if not await self._commands.call(shard, "set_policy", domain or "", packed, *expectation, confirmed=True):
            raise PoliciesChanged(domain or "the default policy")
        if domain is None:
            await _copy_default(self._commands)
            await asyncio.gather(
                *(apply_default_policy(self._commands, shard) for shard in range(self._commands.count))
            )

    async def domain_policies(self) -> tuple[DomainPolicy, dict[str, DomainPolicy]]:
        """Return the operator's default and all domains' policies."""
        default, domains, _ = await _read(self._commands)
        return default, domains

    async def policies_version(self) -> int:
        """Return a number that grows with every change of any policy."""
        versions = await asyncio.gather(
            *(
                self._commands.plain(shard, "HGET", keys.key(KeyPattern.POLICY), "version")
                for shard, keys in enumerate(self._commands.keys)
            )
        )
        return sum(int(version or 0) for version in versions)

    async def replace_policies(
        self, default: DomainPolicy, policies: Mapping[str, DomainPolicy], *, expected_version: int
    ) -> int:
        """Replace all policies by these; returns the new version.

        Raises PoliciesChanged when the version is not `expected_version`, or when another caller changes a policy
        meanwhile: its change is not overwritten, and changes made up to then stay. Read the policies and repeat."""
        old_default, old, version = await _read(self._commands)
        if version != expected_version:
            raise PoliciesChanged(f"they are at version {version}, no longer at {expected_version}")
        changes: list[tuple[str | None, DomainPolicy, DomainPolicy]] = [
            (name, old.get(name, DomainPolicy()), policies.get(name, DomainPolicy()))
            for name in sorted(old.keys() | policies.keys())
        ]
        changes.append((None, old_default, default))
        for name, before, after in changes:
            if before != after:
                await self.set_domain_policy(name, after, expected=before)
        return await self.policies_version()

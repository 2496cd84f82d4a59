"""The person at the controls: changes policies by every way there is, and notes when each was asked and confirmed."""

import asyncio
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.domains import dump_policies, policy_fields
from gossamer.model.crawl import DomainPolicy
from gossamer.valkey.shards import Shards
from tests.politeness.checker import Change
from tests.politeness.plan import Plan, Turn, Way
from tests.politeness.rules import rule_of
from tests.servers.crawling import command
from tests.servers.service import Talk, Up

_APPID = "operator"
_FLAGS = {"hits": "--hits", "window": "--window", "scale": "--scale", "concurrency": "--concurrency"}


@dataclass(frozen=True, slots=True)
class Told:
    """A change that was made. Times are on the monotonic clock."""

    domain: str | None
    after: DomainPolicy
    asked: float
    answered: float


class Operator:
    """Made by `open`; to be closed."""

    def __init__(self, service: Up, frontier: str, talk: Talk, shards: Shards) -> None:
        self._service = service
        self._frontier = frontier
        self._talk = talk
        self._shards = shards
        self.told: list[Told] = []

    @classmethod
    async def open(cls, service: Up, frontier: str) -> "Operator":
        """`service`: with a REST API, and its bus in the frontier's server."""
        topics = Topics()
        shards = await Shards.connect(frontier)
        talk = Talk(StreamsBus(shards, keep_until_acknowledged=topics.requests), topics)
        await talk.listen(topics.outbound_to(_APPID))
        return cls(service, frontier, talk, shards)

    async def close(self) -> None:
        await self._talk.close()
        await self._talk.bus.close()
        await self._shards.close()

    async def begin(self, plan: Plan) -> None:
        """Put all policies in force with which the run begins."""
        policies = {site.name: site.policy for site in plan.sites if site.policy != DomainPolicy()}
        text = dump_policies(plan.default, policies).encode()
        headers = {"Content-Type": "application/yaml", "If-Match": "*"}
        await asyncio.to_thread(self._rest, "PUT", "/v1/domains", text, headers)

    async def make(self, turn: Turn) -> None:
        """Make a change and note it. Raises AssertionError if it is refused."""
        asked = time.monotonic()
        match turn.way:
            case Way.REST:
                body = msgspec.json.encode(policy_fields(turn.changes))
                headers = {"Content-Type": "application/json"}
                await asyncio.to_thread(self._rest, "PATCH", f"/v1/domains/{turn.domain or '*'}", body, headers)
            case Way.COMMAND:
                await self._command(turn)
            case Way.BUS:
                await self._bus(turn)
        self.told.append(Told(turn.domain, turn.after, asked, time.monotonic()))

    def _rest(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        asked = urllib.request.Request(f"{self._service.api}{path}", data=body, headers=headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert answer.status == 200, answer.status

    async def _command(self, turn: Turn) -> None:
        words = ["domains", "set", "--default" if turn.domain is None else turn.domain, "--frontier", self._frontier]
        for name, value in policy_fields(turn.changes).items():
            if name == "moderated":
                words.append("--moderated" if value else "--bursts")
            else:
                words += [_FLAGS[name], str(value)]
        process = await asyncio.create_subprocess_exec(
            *command(*words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async def _bus(self, turn: Turn) -> None:
        uuid = f"turn-{len(self.told)}"
        request = {"uuid": uuid, "appid": _APPID, "domain": turn.domain}
        if turn.changes.blacklisted is not None:
            action = "blacklist-update" if turn.changes.blacklisted else "blacklist-remove"
            request["action"] = action
        else:
            assert turn.changes.window_seconds is not None
            request |= {
                "action": "domain-update",
                "hits": turn.changes.hits,
                "window": int(turn.changes.window_seconds),
                "scale": turn.changes.scale,
            }
        await self._talk.say(request)
        answer = await self._talk.answer(uuid, appid=_APPID)
        assert "error" not in answer, answer


def timelines(plan: Plan, told: Sequence[Told]) -> dict[str, list[Change]]:
    """What was in force when, by domain."""
    own = {site.name: site.policy for site in plan.sites}
    default = plan.default
    lines = {name: [Change(rule_of(policy, default))] for name, policy in own.items()}
    for one in told:
        if one.domain is None:
            default = one.after
        else:
            own[one.domain] = one.after
        for name in own if one.domain is None else (one.domain,):
            rule = rule_of(own[name], default)
            if rule != lines[name][-1].rule:
                lines[name].append(Change(rule, one.asked, one.answered))
    return lines

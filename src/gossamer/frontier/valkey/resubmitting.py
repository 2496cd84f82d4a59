"""Seeds that are submitted again: whether a finished run has seen them, and whether they ask for more than before."""

from collections.abc import Sequence
from enum import Enum, auto

from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.adding import RequestAdder
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import shard_of
from gossamer.frontier.valkey.listing import terms_on
from gossamer.frontier.valkey.submitting import every
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch
from gossamer.policy.scope import covers

_FINGERPRINTS_A_CALL = 5000
_MOST_TERMS = 100
"""Terms of a crawl that new ones are compared with. Terms beyond them count as narrower: in the worst case a finished
crawl is fetched again."""


class FinishedRun(Enum):
    """What a finished run can say of a submission."""

    KNOWN = auto()
    """It has seen every URL, and followed links at least as far."""
    NEW = auto()
    """It has not seen every URL."""
    WIDER = auto()
    """It has seen some URLs, but under a smaller maxdepth or a narrower scope."""


async def recall(
    commands: ScriptCommands, adding: RequestAdder, run: Run, terms: Terms, batches: Sequence[Batch]
) -> FinishedRun:
    """Compare a submission with a finished run. Nothing is changed."""
    token, packed = run.crawl.id.token, adding.pack_terms(terms)
    by_shard: dict[int, list[int]] = {}
    for batch in batches:
        if not batch.unfiltered:
            by_shard.setdefault(shard_of(batch.domain, commands.count), []).extend(batch.fingerprints)

    async def ask(shard: int, fingerprints: Sequence[int]) -> tuple[int, bool]:
        seen, strange = 0, False
        for first in range(0, len(fingerprints), _FINGERPRINTS_A_CALL):
            part = fingerprints[first : first + _FINGERPRINTS_A_CALL]
            count, known_terms = await commands.call(
                shard, "count_seen", token, run.number, run.generation, packed.digest, packed.blob, *part
            )
            seen += count
            strange |= bool(count) and not known_terms
        return seen, strange and await is_wider(commands, shard, token, terms, packed)

    found = await every(ask(shard, fingerprints) for shard, fingerprints in by_shard.items())
    if any(wider for _, wider in found):
        return FinishedRun.WIDER
    whole = sum(len(batch.urls) for batch in batches)
    return FinishedRun.KNOWN if sum(seen for seen, _ in found) == whole else FinishedRun.NEW


async def is_wider(commands: ScriptCommands, shard: int, token: str, terms: Terms, packed: codec.PackedTerms) -> bool:
    """Return whether the terms ask for more than all others under which the crawl queued anything on this shard."""
    if terms.maxdepth == 0:
        return False
    stored = await terms_on(commands, shard, token, most=_MOST_TERMS)
    others = [codec.unpack_stored_terms(raw) for raw in stored[:_MOST_TERMS] if raw != packed.blob]
    return not any(covers(other, terms) for other in others)

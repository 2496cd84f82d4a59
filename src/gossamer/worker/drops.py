"""Counts of links that are dropped, by the reason under which the frontier counts them."""

from gossamer.model.request import DropReason

_DROP_REASONS = {
    "known": DropReason.DUPLICATE.value,
    "allow_regex": DropReason.FILTERED.value,
    "deny_regex": DropReason.FILTERED.value,
    "too_long": DropReason.BAD_URL.value,
}
"""Reasons of the extractor and the scope that have another name in the frontier's counts."""


def drop_reason(reason: str) -> str:
    """Return the reason under which the frontier counts a refusal by the extractor or the scope."""
    return _DROP_REASONS.get(reason, reason)


def count_drop(drops: dict[str, int], reason: str, count: int = 1) -> None:
    """Count links that are dropped for this reason."""
    drops[str(reason)] = drops.get(str(reason), 0) + count

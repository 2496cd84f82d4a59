"""Quantiles."""

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values (0 < share <= 1) do not exceed. Not of nothing."""
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]

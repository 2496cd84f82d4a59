"""Counts of pages that may have no end, by the pattern of their URLs. Workers count them, the frontier keeps them."""

from enum import StrEnum

import msgspec


class Growth(StrEnum):
    """Reason to think that the pages of a pattern have no end. The frontier stores these words."""

    DEEP = "deep"
    """They are many links away from the start."""
    REPEATS = "repeats"
    """Their paths repeat directories."""
    SESSIONS = "sessions"
    """A parameter has another token on each page."""
    PARAMETERS = "parameters"
    """Many parameters are combined."""


class PatternCount(msgspec.Struct):
    """Pages of one pattern."""

    growth: Growth
    pages: int = 0
    depth: int = 0
    """Most links between the start of the crawl and one of them."""
    example: str = ""
    """URL of the latest of them."""

    def plus(self, other: "PatternCount") -> "PatternCount":
        """Return the sum as a new object."""
        depth, pages = max(self.depth, other.depth), self.pages + other.pages
        return PatternCount(self.growth, pages, depth, other.example or self.example)

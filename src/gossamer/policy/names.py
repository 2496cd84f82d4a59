"""What pools, spiders and egresses may be called."""

_FORBIDDEN = frozenset("|,\n")
"""They part names from each other where several stand in one key or one field."""


def name_fault(name: str) -> str:
    """Why none of them may be called that; empty: it may."""
    if _FORBIDDEN.isdisjoint(name):
        return ""
    return f"a pool, spider or egress may not contain '|', ',' or a line break: {name[:200]!r}"

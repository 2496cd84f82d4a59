"""Where the site is."""

import os

SITE = os.environ.get("ESTATE_URL", "http://localhost:9312").rstrip("/")
"""`python -m gossamer.fakeweb --estate 1667 --port 9312` serves it there."""


def at(path: str) -> str:
    """The URL of a path of the site."""
    return SITE + path

"""The dashboard: pages in a browser that show and steer a crawl service.

It asks the public API for all that it shows, so whatever a page can do, a program can do as well. Its pages are made on
the server, work without scripts, and refresh their parts while they are visible.
"""

from typing import Final

ROOT: Final = "/ui"
"""Path of the dashboard on the server of the API."""


def dashboard_address(api_address: str) -> str:
    """Return the dashboard's address beside an API at this one."""
    return f"{api_address.rstrip('/')}{ROOT}/"

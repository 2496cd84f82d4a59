"""Sites with answers of their own beside the generated hosts, which other packages register.

A package registers a function as an entry point of the group `gossamer.fakeweb`. The function gets the `WebSpec` and
the port of the web, and returns the sites that the specification asks for, in the order in which they are asked whether
they serve a host.
"""

import contextlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from gossamer.errors import BadInput
from gossamer.extras import checkout_advice
from gossamer.fakeweb.answer import Answer
from gossamer.fakeweb.control import HostilePlace
from gossamer.fakeweb.spec import WebSpec

_GROUP = "gossamer.fakeweb"


class ExtraSite(Protocol):
    """A site with answers of its own beside the generated hosts."""

    wants_bodies: bool
    """True if `answer` needs the bodies of requests."""

    def serves(self, host: str) -> bool:
        """Return whether the site answers for this lower-case host name."""
        ...

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request. `cookie` is the Cookie header, empty without one."""
        ...

    def places(self) -> list[HostilePlace]:
        """Return where its hostile hosts begin; empty where it has none. Large bodies are made by then."""
        ...

    def reset(self) -> None:
        """Forget what clients did."""
        ...

    async def open(self) -> None:
        """Open the ports of its own, if it has any."""
        ...

    def close(self) -> None:
        """Close the ports of its own."""
        ...


def extra_sites(spec: WebSpec, port: int) -> list[ExtraSite]:
    """Return the sites that `spec` asks for. Raises `BadInput` where no package with them is installed."""
    if not (spec.estate or spec.members or spec.scripted or spec.hostile):
        return []
    found: list[Callable[[WebSpec, int], list[ExtraSite]]] = []
    with contextlib.suppress(ImportError):  # an entry point of a package that is gone
        found += [entry.load() for entry in entry_points(group=_GROUP)]
    sites = [site for make in found for site in make(spec, port)]
    if not sites:
        raise BadInput(
            "--estate, --members, --scripted and --hostile need the package gossamer-fakeweb of the checkout: "
            f"{checkout_advice('fakeweb')}"
        )
    return sites

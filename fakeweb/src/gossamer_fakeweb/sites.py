"""The sites that a fake web serves on request beside its generated hosts. The entry point
`gossamer.fakeweb` of this package registers them.

To add a site, write a class with the methods of `ExtraSite` and append it in `extra_sites`; a site that serves a host
hides later ones that do.
"""

from gossamer.fakeweb.answer import Answer
from gossamer.fakeweb.control import HostilePlace
from gossamer.fakeweb.extra_site import ExtraSite
from gossamer.fakeweb.site import ADDRESS
from gossamer.fakeweb.spec import WebSpec
from gossamer_fakeweb.estate import HOSTS, Estate
from gossamer_fakeweb.hostile.gates import Gates
from gossamer_fakeweb.hostile.web import Hostile
from gossamer_fakeweb.members import Members
from gossamer_fakeweb.scripted import Scripted


def extra_sites(spec: WebSpec, port: int) -> list[ExtraSite]:
    """Return the sites that `spec` asks for, in the order in which they are asked whether they serve a host."""
    sites: list[ExtraSite] = []
    if spec.estate:
        sites.append(EstateSite(spec.estate))
    if spec.members:
        sites.append(MembersSite(spec.members))
    if spec.scripted:
        sites.append(ScriptedSite(spec.scripted))
    if spec.hostile:
        sites.append(HostileSite(port=port, private_port=spec.hostile_port))
    return sites


class EstateSite:
    """The estate agent's site, under the host names of this machine."""

    wants_bodies = True

    def __init__(self, indexes: int) -> None:
        """`indexes`: the number of index pages."""
        self._indexes = indexes
        self._estate = Estate(indexes)

    def serves(self, host: str) -> bool:
        """Return whether the host is this machine."""
        return host in HOSTS

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request."""
        return self._estate.answer(method, target, body=body, cookie=cookie)

    def places(self) -> list[HostilePlace]:
        """Return nothing: no host of it is hostile."""
        return []

    def reset(self) -> None:
        """Forget sessions and look-ups."""
        self._estate = Estate(self._indexes)

    async def open(self) -> None:
        """Do nothing: the site has no ports of its own."""

    def close(self) -> None:
        """Do nothing: the site has no ports of its own."""


class MembersSite(Members):
    """The site for members, under its host name."""

    def places(self) -> list[HostilePlace]:
        """Return nothing: no host of it is hostile."""
        return []

    async def open(self) -> None:
        """Do nothing: the site has no ports of its own."""

    def close(self) -> None:
        """Do nothing: the site has no ports of its own."""


class ScriptedSite(Scripted):
    """The site that scripts build, under its host name."""

    def places(self) -> list[HostilePlace]:
        """Return nothing: no host of it is hostile."""
        return []

    async def open(self) -> None:
        """Do nothing: the site has no ports of its own."""

    def close(self) -> None:
        """Do nothing: the site has no ports of its own."""


class HostileSite:
    """The hostile hosts, and the gates: ports that are hostile before a request can be made."""

    wants_bodies = False

    def __init__(self, *, port: int, private_port: int) -> None:
        """`port`: of the web; `private_port`: port in links to private addresses, 0: the same."""
        self._hostile = Hostile(port=port, private_port=private_port)
        self._gates = Gates(ADDRESS)

    def serves(self, host: str) -> bool:
        """Return whether the host is one of them."""
        return self._hostile.serves(host)

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request, which depends on its URL only."""
        return self._hostile.answer(host, target)

    def places(self) -> list[HostilePlace]:
        """Return where each hostile host begins, and make their large bodies."""
        self._hostile.prepare()
        return self._hostile.places()

    def reset(self) -> None:
        """Do nothing: answers depend on the request only."""

    async def open(self) -> None:
        """Open the gates."""
        await self._gates.open()
        self._hostile.gate_ports = dict(self._gates.ports)

    def close(self) -> None:
        """Close the gates."""
        self._gates.close()

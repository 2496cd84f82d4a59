"""All hostile hosts together: their names, and the answers of each.

Fixed: the host names, which the documentation and the tests of hostile webs use, and that an answer depends on nothing
but the request.
"""

from collections.abc import Mapping

from gossamer.fakeweb.answer import Answer, html, plain
from gossamer.fakeweb.control import HostilePlace
from gossamer_fakeweb.hostile import addresses, bombs, gates, pages, robots, traps, wire
from gossamer_fakeweb.hostile.addresses import FORMS
from gossamer_fakeweb.hostile.case import Asked, Case, Cases, robots_of

INDEX = "hostile.test"
"""The host that lists the others."""

# Names of kinds, as docs/howto/fakeweb.md lists them. The gates are one more kind: they are ports, not hosts.
KINDS: Mapping[str, Cases] = {
    "wire": wire.CASES,
    "bombs": bombs.CASES,
    "pages": pages.CASES,
    "traps": traps.CASES,
    "robots": robots.CASES,
    "private": addresses.CASES,
}
CASES: Cases = {name: case for cases in KINDS.values() for name, case in cases.items()}
"""All cases by name; a name must not be in two kinds."""
NUMBERED = ("private-redirect", "robots-to")
"""Cases with a copy for each spelling of a private address (`addresses.FORMS`), to which that copy leads."""


class Hostile:
    """The hostile half of a web. Its answers depend on nothing but the request."""

    def __init__(self, *, port: int, private_port: int = 0, gate_ports: Mapping[str, int] | None = None) -> None:
        """`port`: of the web; `private_port`: port in links to private addresses, 0: the same. `gate_ports`: see
        below."""
        self._port = port
        self._private_port = private_port or port
        self.gate_ports = dict(gate_ports or {})
        """Ports of the gates (see gates.py) by name, which only the list shows."""

    def serves(self, host: str) -> bool:
        """Return whether this lower-case host name is that of a hostile host."""
        return host == INDEX or _case_of(host) is not None

    def answer(self, host: str, path: str) -> Answer:
        """Return the answer for a path on a host."""
        if host == INDEX:
            return self._index() if path == "/" else plain("Not found.\n", status=404)
        found = _case_of(host)
        if found is None:
            return plain("No such host here.\n", status=421)
        case, copy = found
        asked = Asked(host, path, copy, self._port, self._private_port)
        return robots_of(case, asked) if path == "/robots.txt" else case.answer(asked)

    def prepare(self) -> None:
        """Make the large bodies now, which takes a second or two, instead of when they are first asked for."""
        for name, case in CASES.items():
            asked = Asked(f"bad-{name}.test", "/", 0, self._port, self._private_port)
            case.answer(asked)
            robots_of(case, asked)

    def places(self) -> list[HostilePlace]:
        """Return every case, with each copy of the numbered ones, and every gate."""
        found = []
        for kind, cases in KINDS.items():
            for name, case in cases.items():
                hosts = [f"bad-{name}.test"]
                if name in NUMBERED:
                    hosts = [f"bad-{name}-{number}.test" for number in range(len(FORMS))]
                found += [
                    HostilePlace(name=name, kind=kind, about=case.about, url=f"http://{host}:{self._port}/")
                    for host in hosts
                ]
        for name, port in self.gate_ports.items():
            kind_of = gates.KINDS[name]
            url = f"{kind_of.scheme}://bad-{name}.test:{port}/"
            found.append(HostilePlace(name=name, kind="gates", about=kind_of.about, url=url))
        return found

    def _index(self) -> Answer:
        rows = "\n".join(f'<li><a href="{place.url}">{place.url}</a> {place.about}' for place in self.places())
        return html(f"<html><title>Hostile hosts</title><ul>\n{rows}\n</ul></html>")


def _case_of(host: str) -> tuple[Case, int] | None:
    """Return the case and the number of its copy for `bad-NAME.test` or `bad-NAME-7.test`, and for hosts below that.
    None: no such case."""
    labels = host.split(".")
    if len(labels) < 2 or labels[-1] != "test" or not labels[-2].startswith("bad-"):
        return None
    name = labels[-2].removeprefix("bad-")
    if name in CASES:
        return CASES[name], 0
    name, _, number = name.rpartition("-")
    return (CASES[name], int(number)) if name in CASES and number.isdecimal() and len(number) < 12 else None

"""All hostile hosts together: which there are, and what each answers."""

from collections.abc import Mapping

from gossamer.fakeweb.answer import Answer, html, plain
from gossamer.fakeweb.control import HostilePlace
from gossamer_fakeweb.hostile import addresses, bombs, gates, pages, robots, traps, wire
from gossamer_fakeweb.hostile.addresses import FORMS
from gossamer_fakeweb.hostile.case import Asked, Case, Cases, robots_of

INDEX = "hostile.test"
"""The host that lists the others."""

KINDS: Mapping[str, Cases] = {
    "wire": wire.CASES,
    "bombs": bombs.CASES,
    "pages": pages.CASES,
    "traps": traps.CASES,
    "robots": robots.CASES,
    "private": addresses.CASES,
}
CASES: Cases = {name: case for cases in KINDS.values() for name, case in cases.items()}
NUMBERED = ("private-redirect", "robots-to")
"""Cases that come in as many copies as there are private addresses to lead to."""


class Hostile:
    """The hostile half of a web. Its answers depend on nothing but the request."""

    def __init__(self, *, port: int, private_port: int = 0, gate_ports: Mapping[str, int] | None = None) -> None:
        """`port`: of the web; `private_port`: where links to private addresses lead, 0: the same."""
        self._port = port
        self._private_port = private_port or port
        self.gate_ports = dict(gate_ports or {})
        """Ports of the gates, by name."""

    def serves(self, host: str) -> bool:
        """Return whether this lower-case host name is one of them."""
        return host == INDEX or _case_of(host) is not None

    def answer(self, host: str, path: str) -> Answer:
        """The answer for a path of a host that is served."""
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
        """Every case, the gates too; of numbered ones each copy."""
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
    """The case and its copy for `bad-NAME.test` or `bad-NAME-7.test`, and hosts below that."""
    labels = host.split(".")
    if len(labels) < 2 or labels[-1] != "test" or not labels[-2].startswith("bad-"):
        return None
    name = labels[-2].removeprefix("bad-")
    if name in CASES:
        return CASES[name], 0
    name, _, number = name.rpartition("-")
    return (CASES[name], int(number)) if name in CASES and number.isdecimal() and len(number) < 12 else None

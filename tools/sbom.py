"""Bill of materials of what a release ships, as CycloneDX 1.6: python -m tools.sbom FILE

The components are the Python packages of the images (`IMAGE_LOCKS`), the crates in the compiled extension, and the
files of others in the dashboard, each with its licence. A component without a licence, or with one that is not
permitted here, is an error: exit code 1.

A release uploads no image. What an image has of Debian depends on the day on which it is built, so the bill leaves it
out; `dpkg-query --show` lists it.
"""

import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
PERMITTED = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC",
        "LGPL-2.1-or-later", "LGPL-3.0-only", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unicode-3.0", "Unlicense", "Zlib",
        "ZPL-2.1",
    }
)  # fmt: skip
"""Licences under which others' work may be shipped beside or within ours: identifiers of SPDX."""
IMAGE_LOCKS = ("requirements-image.lock", "requirements-platform.lock")
"""Lock files of the packages in the images of deploy/Dockerfile."""
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Identifiers of SPDX for the words of older packages."""


class Component(msgspec.Struct, frozen=True):
    """Work of others that is shipped."""

    name: str
    version: str
    purl: str
    """Address of the package, by the specification of package URLs."""
    licence: str
    """Expression of SPDX. Empty: unknown."""
    sha256: tuple[str, ...] = ()

    @property
    def is_permitted(self) -> bool:
        """True: its licence permits that it is shipped."""
        words = re.split(r"[\s()/]+", self.licence.replace(" WITH LLVM-exception", ""))
        names = {word for word in words if word and word not in ("AND", "OR")}
        either = "AND" not in words
        return bool(names) and (bool(names & PERMITTED) if either else names <= PERMITTED)

    def entry(self) -> dict[str, Any]:
        """Return its entry in the bill."""
        found = {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "licenses": [{"expression": self.licence.replace("/", " OR ")}],
        }
        if self.sha256:
            found["hashes"] = [{"alg": "SHA-256", "content": one} for one in self.sha256[:1]]
        return found


def packages() -> Iterator[Component]:
    """Yield the packages of the images. Their licences are read from this environment, which has them all."""
    installed = {_plain(one.metadata["Name"]): one for one in distributions()}
    locks = "\n".join((ROOT / name).read_text() for name in IMAGE_LOCKS)
    components = {}
    for name, version, marker, hashes in re.findall(
        r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)([^\n]*)((?:\n    --hash=\S+[^\n]*)*)", locks, re.MULTILINE
    ):
        found = installed.get(_plain(name))
        if found is None and ("python_full_version" in marker or "'pypy'" in marker.lower()):
            continue  # only for other versions of Python than that of the images, or for another Python
        digests = tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes))
        # Of several files of a package, the lock does not say which one is installed.
        one = Component(
            name, version, f"pkg:pypi/{_plain(name)}@{version}", _licence(found), digests if len(digests) == 1 else ()
        )
        components[one.purl] = one
    yield from components.values()


def linked_crates() -> Iterator[dict[str, Any]]:
    """Yield what cargo knows of each crate in the compiled extension, by name. Needs cargo."""
    native = ROOT / "native"
    subprocess.run([sys.executable, native / "build_backend.py", "restore", native], check=True)
    told = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", native / "Cargo.toml"],
        capture_output=True, check=True,
    )  # fmt: skip
    graph = json.loads(told.stdout)
    crates = {one["id"]: one for one in graph["packages"]}
    macros = {name for name, one in crates.items() for target in one["targets"] if "proc-macro" in target["kind"]}
    parts = {one["id"]: one for one in graph["resolve"]["nodes"]}
    ours = graph["resolve"]["root"]
    shipped, pending = {ours}, [ours]
    while pending:
        for dependency in parts[pending.pop()]["deps"]:
            # Others, and macros, are programs of the build and of tests.
            is_shipped = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_shipped and dependency["pkg"] not in shipped | macros:
                shipped.add(dependency["pkg"])
                pending.append(dependency["pkg"])
    yield from sorted((crates[name] for name in shipped - {ours}), key=lambda one: (one["name"], one["version"]))


def crates() -> Iterator[Component]:
    """Yield the crates in the compiled extension. Needs cargo."""
    for one in linked_crates():
        name, version = one["name"], one["version"]
        yield Component(name, version, f"pkg:cargo/{name}@{version}", one["license"] or "")


def vendored() -> Iterator[Component]:
    """Yield the files of others in the dashboard."""
    for path in sorted((ROOT / "src").rglob("vendored/files.toml")):
        for file in tomllib.loads(path.read_text())["file"]:
            package, version = file["package"].partition(" ")[0], file["version"]
            purl = f"pkg:npm/{package}@{version}#{file['name']}"
            yield Component(file["name"], version, purl, file["licence"], (file["sha256"],))


def bill(components: list[Component], version: str) -> dict[str, Any]:
    """Return the bill of these components, for a version of ours."""
    ordered = sorted(components, key=lambda one: one.purl)
    own = f"pkg:pypi/gossamer-crawl@{version}"
    content = msgspec.json.encode([own, ordered])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # From the content, so that the same release has the same bill.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content.decode())}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "gossamer-crawl",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": [one.entry() for one in ordered],
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(package: Distribution | None) -> str:
    """Return the licence that a package states: as an expression, in a word, or as a classifier."""
    if package is None:
        return ""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return expression
    words = (told.get("License") or "").strip()
    if words in PERMITTED:
        return words
    classes = [one.rpartition(" :: ")[2] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    named = [_SPDX[one] for one in (*classes, words) if one in _SPDX]
    return " OR ".join(dict.fromkeys(named))


def main(arguments: list[str]) -> int:
    """Run the program."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    components = [*packages(), *crates(), *vendored()]
    if refused := [one for one in components if not one.is_permitted]:
        for one in refused:
            sys.stderr.write(f"{one.purl}: its licence is {one.licence or 'unknown'}\n")
        return 1
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/gossamer/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    Path(arguments[0]).write_text(json.dumps(bill(components, found[1]), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The bill of materials of a release: everything that is shipped, with a licence that permits it."""

import re
import shutil
from pathlib import Path

import pytest

from tools import sbom
from tools.sbom import Component

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("licence", "permitted"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False),
        ("", False),
    ],
)
def test_a_licence_is_permitted_or_not(licence: str, permitted: bool) -> None:
    assert Component("a", "1", "pkg:pypi/a@1", licence).is_permitted is permitted


def test_every_package_of_the_images_has_a_permitted_licence() -> None:
    found = {one.name: one for one in sbom.packages()}
    assert {f"requirements-{name}.lock" for name in ("image", "platform")} == set(sbom.IMAGE_LOCKS)
    for name in sbom.IMAGE_LOCKS:
        locked = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / name).read_text(), re.MULTILINE))
        assert locked - set(found) <= {"async-timeout", "backports-zstd", "brotlicffi", "pypydispatcher"}, (
            "they are for other Pythons"
        )
    assert not [one for one in found.values() if not one.is_permitted]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="without cargo there is no extension to ship")
def test_every_crate_of_the_extension_has_a_permitted_licence() -> None:
    found = list(sbom.crates())
    assert {"pyo3", "libc"} <= {one.name for one in found}
    assert "gossamer_native" not in {one.name for one in found}
    assert not [one for one in found if not one.is_permitted]


def test_the_bill_names_each_component_once_and_is_the_same_for_the_same_release() -> None:
    components = [*sbom.packages(), *sbom.vendored()]
    made = sbom.bill(components, "1.0.0")
    assert made == sbom.bill(components[::-1], "1.0.0")
    assert made["serialNumber"] != sbom.bill(components, "1.0.1")["serialNumber"]
    named = [one["bom-ref"] for one in made["components"]]
    assert len(set(named)) == len(named) == len(components)
    assert any(name.startswith("pkg:npm/uplot@") for name in named)

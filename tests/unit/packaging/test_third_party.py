"""Licences of the crates: the wheel of the compiled extension has the text of each."""

import shutil
import tomllib
from pathlib import Path

import pytest

from tools import third_party

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "native"


def test_the_wheel_has_our_licence_and_those_of_others() -> None:
    project = tomllib.loads((NATIVE / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE", third_party.FILE.name]
    assert (NATIVE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.skipif(shutil.which("cargo") is None, reason="without cargo there are no sources of crates")
def test_the_file_has_the_texts_of_the_crates_that_are_locked() -> None:
    text = third_party.third_party()
    assert third_party.FILE.read_text() == text, "run python -m tools.third_party"
    assert "Copyright 2023 Yagiz Nizipli and Daniel Lemire" in text  # ada-url
    assert "expected - An implementation of std::expected" in text  # which its C++ part has taken over


@pytest.mark.parametrize(
    ("licence", "names"),
    [
        ("MIT OR Apache-2.0", ["LICENSE-MIT", "NOTICE", "deps/part.cpp", "src/lib.rs"]),
        ("MIT AND Apache-2.0", ["LICENSE-APACHE", "LICENSE-MIT", "NOTICE", "deps/part.cpp", "src/lib.rs"]),
    ],
)
def test_a_crate_has_notices_in_files_and_in_comments(licence: str, names: list[str], tmp_path: Path) -> None:
    for name, text in {
        "LICENSE-APACHE": "Apache\n",
        "LICENSE-MIT": "Copyright Ada\n",
        "NOTICE": "Parts are of Bea.\n",
        "README.md": "Copyright Ada\n",
        "deps/part.cpp": "/* Copyright Cleo\n * All may use it. */\nint a;\n/* no notice */\n",
        "src/lib.rs": "use a;\n// Copyright Dora\n//\n// All may use it.\nfn f() {} // what f does\n",
        "src/other.rs": "// Copyright Dora\n//\n// All may use it.\n",
        "tests/all.rs": "// Copyright Eve\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = dict(third_party.notices(tmp_path, licence))
    assert list(found) == names
    assert found["deps/part.cpp"] == "Copyright Cleo\nAll may use it."
    assert found["src/lib.rs"] == "Copyright Dora\n\nAll may use it."

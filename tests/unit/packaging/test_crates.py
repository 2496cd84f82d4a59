"""The lock of the extension's crates: pinned with hashes, without an address, and used by every build."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "native"
CRATES = (NATIVE / "crates.lock").read_text()
_INDEX = 'source = "registry+index"\n'


def test_every_crate_has_a_version_and_a_hash_and_none_an_address() -> None:
    entries = CRATES.split("[[package]]\n")[1:]
    [own] = [entry for entry in entries if "checksum = " not in entry]
    assert own.startswith('name = "gossamer-native"\ndependencies')
    assert all(re.search(r'^version = "\d+\.\d+\.\d+', entry, re.MULTILINE) for entry in entries if entry != own)
    assert all(re.search(r'^checksum = "[0-9a-f]{64}"$', entry, re.MULTILINE) for entry in entries if entry != own)
    assert "source" not in CRATES
    assert "://" not in CRATES


def test_it_has_the_versions_that_the_extension_names() -> None:
    for name, wanted in tomllib.loads((NATIVE / "Cargo.toml").read_text())["dependencies"].items():
        version = (wanted["version"] if isinstance(wanted, dict) else wanted).removeprefix("=")
        assert f'name = "{name}"\nversion = "{version}"\n' in CRATES


def test_cargo_gets_its_lock_with_the_index_of_each_crate_and_the_version_of_the_extension(tmp_path: Path) -> None:
    for name in ("crates.lock", "Cargo.toml"):
        (tmp_path / name).write_text((NATIVE / name).read_text())
    lock = tmp_path / "Cargo.lock"
    lock.write_text(_INDEX)  # from any earlier one, so that no index is asked
    restore = [sys.executable, NATIVE / "build_backend.py", "restore", tmp_path]
    subprocess.run(restore, check=True)
    crates = tomllib.loads(lock.read_text())["package"]
    assert len(crates) == CRATES.count("[[package]]")
    assert [one for one in crates if ("source" in one) != ("checksum" in one)] == []
    [own] = [one for one in crates if "source" not in one]
    assert own["version"] == tomllib.loads((NATIVE / "Cargo.toml").read_text())["package"]["version"]
    assert lock.read_text().replace(_INDEX, "").replace(f'version = "{own["version"]}"\ndep', "dep", 1) == CRATES
    before = lock.stat().st_mtime_ns
    subprocess.run(restore, check=True)
    assert lock.stat().st_mtime_ns == before  # or cargo looks at all crates again


def test_a_packaging_tool_without_cargo_asks_for_one_and_uses_it(tmp_path: Path) -> None:
    native, brought = tmp_path / "native", tmp_path / "brought"
    for folder in (native, brought, tmp_path / "empty"):
        folder.mkdir()
    for name in ("crates.lock", "Cargo.toml", "pyproject.toml", "build_backend.py"):
        (native / name).write_text((NATIVE / name).read_text())
    (brought / "cargo").write_text(f"#!{sys.executable}\nopen('Cargo.lock', 'w').write({_INDEX!r})\n")
    (brought / "cargo").chmod(0o755)
    (brought / "puccinialin.py").write_text(f"def setup_rust():\n    return {{'PATH': {str(brought)!r}}}\n")
    program = "import build_backend; print(build_backend.get_requires_for_build_wheel())"
    environment = {"PATH": str(tmp_path / "empty")}
    asked = subprocess.run([sys.executable, "-c", program], cwd=native, env=environment, capture_output=True, text=True)
    assert asked.stdout == "['puccinialin']\n", asked.stderr
    assert not (native / "Cargo.lock").exists()
    restore = [sys.executable, "build_backend.py", "restore", "."]
    subprocess.run(restore, cwd=native, env={**environment, "PYTHONPATH": str(brought)}, check=True)
    assert (native / "Cargo.lock").read_text().count(_INDEX) == CRATES.count("checksum = ")


def test_every_build_uses_it() -> None:
    project = tomllib.loads((NATIVE / "pyproject.toml").read_text())
    assert project["tool"]["maturin"]["locked"] is True
    assert project["build-system"]["build-backend"] == "build_backend"
    for path in ("tools/setup", "tools/dist", "tools/pythons", "deploy/Dockerfile"):
        text = (ROOT / path).read_text()
        assert "native/build_backend.py build" in text, path
        assert "maturin build" not in text, path

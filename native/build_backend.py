"""Builds the extension by maturin, with exactly the crates of crates.lock.

A lock file of cargo names the index in every entry, and the version of the package itself. crates.lock leaves both out:
cargo knows its index, and Cargo.toml the version. Packaging tools import this file, their build backend. As a program:

    python build_backend.py build ARGUMENT...   maturin build --release, with these arguments
    python build_backend.py restore FOLDER      write Cargo.lock of the crate in the folder, from its crates.lock
    python build_backend.py lock FOLDER         write crates.lock, with the newest versions that Cargo.toml permits
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCE = re.compile(r"^source = .*\n", re.MULTILINE)


def restore(folder: Path) -> None:
    """Write Cargo.lock from crates.lock. Needs cargo where there is no Cargo.lock yet."""
    lock = folder / "Cargo.lock"
    if not (source := _SOURCE.search(lock.read_text() if lock.exists() else "")):
        _generate(folder)
        source = _SOURCE.search(lock.read_text())
    assert source is not None, "no crate is from an index"
    name, version = _own(folder)
    text = re.sub("^checksum = ", lambda found: source[0] + found[0], (folder / "crates.lock").read_text(), flags=re.M)
    text = re.sub(f'^name = "{name}"\n(?!version)', rf'\g<0>version = "{version}"\n', text, flags=re.M)
    if lock.read_text() != text:
        lock.write_text(text)


def pin(folder: Path) -> None:
    """Write crates.lock with the newest versions that Cargo.toml permits. Needs cargo and its index."""
    (folder / "Cargo.lock").unlink(missing_ok=True)
    _generate(folder)
    name, version = _own(folder)
    text = _SOURCE.sub("", (folder / "Cargo.lock").read_text())
    (folder / "crates.lock").write_text(text.replace(f'name = "{name}"\nversion = "{version}"\n', f'name = "{name}"\n'))


def _own(folder: Path) -> tuple[str, str]:
    package = tomllib.loads((folder / "Cargo.toml").read_text())["package"]
    return package["name"], package["version"]


def _generate(folder: Path) -> None:
    environment = dict(os.environ)
    if not shutil.which("cargo") and find_spec("puccinialin"):  # maturin lets packaging tools install it then
        from puccinialin import setup_rust

        environment.update(setup_rust())
    subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=folder, env=environment, check=True)


def _with_crates(hook: Callable[..., str]) -> Callable[..., str]:
    @wraps(hook)
    def run(*arguments: object) -> str:
        restore(_HERE)
        return hook(*arguments)

    return run


def main(command: str, *arguments: str) -> int:
    """Run one of the commands."""
    if command == "restore":
        restore(Path(*arguments))
    elif command == "lock":
        pin(Path(*arguments))
    else:
        restore(_HERE)
        os.environ["MATURIN_NO_MISSING_BUILD_BACKEND_WARNING"] = "1"  # it is this file
        build = ["maturin", "build", "--release", "--manifest-path", str(_HERE / "Cargo.toml"), *arguments]
        return subprocess.run([sys.executable, "-m", *build], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
else:
    import maturin

    for _name, _hook in vars(maturin).items():
        if _name.startswith("get_requires_"):
            globals()[_name] = _hook
        elif _name.startswith(("build_", "prepare_metadata_")):
            globals()[_name] = _with_crates(_hook)

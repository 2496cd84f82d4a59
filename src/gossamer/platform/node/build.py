"""Builds a virtual environment from a list of requirements, with uv where the node has it, else with venv and pip.

    python -I build.py FOLDER

The node runs this file under a shim, with a time limit, so a build may be killed at any line. FOLDER has `job.json`:
`target` (folder of the environment), `requirements` (lines of a requirements file), `uv` (path of uv, or ""). What the
programs print is the log. Exit code 0: the environment is complete, and `built.json` in FOLDER tells with what; 70: the
requirements are not at fault.

Fixed: the order. The environment is built beside its place under a lock, written to the disk, marked by a file in it,
and renamed. So a folder with the mark is complete, also after a power cut, and of two builds one does the work.
"""

import ctypes
import fcntl
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import traceback

MARK = "gossamer-environment.json"
"""File in a complete environment. Fixed: later releases look for it."""
OWN_FAULT = 70
"""Exit code for a fault of this program or of the disk, which says nothing about the requirements. Fixed, as above."""
DETAILS = "details"
"""File beside `job.json` with the full log of pip. Fixed: `environments.py` reads it."""
_NICE = 10
"""Niceness of a build, so that jobs and the API go first. May be changed."""


def main(folder: str) -> int:
    """Build the environment. Return the exit code."""
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    target = job["target"]
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.nice(_NICE)
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(target, MARK)):
            new = os.path.join(os.path.dirname(target), f".new-{os.path.basename(target)}")
            delete(new)
            delete(target)
            code = build(new, target, folder, job)
            if code:
                delete(new)
                return code
            os.rename(new, target)
            sync(os.path.dirname(target))
    shutil.copyfile(os.path.join(target, MARK), os.path.join(folder, "built.json"))
    return 0


def build(new: str, target: str, folder: str, job: "dict[str, object]") -> int:
    """Build the environment in the folder `new`, so that it works in the folder `target`. Return an exit code."""
    listed = os.path.join(folder, "requirements.txt")
    with open(listed, "w") as file:
        file.write("\n".join(job["requirements"]) + "\n")  # type: ignore[arg-type]
    python = os.path.join(new, "bin", "python")
    for command in (with_uv if job["uv"] else with_pip)(str(job["uv"]), new, python, listed):
        print("$", " ".join(command), flush=True)
        code = subprocess.call(command, stdin=subprocess.DEVNULL)
        if code:
            return 1 if code == OWN_FAULT else code if code > 0 else 128 - code
    check = "import json, sys, scrapy; print(json.dumps([scrapy.__version__, sys.version.split()[0]]))"
    found = subprocess.run([python, "-I", "-c", check], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if found.returncode:
        print("Scrapy cannot be imported in the environment", flush=True)
        return 1
    scrapy, version = json.loads(found.stdout.splitlines()[-1])
    move_scripts(new, target)
    protect(new)
    sync(new)
    mark = {"scrapy": scrapy, "python": version, "builder": "uv" if job["uv"] else "pip"}
    with open(os.path.join(new, MARK), "w") as file:
        json.dump({**mark, "requirements": job["requirements"]}, file)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
    os.chmod(new, 0o555)  # noqa: S103 (read-only for all, and readable for the users of jobs)
    return 0


def with_uv(uv: str, new: str, python: str, listed: str) -> "list[list[str]]":
    """Return the commands for uv. Copies, not links: with links a write to one environment would change others."""
    install = [uv, "pip", "install", "--no-progress", "--link-mode", "copy", "--compile-bytecode", "--python", python]
    if os.environ.get("PIP_NO_INDEX", "") not in ("", "0"):
        install.append("--no-index")
    for place in os.environ.get("PIP_FIND_LINKS", "").split():
        install += ["--find-links", place]
    for option, variable in (("--default-index", "PIP_INDEX_URL"), ("--index", "PIP_EXTRA_INDEX_URL")):
        for address in os.environ.get(variable, "").split() if not os.environ.get("UV_DEFAULT_INDEX") else ():
            install += [option, address]
    create = [uv, "venv", "--no-project", "--no-python-downloads", "--python", sys.executable, new]
    return [create, [*install, "-r", listed]]


def with_pip(uv: str, new: str, python: str, listed: str) -> "list[list[str]]":
    """Return the commands for venv and pip: the pip of the node, or one in the environment if the node has none."""
    options = ["install", "--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off"]
    # pip tells only in its full log that an index could not be reached.
    options += ["--log", os.path.join(os.path.dirname(listed), DETAILS), "-r", listed]
    if importlib.util.find_spec("pip") is not None:
        create = [sys.executable, "-I", "-m", "venv", "--without-pip", new]
        return [create, [sys.executable, "-I", "-m", "pip", "--python", python, *options]]
    return [[sys.executable, "-I", "-m", "venv", new], [python, "-I", "-m", "pip", *options]]


def move_scripts(new: str, target: str) -> None:
    """Let the programs of the environment find their Python after the renaming."""
    scripts = os.path.join(new, "bin")
    for name in [*(os.path.join(scripts, name) for name in os.listdir(scripts)), os.path.join(new, "pyvenv.cfg")]:
        if os.path.islink(name) or not os.path.isfile(name) or os.path.getsize(name) > 1024 * 1024:
            continue
        with open(name, "rb") as file:
            content = file.read()
        if new.encode() in content:
            with open(name, "wb") as file:
                file.write(content.replace(new.encode(), target.encode()))


def protect(folder: str) -> None:
    """Make everything readable for all users, and writable for none. Only the folder itself waits for its mark."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                can_run = name in folders or os.stat(path).st_mode & stat.S_IXUSR
                os.chmod(path, 0o555 if can_run else 0o444)


def sync(folder: str) -> None:
    """Write everything on the folder's file system to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), f"{folder} cannot be written to the disk")
    finally:
        os.close(descriptor)


def delete(folder: str) -> None:
    """Delete a folder with read-only folders in it. Nothing happens if it does not exist."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(os.path.join(place, name)):
                os.chmod(os.path.join(place, name), 0o700)
    if os.path.isdir(folder):
        os.chmod(folder, 0o700)
        shutil.rmtree(folder)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        sys.exit(OWN_FAULT)

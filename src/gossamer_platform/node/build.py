"""Builds a virtual environment from a list of requirements, with uv where the node has it, else with venv and pip.

    python -I build.py FOLDER

The node runs this file under a shim, with a time limit, so a build may be killed at any line. Where projects have users
of their own it runs as the builder's user, because building a source package runs that package's code. FOLDER has
`job.json`: `new` (the environment's folder while it is built), `target` (its place later), `requirements` (lines of a
requirements file), `uv` (path of uv, or ""). What the programs print is the log. Exit code 0: the environment is built,
and `built.json` tells with what; 70: the requirements are not at fault. `details.json` has the end of pip's own log.

`finish`, which the node itself calls after that, makes it read-only, writes it to the disk, marks it and renames it.
Fixed: this order. A folder with the mark is complete, also after a power cut.
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
from collections.abc import Mapping

MARK = "gossamer-environment.json"
"""File in a complete environment. Fixed: later releases look for it."""
OWN_FAULT = 70
"""Exit code for a fault of this program or of the disk, which says nothing about the requirements. Fixed, as above."""
_DETAIL_BYTES = 512 * 1024
"""Length of the end of pip's own log that is kept."""
_NICE = 10
"""Niceness of a build, so that jobs and the API go first."""


def main(folder: str) -> int:
    """Build the environment. Return the exit code."""
    os.nice(_NICE)
    os.umask(0o022)
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    own = os.path.join(folder, "own")  # the build's own folder, if its user is not the node's
    results = own if os.path.isdir(own) else folder
    code = build(results, job)
    log = os.path.join(results, "pip.log")
    if code and os.path.exists(log):
        with open(log, "rb") as said:
            said.seek(max(0, os.path.getsize(log) - _DETAIL_BYTES))
            text = said.read().decode(errors="replace")
        write_json(os.path.join(results, "details.json"), {"log": text})
    return code


def build(results: str, job: "dict[str, str]") -> int:
    """Build the environment in the folder `new` of the job, and describe it in a file in `results`. Return an exit
    code."""
    new, listed = job["new"], os.path.join(results, "requirements.txt")
    with open(listed, "w") as file:
        file.write("\n".join(job["requirements"]) + "\n")
    python = os.path.join(new, "bin", "python")
    for command in (with_uv if job["uv"] else with_pip)(job["uv"], new, python, listed):
        print("$", " ".join(command), flush=True)
        code = subprocess.call(command, stdin=subprocess.DEVNULL, env={**os.environ, **uv_addresses()})
        if code:
            return 1 if code == OWN_FAULT else code if code > 0 else 128 - code
    check = "import json, sys, scrapy; print(json.dumps([scrapy.__version__, sys.version.split()[0]]))"
    found = subprocess.run([python, "-I", "-c", check], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if found.returncode:
        print("Scrapy cannot be imported in the environment", flush=True)
        return 1
    scrapy, version = json.loads(found.stdout.splitlines()[-1])
    move_scripts(new, job["target"])
    built = {"scrapy": scrapy, "python": version, "builder": "uv" if job["uv"] else "pip"}
    write_json(os.path.join(results, "built.json"), built)
    return 0


def write_json(path: str, content: object) -> None:
    """Write a file that is there completely or not at all."""
    with open(f"{path}.new", "w") as file:
        json.dump(content, file)
    os.replace(f"{path}.new", path)


def with_uv(uv: str, new: str, python: str, listed: str) -> "list[list[str]]":
    """Return the commands for uv. Copies, not links: with links a write to one environment would change others."""
    install = [uv, "pip", "install", "--no-progress", "--link-mode", "copy", "--compile-bytecode", "--python", python]
    if os.environ.get("PIP_NO_INDEX", "") not in ("", "0"):
        install.append("--no-index")
    create = [uv, "venv", "--no-project", "--no-python-downloads", "--python", sys.executable, new]
    return [create, [*install, "-r", listed]]


def uv_addresses() -> "dict[str, str]":
    """Return the variables by which uv takes packages from where pip would. They are not options: an address may have a
    password, and all users of the machine see the command line of a process."""
    found = {"UV_FIND_LINKS": ",".join(os.environ.get("PIP_FIND_LINKS", "").split())}
    if not os.environ.get("UV_DEFAULT_INDEX"):
        found["UV_DEFAULT_INDEX"] = os.environ.get("PIP_INDEX_URL", "")
        found["UV_INDEX"] = os.environ.get("PIP_EXTRA_INDEX_URL", "")
    return {name: value for name, value in found.items() if value}


def with_pip(uv: str, new: str, python: str, listed: str) -> "list[list[str]]":
    """Return the commands for venv and pip: the pip of the node, or one in the environment if the node has none."""
    options = ["install", "--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off"]
    # pip tells only in its full log that an index could not be reached.
    options += ["--log", os.path.join(os.path.dirname(listed), "pip.log"), "-r", listed]
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


def finish(new: str, target: str, mark: Mapping[str, object]) -> None:
    """Put a built environment into its place, read-only, unless there is one already. Raises OSError.

    Nothing that the build has left is trusted: neither a link in the place of a file, nor a second name of a file that
    is elsewhere.
    """
    with open(f"{target}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(f"{target}.lock")
        if os.path.exists(os.path.join(target, MARK)):
            return
        if not stat.S_ISDIR(os.lstat(new).st_mode):
            raise OSError(f"{new} is no folder")
        protect(new)
        path = os.path.join(new, MARK)
        if os.path.lexists(path):
            os.unlink(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444)
        with open(descriptor, "w") as file:
            sync(new)  # before the mark: what it marks is on the disk
            json.dump(dict(mark), file)
            file.flush()
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
        os.chmod(new, 0o555)  # noqa: S103 (read-only for all, and readable for the users of jobs)
        delete(target)
        os.rename(new, target)
        sync(os.path.dirname(target))


def protect(folder: str) -> None:
    """Make everything the node's, readable for all users, and writable for none but, until its mark is written, the
    folder itself."""
    user, group = os.geteuid(), os.getegid()
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            found = os.lstat(path)
            if found.st_uid != user:
                os.chown(path, user, group, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                continue
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                raise OSError(f"the build has left a second name of a file: {path}")
            can_run = stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_IXUSR
            os.chmod(path, 0o555 if can_run else 0o444)
    os.chown(folder, user, group)
    os.chmod(folder, 0o755)  # noqa: S103 (see above)


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

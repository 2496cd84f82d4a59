"""Executes the steps of deploy/Dockerfile for a target in folders, where no container daemon is, and tries the result:
python -m tools.image gossamer | platform | browser

Needs root on Linux, debootstrap and a package index. The base is Debian's own Python instead of the official image,
which has the same version of both. Each stage is a layer of an overlay file system in .cache/image; one whose steps and
files have not changed is reused. Commands are tried as the image's user, on a root that cannot be written, without a
network. The verdict, with the size, is a proof (tests/proof.py); a release wants one of each target, of the same steps.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests import proof

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = ROOT / "deploy" / "Dockerfile.dockerignore"
TRIED = {
    "gossamer": ("--version", "demo --pages 50", ""),
    "platform": ("--version", "node --help", ""),
    "browser": ("--version",),
}
"""Commands of each target that are tried. Empty: the default one, which is stopped after ten seconds and ends well. In
the image with a browser, a page is rendered, too."""
_RENDERS = """
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import gossamer

class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<p id=sum></p><script>sum.textContent = 6 * 7</script>")

server = HTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
page = gossamer.get(f"http://127.0.0.1:{server.server_port}/", render=True, allow_private=True)
assert page.css("#sum::text").get() == "42", page.text
"""
"""Program that renders a page. It fails if no script of the page ran, or if the browser has no sandbox."""
_SUITE = "trixie"
"""Debian of the base image, with its version of Python."""
_NOTES = frozenset({"STOPSIGNAL", "EXPOSE", "VOLUME", "ENTRYPOINT", "CMD"})
"""Instructions that make no files."""


@dataclass
class Stage:
    """A stage of the Dockerfile: its base, its instructions, and what they make."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    layers: list[Path] = field(default_factory=list)
    """Folders, the uppermost first. The last one is the base image."""
    settings: dict[str, str] = field(default_factory=dict)
    """The last WORKDIR, USER, ENTRYPOINT, CMD."""
    stamp: str = ""
    """Hash of all that the stage is made of."""


def stages(text: str) -> dict[str, Stage]:
    """Return the stages of a Dockerfile by name, in order; one without a name has its number."""
    found: dict[str, Stage] = {}
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    stage = None
    for line in filter(str.strip, lines):
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = Stage(name or str(len(found)), base)
            found[stage.name] = stage
        elif stage is None:
            raise ValueError(f"{DOCKERFILE}: {line}: before the first FROM")
        else:
            stage.instructions.append((instruction, rest))
    return found


def steps(root: Path) -> str:
    """Return the hash of the Dockerfile of a checkout, without comments, of what a builder gets, and of the lock files
    that it copies: of all that decides what the images have beside Gossamer."""
    text = (root / "deploy" / "Dockerfile").read_text()
    digest = hashlib.sha256(re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).encode())
    locks = sorted(set(re.findall(r"requirements-[a-z]+\.lock", text)))
    for name in ("deploy/Dockerfile.dockerignore", *locks):
        digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return digest.hexdigest()


class Image:
    """The stages below `folder`."""

    def __init__(self, folder: Path, found: dict[str, Stage]) -> None:
        self._folder, self._stages = folder, found

    def build(self, name: str) -> Stage:
        """Build a stage, after those that it needs. Raises CalledProcessError for a step that fails."""
        stage = self._stages[name]
        if stage.layers:
            return stage
        below = self.build(stage.base) if stage.base in self._stages else None
        stage.settings = dict(below.settings) if below else {"USER": "root", "WORKDIR": "/"}
        stage.layers = [self._folder / name / "files", *(below.layers if below else [_base()])]
        others = {found[1] for _, rest in stage.instructions if (found := re.match(r"--from=(\S+)", rest))}
        made_of = [below.stamp if below else _SUITE, *(self.build(other).stamp for other in sorted(others))]
        made_of += [f"{instruction} {rest} {_content(instruction, rest)}" for instruction, rest in stage.instructions]
        stage.stamp = hashlib.sha256("\n".join(made_of).encode()).hexdigest()
        stamp = self._folder / name / "stamp"
        reused = stamp.exists() and stamp.read_text() == stage.stamp
        if not reused:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            for part in ("files", "work", "whole"):
                (self._folder / name / part).mkdir(parents=True)
        for instruction, rest in stage.instructions:
            self._execute(stage, instruction, rest, reused=reused)
        stamp.write_text(stage.stamp)
        return stage

    def _execute(self, stage: Stage, instruction: str, rest: str, *, reused: bool) -> None:
        if instruction in ("USER", "WORKDIR", *_NOTES):
            stage.settings[instruction] = rest
        elif instruction not in ("RUN", "COPY"):
            raise ValueError(f"{DOCKERFILE}: {instruction} is not known to this program")
        if reused or instruction in (*_NOTES, "USER"):
            return
        print(f"{stage.name}: {instruction} {' '.join(rest.split())}", flush=True)
        place = stage.settings["WORKDIR"]
        if instruction == "WORKDIR":
            self.run(stage, f"mkdir -p {place}")
        elif instruction == "RUN":
            self.run(stage, f"cd {place} && {rest}", DEBIAN_FRONTEND="noninteractive")
        else:
            self._copy(stage, rest)

    def _copy(self, stage: Stage, rest: str) -> None:
        """Copy files of the checkout, or of another stage, into a stage."""
        found = re.fullmatch(r"(?:--from=(\S+) )?(.+) (\S+)", rest)
        assert found is not None
        other, sources, target = found[1], found[2].split(), Path(stage.settings["WORKDIR"]) / found[3]
        upper = stage.layers[0] / str(target).lstrip("/")
        for source in sources:
            if other:
                layers = self._stages[other].layers
                with_mount = f"mount -t overlay overlay -o lowerdir={_joined(layers)} {self._folder}/{other}/whole"
                copied = f"mkdir -p {upper} && cp -a {self._folder}/{other}/whole{source}/. {upper}"
                subprocess.run(["unshare", "--mount", "sh", "-ec", f"{with_mount}; {copied}"], check=True)
                continue
            goes_into = (ROOT / source).is_file() and found[3].endswith("/")
            for path in sent(source):
                place = upper / (path.name if goes_into else path.relative_to(source))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, place)

    def run(self, stage: Stage, command: str, **environment: str) -> None:
        """Run a command of the shell in a stage, as root, and keep the files that it makes."""
        upper, work, whole = (self._folder / stage.name / part for part in ("files", "work", "whole"))
        lower = _joined(stage.layers[1:])
        mount = f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {whole}"
        inner = f"{mount}; exec {ROOT}/tools/debian run {whole} sh -ec {shlex.quote(command)}"
        subprocess.run(["unshare", "--mount", "sh", "-ec", inner], env={**os.environ, **environment}, check=True)

    def try_out(self, stage: Stage, words: list[str]) -> None:
        """Run a command as the image's user, on a root that cannot be written, with a new /tmp and /data."""
        whole = self._folder / stage.name / "whole"
        user = stage.settings["USER"]
        inner = "; ".join(
            [
                f"mount -t overlay overlay -o ro,lowerdir={_joined(stage.layers)} {whole}",
                f"mount -t tmpfs -o mode=1777 tmpfs {whole}/tmp",
                f"mount -t tmpfs -o uid={user.partition(':')[0]} tmpfs {whole}/data",
                f"mount -t proc proc {whole}/proc",
                "ip link set lo up",
                # Not by chroot alone: a process in one may make no namespaces, which the browser's sandbox needs.
                f"cd {whole}; pivot_root . .; umount -l .",
                f"exec chroot --userspec={user} / env -i HOME=/home/gossamer PATH=/usr/local/bin:/usr/bin:/bin "
                "GOSSAMER_SERVICE__TOKEN=token "
                f"sh -ec {shlex.quote('cd /data; exec ' + shlex.join(words))}",
            ]
        )
        print(f"{stage.name}: {shlex.join(words).partition(chr(10))[0]}", flush=True)
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "sh", "-ec", inner], check=True)


def _default(stage: Stage) -> list[str]:
    """Return the default command of an image, which is stopped after ten seconds."""
    words = [*json.loads(stage.settings["ENTRYPOINT"]), *json.loads(stage.settings["CMD"])]
    return ["timeout", "--preserve-status", "10", *words]


def _base() -> Path:
    """Return the folder that stands for the base image."""
    made = subprocess.run([ROOT / "tools" / "debian", "make", _SUITE], stdout=subprocess.PIPE, text=True, check=True)
    return Path(made.stdout.strip())


def _joined(layers: list[Path]) -> str:
    return ":".join(map(str, layers))


def sent(source: str) -> list[Path]:
    """Return the files that a builder gets of a source of COPY in the checkout, relative to the checkout. Raises
    ValueError if there are none, as a build would fail."""
    paths = [path.relative_to(ROOT) for path in (ROOT / source, *(ROOT / source).rglob("*")) if path.is_file()]
    found = sorted(path for path in paths if is_sent(path))
    if not found:
        raise ValueError(f"COPY {source}: the builder gets no such file; see {IGNORED}")
    return found


def is_sent(path: Path) -> bool:
    """Return whether a builder gets a file of this path in the checkout. The last rule that names the file or a folder
    above it decides."""
    places = list(map(str, (path, *path.parents)))
    for rule in reversed(re.findall(r"^[^#\n]+$", IGNORED.read_text(), re.MULTILINE)):
        if fnmatch.filter(places, rule.removeprefix("!")):
            return rule.startswith("!")
    return True


def _content(instruction: str, rest: str) -> str:
    """Return the hash of the files of the checkout that an instruction copies."""
    digest = hashlib.sha256()
    if instruction == "COPY" and not rest.startswith("--from"):
        for source in rest.split()[:-1]:
            for path in sent(source):
                digest.update(str(path).encode() + b"\0" + (ROOT / path).read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.image", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TRIED))
    target = parser.parse_args().target
    if os.geteuid():
        print("Only root can mount the layers of an image.", file=sys.stderr)
        return 1
    began, made_of, size, failures = time.monotonic(), steps(ROOT), 0, []
    try:
        size = _build_and_try(target)
    except subprocess.CalledProcessError as error:
        failures.append(f"A step failed with {error.returncode}.")
        print(failures[0], file=sys.stderr)
    proof.write(
        f"image-{target}",
        title=f"the image {target}, built and tried on a root that cannot be written",
        showed=f"{size:,} MB besides Debian's Python",
        seconds=time.monotonic() - began,
        failures=failures,
        figures={"megabytes": size, "steps": made_of},
    )
    return 1 if failures else 0


def _build_and_try(target: str) -> int:
    """Build the image, try its commands, and return its size besides the base image, in megabytes. Raises
    CalledProcessError for a step or a command that fails."""
    image = Image(ROOT / ".cache" / "image", stages(DOCKERFILE.read_text()))
    stage = image.build(target)
    entry = json.loads(stage.settings["ENTRYPOINT"])
    for arguments in TRIED[target]:
        image.try_out(stage, [*entry, *shlex.split(arguments)] if arguments else _default(stage))
    if target == "browser":
        image.try_out(stage, [*entry[:-1], "/opt/gossamer/bin/python", "-c", _RENDERS])
    own = stage.layers[:-1]
    size = subprocess.run(["du", "-csm", *own], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-2]
    print(f"{target}: {size} MB besides the base image")
    return int(size)


if __name__ == "__main__":
    sys.exit(main())

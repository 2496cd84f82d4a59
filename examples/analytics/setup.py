"""Installs Spark into an environment of its own, and its connector to Kafka, both with pinned checksums.

As a program, it only checks that Java and Maven are there: exit code 1, and one line for each that is missing.
"""

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "analytics"
PYTHON = CACHE / "venv" / "bin" / "python"
JARS = CACHE / "jars"
LOCK = CACHE.with_name("analytics.lock")
_ADVICE = {
    "java": "Java 17 or newer: apt install openjdk-17-jre-headless, or brew install openjdk@17",
    "mvn": "Maven: apt install maven, or brew install maven",
}


def missing_programs() -> list[str]:
    """Return one sentence for each program that has to be installed first, or that is too old."""
    found = [f"{name} was not found. Install {advice}." for name, advice in _ADVICE.items() if not shutil.which(name)]
    if shutil.which("java"):
        printed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
        if (version := java_version(printed)) < 17:
            found.append(f"java is version {version}, which Spark does not support. Install {_ADVICE['java']}.")
    return found


def java_version(printed: str) -> int:
    """Return the main version in the output of `java -version`; 0: there is none."""
    version = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(version[1]) if version else 0


@contextlib.contextmanager
def only_run(file: Path = LOCK) -> Iterator[None]:
    """Keep other runs in this checkout out: they use the same folder. Raises `RuntimeError` if there is one."""
    file.parent.mkdir(exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RuntimeError("another run goes on in this checkout. End it with Ctrl-C first.") from error
        yield


def install() -> None:
    """Install what is missing; quick if nothing is. Raises `CalledProcessError`, or `ValueError` for a wrong jar."""
    lock, pom, sums = ((HERE / name).read_bytes() for name in ("requirements.lock", "pom.xml", "jars.sha256"))
    digest = hashlib.sha256(lock + pom + sums).hexdigest()
    stamp = CACHE / "installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    print("Installing Spark into .cache/analytics (500 MB, one to three minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*pip, "-r", HERE / "requirements.lock"], check=True)
    print("Fetching the connector of Spark to Kafka (10 MB)", flush=True)
    subprocess.run(
        [
            "mvn", "-B", "-q", "-Dstyle.color=never", f"-Dmaven.repo.local={CACHE / 'm2'}", "-f", HERE / "pom.xml",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={JARS}",
        ],
        check=True,
    )  # fmt: skip
    shutil.rmtree(CACHE / "m2", ignore_errors=True)
    check_jars(JARS, sums.decode())
    stamp.write_text(digest)


def check_jars(folder: Path, sums: str) -> None:
    """Compare the jars of a folder with lines of `SHA-256  NAME`. Raises `ValueError` if any differs or is missing."""
    wanted = {name: digest for digest, name in (line.split() for line in sums.splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise ValueError(f"these jars are not those of jars.sha256: {', '.join(wrong)}")


if __name__ == "__main__":
    sys.exit("\n".join(missing_programs()) or 0)

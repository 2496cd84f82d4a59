"""Processes of the example: start, wait, end. Spark is one of them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from examples.analytics import setup

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schemas" / "records.spark.ddl"
RULES = {"urls": ["/properties/property_"], "fields": {"title": "h1", "price": "[itemprop=price] @number"}}
"""Extraction rules that make an item of each property."""
WAIT_SECONDS = 300.0
"""Time that a part has to start or to end, on a busy machine, too."""
CRAWL_SECONDS = 1800.0
"""Time that the crawls have. More only for many more pages."""


class Failure(Exception):
    """A part of the example did not do what it should; the text says which and why."""


class Part:
    """A process of the example with a log file. It is ended when the block of `running` is left."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait_for(self, text: str) -> None:
        """Return when the log has the text. Raises `Failure`."""
        last = time.monotonic() + WAIT_SECONDS
        while text not in self.log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > last:
                raise Failure(f"{self.name} did not start in {WAIT_SECONDS:.0f} seconds; see {self.log}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `Failure` if the process has ended."""
        if (code := self.process.poll()) is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise Failure(f"{self.name} ended with exit code {code}:\n{tail}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code. May be repeated."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)


@contextlib.contextmanager
def running(name: str, folder: Path, command: list[str], **environment: str) -> Iterator[Part]:
    """Run a part. At the end of the block it gets SIGTERM; what is left of it and its children then gets SIGKILL."""
    part = Part(name, folder, command, environment)
    try:
        yield part
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            part.end()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(part.process.pid, signal.SIGKILL)  # children that are left, such as the JVM of Spark
        part.process.wait()


@contextlib.contextmanager
def running_spark(work: Path, *source: str) -> Iterator[Part]:
    """Run spark_job.py. `source`: its options for the place of the records. Its temporary files are in `work/tmp`."""
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    job = [str(setup.PYTHON), str(Path(__file__).with_name("spark_job.py")), "--schema", str(SCHEMA)]
    job += ["--jars", str(setup.JARS), "--work", str(work), *source]
    with running("spark", work, job, TMPDIR=str(temporary)) as spark:
        yield spark


@contextlib.contextmanager
def running_web(work: Path, indexes: int) -> Iterator[Part]:
    """Run the practice site: the estate agent, and three sites on which some pages fail. `work/port` has its port."""
    with running(
        "web",
        work,
        [sys.executable, "-m", "gossamer.fakeweb", "--port-file", str(work / "port"), "--until-stdin-closes",
         "--estate", str(indexes), "--hosts", "3", "--pages", "150", "--page-bytes", "3000",
         "--not-found", "0.08", "--server-error", "0.05", "--no-errors-once"],
    ) as web:  # fmt: skip
        yield web


def finish_spark(spark: Part) -> None:
    """Let Spark process all that is there, and wait for its end. Raises `Failure`."""
    spark.check()
    assert spark.process.stdin is not None
    spark.process.stdin.write(b"finish\n")
    spark.process.stdin.flush()
    if code := spark.process.wait(WAIT_SECONDS):
        raise Failure(f"Spark ended with exit code {code}; see {spark.log}")


def gossamer() -> str:
    """Return the path of the command of this environment."""
    return str(Path(sys.executable).with_name("gossamer"))

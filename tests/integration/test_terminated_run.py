"""A test run or a program of the tests that is terminated, in any way, leaves no process behind."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.scraping import ROOT

_SECONDS = 60
_TESTS = """
import os, subprocess, sys
from pathlib import Path

from tests.servers.valkey import standalone

SLEEP = "import time; print(1, flush=True); time.sleep(600)"
QUIET = "env={}, stdout=-3, stderr=-3"
LEAVE = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}], {QUIET}).pid)"


def started(pids):
    with open(os.environ["RUNNING"], "w") as pipe:
        pipe.write(" ".join(map(str, pids)))


def test_it_waits_with_servers():
    with standalone() as server:
        alone = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True, stdout=subprocess.PIPE, env={})
        alone.stdout.readline()
        orphan = subprocess.run([sys.executable, "-c", LEAVE], start_new_session=True, capture_output=True, check=True)
        started([os.getpid(), server.pid, alone.pid, int(orphan.stdout)])
        alone.wait()


def test_it_leaves_a_server():
    started([subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True).pid])


def main():
    test_it_waits_with_servers()
    return 0


if __name__ == "__main__":
    from tests.command import run_command

    run_command(main)
"""
_SLOW_IMPORT = """
import os, time

with open(os.environ["RUNNING"], "w") as pipe:
    pipe.write(f"{os.getpid()} ")
time.sleep(600)
"""
_PYTEST = (sys.executable, "-m", "pytest")


def _heed_interrupts() -> None:
    """Undo what a shell does for its background processes, these tests perhaps among them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A command that runs these tests or their program, and the processes that it has started."""

    def __init__(self, folder: Path, *command: str) -> None:
        (folder / "test_run.py").write_text(_TESTS)
        (folder / "conftest.py").write_text("from tests.servers.reaper import pytest_cmdline_main\n")
        (folder / "pytest.ini").write_text("[pytest]\n")
        running = folder / "running"
        os.mkfifo(running)
        self.said = folder / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "RUNNING": str(running)},
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=_heed_interrupts,
            )
        self.pids = [int(pid) for pid in running.read_text().split()]
        self._running = [os.pidfd_open(pid) for pid in self.pids]

    def has_ended(self) -> bool:
        """Return, after a minute at most, whether no process is left."""
        self.process.wait(_SECONDS)
        for process in self._running:
            ended, _, _ = select.select([process], [], [], _SECONDS)
            os.close(process)
            if not ended:
                return False
        return True

    def is_ended_by(self, number: signal.Signals, *, to: str) -> bool:
        """Send a signal to the first process, to the group of all (as a terminal does) or to the tests themselves.
        Return whether no process is left."""
        match to:
            case "first process":
                self.process.send_signal(number)
            case "group":
                os.killpg(self.process.pid, number)
            case _:
                os.kill(self.pids[0], number)
        return self.has_ended()


def _one(test: str, *options: str) -> list[str]:
    """Return the words that have pytest run one of the tests."""
    return ["-q", "-p", "no:cacheprovider", *options, f"test_run.py::{test}"]


@pytest.mark.parametrize(
    ("to", "number", "options"),
    [
        ("first process", signal.SIGINT, ()),
        ("first process", signal.SIGTERM, ()),
        ("first process", signal.SIGKILL, ()),
        ("first process", signal.SIGTERM, ("-n", "1")),
        ("group", signal.SIGINT, ()),
        ("group", signal.SIGHUP, ()),
        ("group", signal.SIGKILL, ()),
        ("group", signal.SIGKILL, ("-n", "1")),
        ("tests", signal.SIGKILL, ()),
    ],
)
def test_nothing_is_left(tmp_path: Path, number: signal.Signals, to: str, options: tuple[str, ...]) -> None:
    run = Run(tmp_path, *_PYTEST, *_one("test_it_waits_with_servers", *options))
    assert run.is_ended_by(number, to=to)
    assert run.process.returncode != 0


@pytest.mark.parametrize(
    ("to", "number", "code"),
    [
        ("first process", signal.SIGTERM, -signal.SIGTERM),
        ("first process", signal.SIGKILL, -signal.SIGKILL),
        ("group", signal.SIGINT, 130),
        ("tests", signal.SIGKILL, 128 + signal.SIGKILL),
    ],
)
def test_nothing_is_left_of_a_program(tmp_path: Path, number: signal.Signals, to: str, code: int) -> None:
    run = Run(tmp_path, sys.executable, "test_run.py")
    assert run.is_ended_by(number, to=to)
    assert run.process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", ["all", "collect", "room"])
def test_the_scripts_end_their_runs(tmp_path: Path, number: signal.Signals, name: str) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    room = tmp_path / "tests" / "unit" / "fetch"
    room.mkdir(parents=True)
    script = shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    words = {"all": _one("test_it_waits_with_servers"), "collect": [], "room": ["fetch"]}[name]
    if name != "all":
        (room / "test_slow.py").write_text(_SLOW_IMPORT)
    run = Run(tmp_path, "bash", script, *words)
    assert run.is_ended_by(number, to="first process")


def test_a_run_that_ends_tells_what_it_left(tmp_path: Path) -> None:
    run = Run(tmp_path, *_PYTEST, *_one("test_it_leaves_a_server"))
    assert run.has_ended()
    assert f"The tests left this process behind, which is killed now: {run.pids[0]} " in run.said.read_text()
    assert run.process.returncode == 0

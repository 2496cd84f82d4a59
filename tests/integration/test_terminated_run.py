"""A test run that is terminated, in any way, leaves no process behind."""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
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
"""


def _heed_interrupts() -> None:
    """Undo what a shell does for its background processes, these tests perhaps among them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A run of one of these tests, and the processes that it has started."""

    def __init__(
        self, folder: Path, test: str, *options: str, command: Sequence[str] = (sys.executable, "-m", "pytest")
    ) -> None:
        (folder / "test_run.py").write_text(_TESTS)
        (folder / "conftest.py").write_text("from tests.servers.reaper import pytest_cmdline_main\n")
        running = folder / "running"
        os.mkfifo(running)
        options = ("-q", "--rootdir=.", "-p", "no:cacheprovider", *options)
        self.said = folder / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*command, *options, f"test_run.py::{test}"],
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
    """`group`: Ctrl-C and hang-ups come to all processes of the terminal's group."""
    run = Run(tmp_path, "test_it_waits_with_servers", *options)
    match to:
        case "first process":
            run.process.send_signal(number)
        case "group":
            os.killpg(run.process.pid, number)
        case _:
            os.kill(run.pids[0], number)
    assert run.has_ended()
    assert run.process.returncode != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_script_of_all_tests_ends_its_run(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "tests").mkdir()
    script = Path(shutil.copy(ROOT / "tests/all", tmp_path / "tests"))
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    run = Run(tmp_path, "test_it_waits_with_servers", command=("bash", str(script)))
    run.process.send_signal(number)
    assert run.has_ended()


def test_a_run_that_ends_tells_what_it_left(tmp_path: Path) -> None:
    run = Run(tmp_path, "test_it_leaves_a_server")
    assert run.has_ended()
    assert f"The tests left this process behind, which is killed now: {run.pids[0]} " in run.said.read_text()
    assert run.process.returncode == 0

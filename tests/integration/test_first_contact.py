"""What a person meets first: the start of a command, its end by Ctrl-C, a port that is taken."""

import contextlib
import json
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from gossamer.fakeweb.process import FakeWeb
from gossamer.fakeweb.spec import WebSpec
from gossamer.net.listening import listen_fault
from gossamer.valkey.embedded import find_server
from tests.servers.crawling import gossamer
from tests.servers.scrapyd import scrapyd

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"
WAIT_SECONDS = 60.0


class Terminal:
    """A command in a terminal of its own, and what it has shown there."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        os.set_inheritable(slave, True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gossamer", *arguments], cwd=folder, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )  # fmt: skip
        os.close(slave)
        self.shown = b""

    def read_until(self, words: bytes) -> None:
        """Read until these words are shown, or, if there are none, until the command has ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not words or words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 1)[0]:
                try:
                    self.shown += os.read(self._master, 65536)
                except OSError:  # the last process has closed the terminal
                    assert not words, self.shown
                    return

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def terminal(*arguments: str, folder: Path) -> Iterator[Terminal]:
    opened = Terminal(arguments, folder)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of another program."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

_CTRL_C_AT_IMPORT = """
import os, signal, sys
left = int(sys.argv.pop(1))
class Finder:
    is_counting = False
    def find_spec(self, name, path=None, target=None):
        global left
        if self.is_counting:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        self.is_counting |= name == "gossamer.__main__"
sys.meta_path.insert(0, Finder())
from gossamer.__main__ import main
sys.argv[0] = "gossamer"
main()
"""
"""Starts a command, and presses Ctrl-C when the module of this number is imported, counted from the command's first
line. Before that only Python itself runs."""


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377])
def test_ctrl_c_while_a_command_starts_prints_no_traceback(number: int, taken: int, tmp_path: Path) -> None:
    """The port is taken, so that the command would end by itself."""
    command = [sys.executable, "-c", _CTRL_C_AT_IMPORT, str(number), "up", "--port", str(taken)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert (done.stdout, done.stderr) in [("", ""), ("", "gossamer: Interrupted.\n")]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["top"], b"There is no data directory"),
        (["monitor", "http://127.0.0.1:1", "--project", "shop"], b"127.0.0.1:1"),
    ],
    ids=["top", "monitor"],
)
def test_the_prompt_comes_below_a_picture_that_ctrl_c_ends(arguments: list[str], shown: bytes, tmp_path: Path) -> None:
    _check_end_below_picture(arguments, shown, tmp_path)


def test_the_prompt_comes_below_the_list_of_jobs(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        _check_end_below_picture(["jobs", "--watch", "--target", f"http://127.0.0.1:{server.port}"], b"job", tmp_path)


def _check_end_below_picture(arguments: list[str], shown: bytes, folder: Path) -> None:
    with terminal(*arguments, folder=folder) as opened:
        opened.read_until(shown)
        opened.process.send_signal(signal.SIGINT)
        opened.read_until(b"")
        assert opened.process.wait(WAIT_SECONDS) == 0
        picture, newline, end = opened.shown.rpartition(b"\r\n")
        assert shown in picture
        assert newline
        assert end.replace(SHOW_CURSOR, b"").strip(b"\r") == b""
        assert opened.shown.rindex(SHOW_CURSOR) > opened.shown.rindex(HIDE_CURSOR)


# --- the start --------------------------------------------------------------------------------------------------------


def test_a_service_that_starts_says_so_before_it_loads_its_modules(taken: int, tmp_path: Path) -> None:
    with terminal("up", "--port", str(taken), folder=tmp_path) as opened:
        opened.read_until(b"")
        first, second = opened.shown.decode().splitlines()
        assert first == "gossamer: Starting the frontier, the REST API and the workers …"
        assert "in use" in second


@pytest.mark.parametrize("arguments", [["up", "--port"], ["serve", "--port"], ["manager", "--port"]], ids=" ".join)
def test_a_port_that_is_taken_is_named_with_a_way_out(arguments: list[str], taken: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer", *arguments, str(taken)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    way_out = "Another program uses the port. Stop it, or choose another port with --port"
    assert done.stderr.endswith(f"127.0.0.1:{taken}: Address already in use. {way_out}\n")
    assert "Starting" not in done.stderr  # it is for persons


def test_the_practice_web_names_the_way_out_of_a_taken_port(taken: int) -> None:
    with pytest.raises(Exception, match="choose another port with --port"):
        FakeWeb.start(WebSpec(hosts=1, pages=1), port=taken)


def test_each_reason_why_a_process_cannot_listen_has_its_advice() -> None:
    for error, words in (
        (OSError(98, "Address already in use (while attempting to bind on address)"), "in use. Another program"),
        (PermissionError(13, "Permission denied"), "Permission denied. Only the system's administrator"),
        (OSError(99, "Cannot assign requested address"), "Cannot assign requested address. This machine does not have"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("strange"), "strange"),
    ):
        said = listen_fault("h:1", error, option="--port")
        assert said.startswith("cannot listen at h:1: ")
        assert words in said


# --- a server for trials ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_server_for_trials_leaves_no_server(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gossamer.valkey", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f"redis://127.0.0.1:{port}" in process.stdout.readline()
        while "Ready to accept connections" not in (line := process.stdout.readline()):
            assert line, "it has ended"
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"CONFIG GET appendonly\r\n")
            assert b"no" in client.recv(1000)
        assert psutil.Process(process.pid).exe() == os.path.realpath(find_server())
        assert psutil.Process(process.pid).children() == []
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert list(tmp_path.iterdir()) == []


def test_a_server_for_trials_names_a_taken_port_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "gossamer.valkey", "--port", str(port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"gossamer.valkey: cannot listen at 127.0.0.1:{port}: Address already in use. Another program uses the port. "
        "Stop it, or choose another port with --port.\n"
    )


def test_a_url_where_a_request_is_expected_gets_the_request_for_it(tmp_path: Path) -> None:
    done = gossamer("feed", "https://example.com/?a='b'", cwd=tmp_path)
    assert done.returncode == 2
    advice = done.stderr.partition("Feed a request for it: ")[2]
    assert shlex.split(advice)[:2] == ["gossamer", "feed"]
    assert json.loads(shlex.split(advice)[2])["url"] == "https://example.com/?a='b'"


def test_a_program_is_no_output_of_a_crawl(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("x = 1, 2\ny = 3\n")
    for command in (["report", "t.py"], ["export", "t.py", "t.jsonl"]):
        done = gossamer(*command, cwd=tmp_path)
        assert done.returncode == 2
        assert "t.py is a program, not an output of a crawl." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.py"]


@pytest.mark.parametrize("command", [["crawl", "http://a.test/"], ["crawls", "list"], ["stats"], ["feed", "{}"]])
def test_a_frontier_where_nothing_listens_gets_advice(command: list[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    done = gossamer(*command, "--frontier", f"redis://127.0.0.1:{port}", cwd=tmp_path)
    assert done.returncode == 4
    assert f"connecting to 127.0.0.1:{port}: Connection refused. Check that a Valkey or Redis server" in done.stderr
    assert done.stderr.endswith("or name another one with --frontier.\n")

"""The fake web as a process: its arguments, its signals, its end, and what it tells its parent."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb import FakeWeb, How, Record
from gossamer_fakeweb import log as log_reading
from tests.integration.test_fakeweb import SPEC, ask_control


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as web:
        yield web


def test_its_spec_can_be_read_by_anybody(web: FakeWeb) -> None:
    assert json.loads(ask_control(web, "/spec"))["pages"] == SPEC.pages
    assert b"/log" in ask_control(web, "/nonsense")
    assert ask_control(web, "/log?from=x") == b"from and limit are numbers\n"


def test_every_host_is_overridden(web: FakeWeb) -> None:
    assert web.resolve_overrides()[:3] == [
        "h0.site0.test:127.0.0.1",
        "h1.site0.test:127.0.0.1",
        "h0.site1.test:127.0.0.1",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_the_log_written(tmp_path: Path, number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "gossamer.fakeweb",
        "--pages=9",
        "--members=3",
        f"--log={tmp_path}/log",
        f"--port-file={tmp_path}/port",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ready = process.stdout.readline()
        port = int((tmp_path / "port").read_text())
        assert ready.endswith(f"http://127.0.0.1:{port}\n")
        assert f"members http://members.test:{port}/ (alice with password wonderland, bob with password b" in ready
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as open_connection:
            open_connection.request("GET", "/p/1", headers={"Host": f"site0.test:{port}"})
            open_connection.getresponse().read()
            process.send_signal(number)
            output, complaints = process.communicate(timeout=60)
    assert (process.returncode, output, complaints) == (0, "", "")
    records: list[Record] = log_reading.read(tmp_path / "log")
    assert [(record.url, record.how) for record in records] == [(f"http://site0.test:{port}/p/1", How.WHOLE)]


def test_it_ends_when_its_parent_is_gone() -> None:
    script = (
        "import sys, time; from gossamer.fakeweb import FakeWeb, WebSpec\n"
        "web = FakeWeb.start(WebSpec(pages=2)); print(web.port, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connected:
            os.kill(parent.pid, signal.SIGKILL)
            # The server resets every connection as it ends.
            with suppress(ConnectionResetError):
                assert connected.recv(1) == b""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hosts=0"], "hosts must be at least 1"),
        (["--robots=perhaps"], "perhaps"),
        (["--refuse=2"], "between 0 and 1"),
        (["--hosts=x"], "argument --hosts: invalid int value: 'x'. See python -m gossamer.fakeweb --help."),
        (["--prot=8080"], "unrecognized arguments: --prot=8080"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(arguments: list[str], complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gossamer.fakeweb", *arguments], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


def test_a_site_without_its_package_is_refused_in_one_line() -> None:
    program = "import sys; sys.modules['gossamer_fakeweb'] = None; from gossamer.fakeweb.__main__ import main; "
    command = [sys.executable, "-c", program + "sys.exit(main(['--estate', '1']))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "need the package gossamer-fakeweb" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_said(web: FakeWeb) -> None:
    with pytest.raises(FakeWebFailed, match="in use"):
        FakeWeb.start(SPEC, port=web.port)


def test_its_help_names_every_option() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gossamer.fakeweb", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert all(
        flag in done.stdout for flag in ("--cross-host-share", "--errors-once", "--no-keep-alive", "--tls", "--log")
    )

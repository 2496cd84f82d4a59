"""Worker processes that are forked: each of these programs runs alone, because only one without threads may fork."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux only")

_BEGIN = """
import asyncio, os, signal, sys
from pathlib import Path
from gossamer.wiring.fork_server import ForkServer


def work():
    '''Repeat each line of standard input on the descriptor that the first one names; exit with code 7 at its end.'''
    report = int(sys.stdin.readline())
    os.write(report, f"{os.getpid()} {Path('/proc/self/comm').read_text()}".encode())
    for line in sys.stdin:
        if line == "raise\\n":
            raise ValueError("a defect")
        os.write(report, line.encode())
    return 7


async def begin(server):
    '''Start a worker process; return it, and the file to which it reports.'''
    ours, theirs = os.pipe()
    process, number = await server.fork(theirs)
    os.close(theirs)
    process.stdin.write(f"{number}\\n".encode())
    report = os.fdopen(ours)
    assert (await line(report)).split() == [str(process.pid), "gossamer-worker"]
    return process, report


async def line(report):
    return await asyncio.wait_for(asyncio.to_thread(report.readline), 30)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def main():
"""
_END = """

server = ForkServer.start(work)
assert server is not None
asyncio.run(main())
server.close()
assert ForkServer.current is None
"""


def run(main: str) -> str:
    """Run a program with this `main`. Returns what it wrote to standard error."""
    code = _BEGIN + textwrap.indent(textwrap.dedent(main), "    ") + _END
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_worker_process_has_its_own_input_and_ends_when_that_ends() -> None:
    run("""
        first, first_report = await begin(server)
        second, second_report = await begin(server)
        first.stdin.write(b"one\\n")
        second.stdin.write(b"two\\n")
        assert await line(first_report) == "one\\n"
        assert await line(second_report) == "two\\n"
        first.stdin.close()  # the second process must not hold the other end
        assert await asyncio.wait_for(first.wait(), 30) == 7
        assert await line(first_report) == ""
        assert second.returncode is None
        second.stdin.write(b"three\\n")
        assert await line(second_report) == "three\\n"
        second.stdin.close()
        assert await asyncio.wait_for(second.wait(), 30) == await second.wait() == 7
    """)


@pytest.mark.parametrize(("act", "code"), [("process.terminate()", -15), ("process.kill()", -9)])
def test_a_signal_ends_a_worker_process_and_its_number_is_told(act: str, code: int) -> None:
    run(f"""
        process, report = await begin(server)
        {act}
        assert await asyncio.wait_for(process.wait(), 30) == {code}
        try:
            {act}
        except ProcessLookupError:
            pass
        else:
            raise AssertionError("the process has ended")
    """)


def test_an_error_of_a_worker_process_is_shown_and_ends_only_that_process() -> None:
    said = run("""
        process, report = await begin(server)
        process.stdin.write(b"raise\\n")
        assert await asyncio.wait_for(process.wait(), 30) == 1
        other, report = await begin(server)
        other.stdin.close()
        assert await other.wait() == 7
    """)
    assert said.count("ValueError: a defect") == 1
    assert "Traceback" in said


def test_a_killed_fork_server_ends_no_worker_process_and_forks_none() -> None:
    run("""
        process, report = await begin(server)
        os.kill(parent_of(process.pid), signal.SIGKILL)
        os.waitid(os.P_PID, server._pid, os.WEXITED | os.WNOWAIT)
        process.stdin.write(b"still here\\n")
        assert await line(report) == "still here\\n"
        try:
            await begin(server)
        except OSError:
            pass
        else:
            raise AssertionError("there is no fork server")
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 1  # the true code is not known
    """)


def test_a_signal_to_all_processes_leaves_the_fork_server_to_its_program() -> None:
    run("""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(server._pid, number)
        process, report = await begin(server)
        process.stdin.close()
        assert await process.wait() == 7
    """)


def test_a_program_that_is_killed_leaves_no_process() -> None:
    program = _BEGIN + textwrap.indent(
        textwrap.dedent("""
            process, report = await begin(server)
            print(server._pid, process.pid, flush=True)
            await asyncio.sleep(3600)
        """),
        "    ",
    )
    with subprocess.Popen([sys.executable, "-c", program + _END], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert len(running.stdout.readline().split()) == 2
        running.kill()
        # Both hold this pipe, so its end says that both have ended.
        assert running.stdout.read() == ""


def test_a_program_with_threads_is_not_forked() -> None:
    code = """
        import threading
        from gossamer.wiring.fork_server import ForkServer
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        assert ForkServer.start(lambda: 0) is None
        end.set()
        thread.join()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)

"""Worker processes that are forked: each of these programs runs alone, because only one without threads may fork."""

import os
import signal
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

{begin}
server = ForkServer.start(work)
assert server is not None
asyncio.run(main())
server.close()
assert ForkServer.current is None
"""


def run(main: str, *, begin: str = "") -> str:
    """Run a program with this `main`, and the line `begin` before it has a fork server. Returns what it wrote to
    standard error."""
    code = _BEGIN + textwrap.indent(textwrap.dedent(main), "    ") + _END.format(begin=begin)
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


def test_two_callers_may_wait_for_one_process() -> None:
    """Its exit code can be asked for once: a second question would have ended the fork server."""
    run("""
        process, report = await begin(server)
        other, other_report = await begin(server)
        process.kill()
        assert await asyncio.wait_for(asyncio.gather(process.wait(), process.wait()), 30) == [-9, -9]
        other.stdin.close()
        assert await asyncio.wait_for(other.wait(), 30) == 7
    """)


def test_a_caller_that_is_cancelled_while_it_waits_may_wait_again() -> None:
    run("""
        process, report = await begin(server)
        os.kill(server._pid, signal.SIGSTOP)  # it answers later
        process.kill()
        waiting = asyncio.create_task(process.wait())
        while process._exit_code is None:
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        os.kill(server._pid, signal.SIGCONT)
        assert await asyncio.wait_for(process.wait(), 30) == -9
        other, other_report = await begin(server)
        other.stdin.close()
        assert await asyncio.wait_for(other.wait(), 30) == 7
    """)


def test_a_signal_right_after_the_start_is_not_lost() -> None:
    """The fork server blocks the signal, and so does the new process until it handles it."""
    run("""
        ours, theirs = os.pipe()
        for _ in range(200):
            process, _ = await server.fork(theirs)
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGTERM
    """)


def test_a_stopped_fork_server_counts_as_gone_and_ends_with_its_program() -> None:
    run("""
        from gossamer.wiring import fork_server
        fork_server._ANSWER_SECONDS = 0.5
        process, report = await begin(server)
        os.kill(server._pid, signal.SIGSTOP)
        process.kill()
        assert await asyncio.wait_for(process.wait(), 30) == 1
        for _ in range(2):  # it answers the first question late, so there must be no second
            try:
                await asyncio.wait_for(server.fork(sys.stderr.fileno()), 30)
            except OSError:
                pass
            else:
                raise AssertionError("the fork server cannot have answered")
            os.kill(server._pid, signal.SIGCONT)
        os.kill(server._pid, signal.SIGSTOP)  # `close` must end it all the same
    """)


def test_a_process_whose_caller_is_cancelled_meanwhile_ends() -> None:
    run("""
        ours, theirs = os.pipe()
        os.kill(server._pid, signal.SIGSTOP)
        forking = asyncio.create_task(server.fork(theirs))
        await asyncio.sleep(0)  # the question is under way
        await asyncio.sleep(0)
        forking.cancel()
        await asyncio.wait([forking])
        os.kill(server._pid, signal.SIGCONT)
        os.close(theirs)
        # Only the process may hold the other end now.
        assert await asyncio.wait_for(asyncio.to_thread(os.read, ours, 1), 30) == b""
    """)


def test_a_process_that_cannot_be_watched_ends() -> None:
    """For example because this program has too many files open."""
    run("""
        ours, theirs = os.pipe()
        real, os.pidfd_open = os.pidfd_open, lambda pid: os.open("/proc/no such file", 0)
        try:
            await server.fork(theirs)
        except OSError:
            os.pidfd_open = real
        else:
            raise AssertionError("the process cannot be watched")
        os.close(theirs)
        assert await asyncio.wait_for(asyncio.to_thread(os.read, ours, 1), 30) == b""
    """)


@pytest.mark.parametrize(("before", "end"), [("SIG_IGN", "7"), ("SIG_DFL", "-signal.SIGHUP")])
def test_a_worker_process_ignores_sighup_where_its_program_does(before: str, end: str) -> None:
    run(
        f"""
        process, report = await begin(server)
        os.kill(process.pid, signal.SIGHUP)
        process.stdin.write(b"still here\\n")
        if signal.{before} is signal.SIG_IGN:
            assert await line(report) == "still here\\n"
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == {end}
        """,
        begin=f"signal.signal(signal.SIGHUP, signal.{before})",
    )


@pytest.mark.parametrize("stopped", [False, True])
def test_a_program_that_is_killed_leaves_no_process(stopped: bool) -> None:
    program = _BEGIN + textwrap.indent(
        textwrap.dedent("""
            process, report = await begin(server)
            print(server._pid, process.pid, flush=True)
            await asyncio.sleep(3600)
        """),
        "    ",
    )
    with subprocess.Popen(
        [sys.executable, "-c", program + _END.format(begin="")], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        server, _ = map(int, running.stdout.readline().split())
        if stopped:
            os.kill(server, signal.SIGSTOP)
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


def test_a_command_whose_parent_ignores_ends_of_processes_gets_exit_codes() -> None:
    """An ignored SIGCHLD is passed on to programs that are started, and the system drops exit codes then."""
    run(
        """
        process, report = await begin(server)
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 7
        """,
        begin="signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfrom gossamer.cli.terminal import watch_signals\n"
        "watch_signals()",
    )


def test_without_memory_for_the_shared_table_worker_processes_are_forked_all_the_same() -> None:
    code = """
        import resource
        from gossamer.cli.worker_process import fork_server
        from gossamer.settings.service import WorkerSettings
        from gossamer.settings import Settings
        from gossamer.wiring.fork_server import ForkServer
        settings = Settings(worker=WorkerSettings(processes=2, seen_cache=10**9))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000, resource.RLIM_INFINITY))
        with fork_server(settings):
            assert ForkServer.current is not None
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


def test_a_worker_process_that_cannot_be_started_is_tried_again() -> None:
    """Too many open files may be a matter of a moment. It must not end the other processes, nor the command."""
    code = """
        import asyncio
        import os
        import resource
        from gossamer.settings.service import WorkerSettings
        from gossamer.settings import Settings
        from gossamer.wiring.processes import WorkerProcesses

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        said = []


        def say(sentence):
            said.append(sentence)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            if len(said) == 2:
                processes.stop()


        async def main():
            global processes
            processes = WorkerProcesses(
                Settings(worker=WorkerSettings(processes=1)),
                "redis://127.0.0.1:1",  # nothing listens there, which the process says when it has started
                pool="", spiders=[], run=None, say=say, bus=False,
            )
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), hard))
            await processes.run()


        asyncio.run(main())
        assert said[0] == "A worker process could not be started (error: Too many open files); trying again.", said
        assert said[1].startswith("The frontier could not be reached"), said
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)

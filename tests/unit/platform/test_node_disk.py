"""What a node does on a disk that is full: its jobs go on, can be stopped, and it takes no others."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer_platform.node import shim
from gossamer_platform.node.attempt import Command, JobAttempt
from gossamer_platform.node.heartbeat import NodeHeartbeats
from gossamer_platform.wire import Beat, BeatAnswer
from tests.servers.small_disk import full
from tests.servers.small_disk import small_disk as small_disk

_LIMIT_SECONDS = 60.0


async def test_heartbeats_move_the_fence_on_a_full_disk(small_disk: Path) -> None:
    fence, limits = small_disk / "valid_until", [_LIMIT_SECONDS]
    answered = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def send(beat: Beat, seconds: float) -> BeatAnswer:
        limits.append(limits[-1] + 1000)
        return BeatAnswer([], limits[-1])

    def obey(answer: BeatAnswer) -> None:
        loop.call_soon_threadsafe(answered.release)

    refused: list[object] = []
    beats = NodeHeartbeats(fence, send=send, attempts=list, obey=obey, refused=refused.append)
    beats._pause = lambda failed: 0.01  # type: ignore[method-assign]
    asked_at = shim.now()
    with full(small_disk):
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "other").write_text("x")
        beats.start(_LIMIT_SECONDS, asked_at=asked_at)
        async with asyncio.timeout(30):
            for _ in range(3):
                await answered.acquire()
        beats.stop()
    assert os.stat(fence).st_mtime >= asked_at + _LIMIT_SECONDS + 3000


def test_an_attempt_is_killed_when_its_fence_has_passed_and_not_before(tmp_path: Path) -> None:
    fence = tmp_path / "valid_until"
    fence.touch()
    os.utime(fence, (shim.now() + 3600,) * 2)
    attempt = _attempt(tmp_path / "7-1", valid_until=str(fence))
    supervisor = _supervise(attempt)
    assert attempt.pid() is not None
    assert attempt.read("exit.json") is None
    os.utime(fence, (shim.now(),) * 2)
    supervisor.wait(30)
    assert attempt.end().fault == "fenced"


def test_a_job_that_has_filled_the_disk_can_be_stopped(small_disk: Path) -> None:
    attempt = _attempt(small_disk / "7-1")
    supervisor = _supervise(attempt)
    with full(small_disk):
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "other").write_text("x")
        assert attempt.stops() == 0
        attempt.stop(signal.SIGTERM, grace_seconds=60)
        assert attempt.stops() == 1
        until_ended = attempt.pid()
        assert until_ended is not None
        while shim.start_time(until_ended):
            os.sched_yield()
    supervisor.wait(30)
    end = attempt.end()
    assert (end.signal, end.stopped) == (signal.SIGTERM, True)


def _attempt(folder: Path, *, valid_until: str = "") -> JobAttempt:
    attempt = JobAttempt(folder)
    sleeping = ("/bin/sleep", "600")
    attempt.prepare(Command("crawl", {}, dict(os.environ), "/", program=sleeping, valid_until=valid_until))
    return attempt


def _supervise(attempt: JobAttempt) -> "subprocess.Popen[bytes]":
    """Start the shim of an attempt. Return when its process runs."""
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", shim.__file__, str(attempt.folder)], stdout=subprocess.PIPE
    )
    assert supervisor.stdout is not None
    with supervisor.stdout as started:
        assert started.read() == b""  # its end announces that the process runs
    return supervisor

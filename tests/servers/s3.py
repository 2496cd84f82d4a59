"""A real S3 server in a process of its own (moto), which can be frozen and woken."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.servers.program import missing

_PROGRAM = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@dataclass(frozen=True)
class S3Server:
    """A running server, with the bucket `platform`."""

    port: int
    process: "subprocess.Popen[str]"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that lead clients to it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def freeze(self) -> None:
        """Let it answer nothing, as a server that cannot be reached."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it answer again."""
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server."""
    try:
        import moto  # noqa: F401
        import s3fs  # noqa: F401
    except ImportError as error:
        missing(f"{error.name} is not installed")
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        server = S3Server(int(process.stdout.readline()), process)
        httpx.put(f"http://127.0.0.1:{server.port}/platform").raise_for_status()
        yield server
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

"""A real HTTP proxy (proxy.py) as a process of its own."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def run_http_proxy(*, user: str = "", password: str = "") -> Iterator[int]:
    """Its port on 127.0.0.1. It speaks CONNECT and the absolute form, and wants `user` and `password` if given."""
    command = [sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", "0", "--log-level", "d"]
    command += ["--num-acceptors", "1", "--num-workers", "1"]
    if user:
        command += ["--basic-auth", f"{user}:{password}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            if match := re.search(r"Listening on 127\.0\.0\.1:(\d+)", line):
                port = int(match[1])
                break
        # What it goes on saying has to be read, or it would stop when the pipe is full.
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        try:
            assert port, "the proxy did not start"
            yield port
        finally:
            process.terminate()
            process.wait(10)
            drain.join(10)

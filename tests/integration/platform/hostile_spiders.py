"""Source of a project that tries to reach what is not its own. Each item is an attempt: its name and its outcome.

The test passes the places as arguments of the spider; the module is read as text and packed into an egg.
"""

import ctypes
import json
import os
import signal
import subprocess
import time
import urllib.request

import scrapy


def outcome(attempt):
    """What became of an attempt: the name of the error, or `done` with what it returned."""
    try:
        return f"done: {attempt()}"
    except BaseException as error:
        return type(error).__name__


def trace(pid):
    """Attach a debugger to a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")


def read(path):
    """Read a part of a file, or the names in a folder."""
    if os.path.isdir(path):
        return os.listdir(path)
    with open(path, "rb") as file:
        return file.read(100)


def append(path):
    """Change a file."""
    with open(path, "ab") as file:
        file.write(b"x")


def write_far(path, length):
    """Make a file of this length that takes no space."""
    with open(path, "wb") as file:
        file.seek(length)
        file.write(b"x")
        file.flush()


def call(url):
    """Send a request to the server without a password."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.status


def become(change, *arguments):
    """Change this process's user or group in a process of its own, which would otherwise keep it."""
    pid = os.fork()
    if pid == 0:
        try:
            change(*arguments)
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError
    return "became"


def attempts(plan):
    """Yield the outcome of each attempt."""
    for path in plan["read"]:
        yield {"attempt": f"read {path}", "outcome": outcome(lambda path=path: read(path))}
    for path in plan["append"]:
        yield {"attempt": f"append {path}", "outcome": outcome(lambda path=path: append(path))}
    attempt = os.environ["GOSSAMER_ATTEMPT"]
    for name in ("exit.json", ".exit.json", "report.json", "x"):
        path = os.path.join(attempt, name)
        yield {"attempt": f"link {name}", "outcome": outcome(lambda path=path: os.symlink("/etc/passwd", path))}
    for name in ("job.json", "stops", "shim.json", "started.json", "own"):
        path = os.path.join(attempt, name)
        yield {"attempt": f"rename {name}", "outcome": outcome(lambda path=path: os.rename(path, path + "x"))}
    for pid in [*plan["processes"], os.getppid()]:
        yield {"attempt": f"kill {pid}", "outcome": outcome(lambda pid=pid: os.kill(pid, signal.SIGKILL))}
        yield {"attempt": f"trace {pid}", "outcome": outcome(lambda pid=pid: trace(pid))}
        for name in ("environ", "mem", "fd", "cwd/", "root/"):
            path = f"/proc/{pid}/{name}"
            yield {"attempt": f"read {path}", "outcome": outcome(lambda path=path: read(path))}
    for change, *arguments in (
        (os.setuid, 0),
        (os.seteuid, 0),
        (os.setuid, plan["other"]),
        (os.setgid, 0),
        (os.setgid, plan["other"]),
        (os.setgroups, [0]),
        (os.chroot, "/"),
    ):
        name = f"{change.__name__} {arguments}"
        yield {"attempt": name, "outcome": outcome(lambda given=(change, *arguments): become(*given))}
    yield {"attempt": "call", "outcome": outcome(lambda: call(plan["url"]))}
    yield {"attempt": "long", "outcome": outcome(lambda: write_far("long", plan["length"]))}
    # What it may do: shown to be sure that the attempts above fail for their own reasons.
    done = subprocess.run([plan["id"], "-u"], capture_output=True, text=True)
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    yield {
        "allowed": {
            "uid": os.getuid(),
            "setuid program": done.stdout.strip(),
            "no new privileges": status["NoNewPrivs"].strip(),
            "capabilities": status["CapEff"].strip(),
            "home": outcome(lambda: append(os.path.expanduser("~/note"))),
            "tmp": outcome(lambda: append(os.path.join(os.environ["TMPDIR"], "note"))),
            "kill": outcome(lambda: os.kill(os.getpid(), 0)),
            "secret": os.environ.get("API_KEY"),
            "hidden": [name for name in ("GOSSAMER_SECRET_KEYS", "NODE_SECRET") if name in os.environ],
        }
    }


def escape():
    """Start a process that leaves group, session and environment behind, and return its number."""
    note = os.path.expanduser("~/escaped")
    command = ["setsid", "-f", "env", "-i", "sh", "-c", f"echo $$ > {note}; exec sleep 600"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(note) or not read(note):
        time.sleep(0.05)
    return int(read(note))


class Hostile(scrapy.Spider):
    """Tries everything in `plan`, which is JSON."""

    name = "hostile"

    async def start(self):
        """Yield the outcome of each attempt, and the process that has escaped."""
        for found in attempts(json.loads(self.plan)):
            yield found
        yield {"escaped": escape()}

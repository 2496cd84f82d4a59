"""Supervises one attempt of a job: starts its process, stops it when asked, and records how the whole tree ended.

    python -I -S shim.py FOLDER
    python -I -S shim.py --wait ATTEMPTS

The second form is started before there is an attempt, because Python needs longer to start than all the rest. It waits
on standard input for a line with the folder of an attempt below ATTEMPTS, and ends if the node ends before. From then
on both are the same.

The shim outlives the node that started it, and is found again by the files in FOLDER (see `attempt.py`, which writes
and reads the same files). It uses the standard library only, because the node starts one for each attempt.

- `environment.json` (from the node): environment variables of the process. The shim deletes it once the process runs,
  because values may be secrets.
- `attempt.json` (from the node): `command`, `folder`, `output`, `time_limit` (seconds, or 0 for none),
  `user` (number of the user and group that the process gets, or 0 for the shim's own), `memory_limit` (bytes of the
  whole tree, or 0 for none), `file_limit` (bytes of `output`, and of the file `items`, or
  0 for none), `open_files_limit` (of each process, or 0 for the shim's own), `valid_until` (a file whose time of
  change is when the attempt must end, in seconds of CLOCK_BOOTTIME, or "").
- `shim.json`: who owns the attempt. It is linked, not written, so that of the shim and a node that revokes the attempt
  exactly one succeeds. Nothing runs before the shim owns it.
- `started.json`: the process runs.
- `stops` (from the node): one JSON object a line for each stop; the signal SIGUSR1 announces it. The first line is no
  stop: it is there so that the file has room for more on a disk that has none.
- `exit.json`: the process tree is gone; this is how the main process ended.

Fixed: the order of these files, on which it depends that no attempt runs twice; and that exit.json is written only when
no process of the tree is left.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38  # numbers of Linux' prctl(2): fixed
_SPARE_BYTES = 64 * 1024 * 1024
"""Length by which any file of a user's process may exceed `file_limit`, so that the shim notices the excess before a
write fails."""
_POLL_SECONDS = 1.0
"""Pause between looks at `valid_until`, at memory and files, and at `stops` in case a signal was lost."""
_GROUP_SECONDS = 5.0
"""Time between SIGTERM to the process group and SIGKILL to the tree."""
_LINGER_SECONDS = 2.0
"""Time that children of a process that ended by itself have to end, too. A browser's driver needs some of it to close
the browser."""
_WATCHED = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals for which the shim waits. It ignores the last three: only a stop in the file ends the attempt."""


def write_json(folder: str, name: str, content: Mapping[str, object], *, durable: bool = False) -> None:
    """Write a file that is there completely or not at all, for this user only. `durable`: even after a power cut."""
    with open(os.path.join(folder, f".{name}"), "w", opener=_open_private) as file:
        json.dump(content, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(os.path.join(folder, f".{name}"), os.path.join(folder, name))
    if durable:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def claim(folder: str, content: dict[str, object]) -> bool:
    """Own the attempt. Return False if another process owns it already."""
    path = os.path.join(folder, f".shim.{os.getpid()}")
    with open(path, "w") as file:
        json.dump(content, file)
    try:
        os.link(path, os.path.join(folder, "shim.json"))
    except FileExistsError:
        return False
    finally:
        os.unlink(path)
    return True


def start_time(pid: int) -> str:
    """Return when the process started, in clock ticks since the boot. With the pid it names one process of a boot.
    Empty: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def boot_id() -> str:
    """Return the name of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class Shim:
    """One attempt. Times are those of CLOCK_BOOTTIME, which goes on while the machine is suspended."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with open(os.path.join(folder, "attempt.json")) as file:
            self._attempt = json.load(file)
        self._main = 0
        """Pid of the main process. 0: it has ended and was reaped, so the number may belong to another process."""
        self._group = 0
        self._status: int | None = None
        """Wait status of the main process. None: it has not ended."""
        self._stops_seen = 0
        self._stop_count = 0
        """Stops that were carried out; a bare signal is none."""
        self._step = 0
        """1: the main process got its signal; 2: its group got SIGTERM; 3: the tree is being killed."""
        self._next_step_at = float("inf")
        self._fault = ""
        self._next_measure_at = 0.0
        self._deadline = now() + (self._attempt["time_limit"] or float("inf"))

    def run(self) -> None:
        """Run the attempt to its end."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # children that leave the tree become children of the shim
        if not claim(self._folder, {"pid": os.getpid(), "start": start_time(os.getpid()), "boot": boot_id()}):
            return
        error = self._start(libc)
        if error:
            self._write_end({"fault": f"start_failed: {error}"})
            return
        started: dict[str, object] = {"pid": self._group, "start": start_time(self._group), "boot": boot_id()}
        try:
            write_json(self._folder, "started.json", started)
        except OSError as problem:  # the disk is full, say
            self._fault, self._step = f"start_failed: {problem}", 3
        _announce()
        while self._reap():
            self._obey()
            pause = max(0.0, min(_POLL_SECONDS, self._next_step_at - now(), self._deadline - now()))
            signal.sigtimedwait(_WATCHED, 0.01 if self._step == 3 else pause)
        self._record()

    def _start(self, libc: ctypes.CDLL) -> str:
        """Start the main process in a group of its own. Return why it could not be started."""
        with open(os.path.join(self._folder, "environment.json")) as file:
            environment = json.load(file)
        read, write = os.pipe()  # closed by exec, or gets the reason
        shim = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                _limit_open_files(self._attempt["open_files_limit"])
                user = self._attempt["user"]
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                output = os.open(self._attempt["output"], flags | (os.O_NOFOLLOW if user else 0), 0o644)
                if user:
                    os.fchown(output, user, user)
                    os.fchmod(output, 0o640)
                    _become(libc, user, self._attempt["file_limit"])
                # After the change of the user, which takes the setting away.
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != shim:
                    os._exit(126)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.chdir(self._attempt["folder"])
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                command = self._attempt["command"]
                os.execve(command[0], command, environment)  # noqa: S606 (no shell is wanted)
            except BaseException as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(127)
        os.close(write)
        reason = b""
        while part := os.read(read, 65536):
            reason += part
        os.close(read)
        os.unlink(os.path.join(self._folder, "environment.json"))
        if reason:
            os.waitpid(pid, 0)
            return reason.decode()
        self._main = self._group = pid
        return ""

    def _reap(self) -> bool:
        """Take note of the processes that have ended. Return whether any of the tree is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._main, self._status = 0, status
                if self._step < 3:
                    self._step, self._next_step_at = 2, now() + _LINGER_SECONDS

    def _obey(self) -> None:
        """Carry out new stops, and the next step of the stop that is under way."""
        for stop in self._new_stops():
            self._stop(stop)
        if self._step < 3 and self._is_expired():
            self._fault, self._step = "fenced", 3
        if self._step < 3 and now() >= self._next_measure_at:
            self._next_measure_at = now() + _POLL_SECONDS
            self._measure()
        if self._step == 0 and now() >= self._deadline:
            self._fault = "timed_out"
            self._stop({"signal": signal.SIGTERM, "grace": _GROUP_SECONDS})
        if now() >= self._next_step_at and self._step < 3:
            self._step += 1
            self._next_step_at = now() + _GROUP_SECONDS
            if self._step == 2:
                self._signal_group(signal.SIGTERM)
        if self._step == 3:
            self._next_step_at = float("inf")
            self._kill_children()

    def _stop(self, stop: dict[str, float]) -> None:
        number = int(stop["signal"])
        if stop.get("only_signal"):
            self._signal_main(number)
            return
        self._stop_count += 1
        if number == signal.SIGKILL or self._stop_count > 2:
            self._step = 3
            return
        self._signal_main(number)
        # A second stop skips the wait: Scrapy itself stops without finishing its requests at the second signal.
        grace = stop["grace"] if self._step == 0 else _GROUP_SECONDS
        self._step, self._next_step_at = max(self._step, 1), min(self._next_step_at, now() + grace)

    def _new_stops(self) -> list[dict[str, float]]:
        try:
            with open(os.path.join(self._folder, "stops")) as file:
                lines = [line for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        new = [json.loads(line) for line in lines[self._stops_seen :]]
        self._stops_seen = len(lines)
        return new

    def _is_expired(self) -> bool:
        """Return whether the node has had no contact with the manager for so long that another node may get the job."""
        path = self._attempt["valid_until"]
        if not path:
            return False
        try:
            return now() >= os.stat(path).st_mtime
        except OSError:
            return False

    def _measure(self) -> None:
        """End the attempt if it uses more memory than it may, or has written too much."""
        limit = self._attempt["memory_limit"]
        if limit and tree_memory() > limit:
            # What the main process leaves behind does not spoil its end.
            self._fault, self._step = "out_of_memory" if self._main else self._fault, 3
        limit = self._attempt["file_limit"]
        for word, name in (("log", "output"), ("items", "items")) if limit and self._step == 0 else ():
            if _size(self._attempt[name]) > limit:
                self._fault = f"file_limit: {word}"
                self._stop({"signal": signal.SIGTERM, "grace": _GROUP_SECONDS})

    def _signal_main(self, number: int) -> None:
        # The pid cannot belong to another process: the main process stays a zombie until _reap sets the pid to 0.
        if self._main:
            os.kill(self._main, number)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(self._group, number)

    def _kill_children(self) -> None:
        """Kill all children. Their children become the shim's, and are killed in the next round."""
        for pid in _children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _record(self) -> None:
        status = self._status
        end: dict[str, object] = {"fault": self._fault}
        if status is not None and os.WIFSIGNALED(status):
            end["signal"] = os.WTERMSIG(status)
        elif status is not None:
            end["exit_code"] = os.WEXITSTATUS(status)
        self._write_end(end)

    def _write_end(self, end: dict[str, object]) -> None:
        common = {"at": now(), "boot": boot_id(), "stops": self._stop_count}
        while True:
            try:
                write_json(self._folder, "exit.json", {**end, **common}, durable=True)
                return
            except OSError:  # the disk is full, say; without the file a job that did well would count as lost
                if not os.path.isdir(self._folder):
                    return  # deleted, and with it what anybody could ask for the end
                time.sleep(_POLL_SECONDS)


def _limit_open_files(limit: int) -> None:
    """Let this process, and those that it starts, have so many files open. Nothing happens if the limit is 0. The
    machine's own limit counts where it is lower and this process may not raise it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _become(libc: ctypes.CDLL, user: int, file_limit: int) -> None:
    """Let this process be a user's for ever, with no right to become another one's. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a memory dump would contain secrets
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit + _SPARE_BYTES, file_limit + _SPARE_BYTES))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # Programs with the setuid bit, and files with capabilities, give nothing more.
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "privileges cannot be given up")
    if os.getgroups() or {*os.getresuid(), *os.getresgid()} != {user}:
        raise OSError(f"the process did not become one of user {user}")
    os.umask(0o077)


def now() -> float:
    """Return the time in seconds of the clock that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def tree_memory() -> int:
    """Return the memory in bytes of all processes below this one. A page that several of them share counts once."""
    total, waiting = 0, _children(os.getpid())
    while waiting:
        pid = waiting.pop()
        waiting += _children(pid)
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:  # it may have ended
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # there is none yet, or there will be none
        return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def _announce() -> None:
    """Close standard output: the node waits for its end to learn that the process runs."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _wait_for_folder() -> str:
    """Return the folder that the node writes to standard input. Empty: the node has ended."""
    line = sys.stdin.readline()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return line[:-1] if line.endswith("\n") else ""


if __name__ == "__main__":
    if attempt := _wait_for_folder() if sys.argv[1] == "--wait" else sys.argv[1]:
        Shim(attempt).run()

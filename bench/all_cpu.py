"""Runs a command and prints the CPU time of it and of all processes below it, also of those that outlive their parents.

    python -m bench.all_cpu COMMAND...

The kernel gives a process the times of its children when it waits for them. Browsers leave processes behind, so this
program takes the place of their parents (Linux only). The last line of its output is the time in seconds.
"""

import ctypes
import os
import resource
import subprocess
import sys
import time

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_LEFT_SECONDS = 10.0
"""Time in which what is left ends by itself. Then it is killed."""


def main() -> int:
    """Run the command, and return its exit code."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "processes whose parents end cannot be counted here")
    process = subprocess.Popen(sys.argv[1:], start_new_session=True)
    code = process.wait()
    last = time.monotonic() + _LEFT_SECONDS
    while True:
        try:
            number, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not number:
            if time.monotonic() > last:
                os.killpg(process.pid, 9)
            time.sleep(0.02)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
    return code


if __name__ == "__main__":
    sys.exit(main())

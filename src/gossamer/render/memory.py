"""Memory of the processes of a browser."""

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def group_bytes(group: int, *, proc: Path = Path("/proc")) -> int:
    """Return the memory of a process group in bytes, without what its processes share. 0: this system has no /proc."""
    total = 0
    try:
        numbers = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return 0
    for number in numbers:
        try:
            stat = (proc / number / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[2]) != group:
                continue
            _, resident, shared, *_ = (proc / number / "statm").read_text().split()
        except (OSError, ValueError, IndexError):
            continue  # the process has ended meanwhile
        total += (int(resident) - int(shared)) * _PAGE_BYTES
    return total

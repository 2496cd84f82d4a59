"""A network of one's own in which every address there is leads to this very machine, and none further.

In it a canary on one port sees every connection to a private address, a metadata service or a NAT64 gateway, as if it
stood there; and a name server of ours answers whatever the crawler asks.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

INSIDE = "--inside"
_READY = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && { ip -6 route add local ::/0 dev lo || true; }"


def enter(words: Sequence[str]) -> None:
    """Begin this program again inside; where that cannot be (no privileges, not Linux), return."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return
    for flags in ("-n", "-rn"):
        if subprocess.run(["unshare", flags, "sh", "-c", _READY], capture_output=True, check=False).returncode == 0:
            break
    else:
        return
    script = f'{_READY} && exec "$@"'
    program = [sys.executable, "-m", "tests.hostile", *words, INSIDE]
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", flags, "sh", "-c", script, "sh", *program])

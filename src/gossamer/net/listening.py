"""Explains why a process cannot listen at an address, and names the way out."""

import errno
import os
import socket

_ADVICE = {
    errno.EADDRINUSE: "Another program uses the port. Stop it, or choose another port with {option}",
    errno.EACCES: "Only the system's administrator may use this port. Choose one above 1023 with {option}",
    errno.EADDRNOTAVAIL: "This machine does not have the address. Choose one that it has",
}


def listen_fault(place: str, error: OSError, *, option: str) -> str:
    """Return a sentence for a person. `place`: address and port, or a file. `option`: option or setting that chooses
    another port."""
    number = 0 if isinstance(error, socket.gaierror) else error.errno or 0
    # Not `strerror`: some functions of the standard library repeat the address in it.
    reason = os.strerror(number) if number else error.strerror or str(error)
    advice = _ADVICE.get(number, "").format(option=option)
    return f"cannot listen at {place}: {reason}" + (f". {advice}" if advice else "")

"""Lists the spiders of a version: runs the project's settings and modules in a process of their own, under a shim.

A project may do anything while it is imported: print without end, hang, fork, end its own process, or write nonsense
where the list belongs. So the process has limits, and what it leaves is checked.
"""

import asyncio
import os
from typing import Any, Final

from gossamer_platform.link import Listing, ListingResult
from gossamer_platform.node.attempt import Command, JobAttempt
from gossamer_platform.outcome import AttemptEnd

LISTING_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Memory of a listing's processes at which they are killed."""
_MAX_NAME: Final = 1000
"""Longest name of a spider."""
_WARNINGS, _WARNING_LENGTH = 20, 4000
"""Number and length of the warnings that are kept."""


async def list_spiders(attempt: JobAttempt, listing: Listing, command: Command) -> ListingResult:
    """Run the command in the attempt's folder, and return what it has found. The folder is left for the caller.

    Raises OSError if the process cannot be started.
    """
    await asyncio.to_thread(attempt.prepare, command)
    os.close(await asyncio.to_thread(attempt.start))
    await attempt.wait()
    end = await asyncio.to_thread(attempt.end)
    return await asyncio.to_thread(_result, attempt, listing, end, command.limits.time_limit)


def _result(attempt: JobAttempt, listing: Listing, end: AttemptEnd, limit: float) -> ListingResult:
    spiders, warnings = _names(attempt, "spiders.json"), _names(attempt, "warnings.json") or []
    if spiders is None or end.exit_code != 0:
        return ListingResult(fault=_fault(attempt, end, limit))
    if not spiders and listing.artefact.path is not None:
        fault = "the egg has no spiders in the modules that SPIDER_MODULES of its settings names"
        return ListingResult(fault="\n".join([fault, *warnings])[:_WARNING_LENGTH])
    return ListingResult(spiders, warnings=[text[:_WARNING_LENGTH] for text in warnings[:_WARNINGS]])


def _fault(attempt: JobAttempt, end: AttemptEnd, limit: float) -> str:
    said = attempt.output_tail().strip()
    if end.fault == "timed_out":
        return f"listing the spiders took more than {limit:g} seconds\n{said}".strip()
    if end.fault == "out_of_memory":
        return f"listing the spiders took more than {LISTING_BYTES} bytes of memory\n{said}".strip()
    if said:
        return said
    if end.exit_code == 0:
        return "the program that lists the spiders left no list of names"
    return f"the program that lists the spiders ended with {end.fault or end.exit_code or end.signal}"


def _names(attempt: JobAttempt, name: str) -> list[str] | None:
    """Return a list of texts that the process has written. None: there is none, or it is something else."""
    found: Any = attempt.read_result(name)
    is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return found if is_list and all(len(each) <= _MAX_NAME or name != "spiders.json" for each in found) else None

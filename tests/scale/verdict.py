"""Whether an interrupted crawl went on as promised: it waited, lost nothing, and is soon at full speed."""

from tests.scale.interrupted import FULL, Interrupted, Size

AGAIN_SECONDS = 10.0
"""From the end of the trouble to full speed, at most."""
TWICE = 0.02
"""The largest share of pages that may be fetched twice."""


def faults(done: Interrupted, size: Size) -> list[str]:
    """What is not as promised; empty: nothing."""
    found = lost(done)
    if done.twice > TWICE * done.pages:
        found.append(f"{done.twice:,} of {done.pages:,} pages were fetched twice")
    # What is under way may be finished and kept: some seconds' worth, never all of the trouble's.
    if done.during > size.rate * max(size.trouble_seconds / 4, 5.0):
        found.append(f"{done.during:,} pages were fetched in the middle of it")
    if done.again_seconds is None or done.again_seconds > AGAIN_SECONDS:
        found.append(f"full speed came {full_speed(done)}")
    if done.after < FULL * done.before:
        found.append(f"{done.after:.0f} pages/s afterwards, {done.before:.0f} before")
    return found


def partial_faults(done: Interrupted, size: Size) -> list[str]:
    """The same where the trouble concerns only some of the hosts: the others go on as if nothing had happened."""
    found = lost(done)
    if done.twice > TWICE * done.pages:
        found.append(f"{done.twice:,} of {done.pages:,} pages were fetched twice")
    if done.taken_for_dead:
        found.append(f"workers were taken for dead {done.taken_for_dead} times")
    full = done.spared * size.hits_a_second
    if done.spared_rate < FULL * full:
        found.append(f"{done.spared_rate:.0f} pages/s of the {done.spared} hosts that it does not concern, not {full}")
    return found


def lost(done: Interrupted) -> list[str]:
    """What no trouble excuses, however small the run was."""
    found = [f"{done.lost:,} of {done.pages:,} pages were lost"] if done.lost else []
    return found + ([f"{done.failed:,} pages failed"] if done.failed else [])


def described(done: Interrupted) -> str:
    """The figures, for a person."""
    return (
        f"  {done.pages:,} pages, {done.lost:,} lost, {done.twice:,} fetched twice, {done.failed:,} failed; "
        f"{done.during:,} fetched meanwhile\n"
        f"  {done.before:.0f} pages/s before, {done.after:.0f} after; full speed {full_speed(done)}"
    )


def full_speed(done: Interrupted) -> str:
    """Return when it was at full speed again, for a person."""
    return "never" if done.again_seconds is None else f"{done.again_seconds:.1f} s after its end"

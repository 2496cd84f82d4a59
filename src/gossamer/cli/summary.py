"""How a crawl ended, for a person or for a program."""

import json
from dataclasses import dataclass, field
from typing import Any

from gossamer.cli.display import counted, reasons, size, span
from gossamer.cli.standard import shown
from gossamer.model.crawl import CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.model.outcome import Dropped
from gossamer.telemetry.tally import Tally

LOST_EXIT_CODE = 3


@dataclass(slots=True)
class Summary:
    """`tally` and `seconds` are this command's share; `info` is the whole crawl, whoever worked on it."""

    crawl_id: str
    info: CrawlInfo | None
    tally: Tally
    seconds: float
    outputs: tuple[str, ...]
    interrupted: bool = False
    already_finished: bool = False
    unwritten: bool = False
    """An output could not be finished."""
    lost: bool = False
    """The frontier lost its data in mid-crawl."""
    missing: dict[str, int] = field(default_factory=dict)
    """Records that vanished from an output before this command began, by output. What vanished since is in `tally`."""
    pool: str = ""
    """The pool of a worker, which belongs to no crawl. Empty: this is a crawl."""
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do, be it because the crawl's time is over."""
        return self.info is not None and self.info.state in (CrawlState.FINISHED, CrawlState.EXPIRED)

    @property
    def missing_records(self) -> int:
        """Number of records that were written and are gone."""
        return self.tally.missing + sum(self.missing.values())

    def exit_code(self) -> int:
        """0 finished, 1 nothing could be fetched, an output not be finished or records are missing from it, 3 the
        frontier lost its data, 130 interrupted."""
        if self.lost:
            return LOST_EXIT_CODE
        if self.interrupted and not self.finished:
            return 130
        fetched = self.info.total().fetched if self.info else self.tally.pages
        return 0 if fetched and not self.unwritten and not self.missing_records else 1

    def as_json(self) -> str:
        """One object, on one line."""
        total = self.info.total() if self.info else None
        values: dict[str, Any] = {
            "crawl_id": self.crawl_id,
            "state": self._state(),
            "run": self.info.run if self.info else None,
            "already_finished": self.already_finished,
            "pages": self.tally.pages,
            "pages_in_all": total.fetched if total else None,
            "failed": total.failed if total else self.tally.failed,
            "dropped": total.dropped if total else self.tally.dropped,
            "links_dropped": total.links_dropped if total else {},
            "queued": total.queued + total.later if total else None,
            "retries": self.tally.retries,
            "items": self.tally.items,
            "bytes": self.tally.bytes,
            "seconds": round(self.seconds, 3),
            "pages_per_second": round(self.tally.pages / self.seconds, 3) if self.seconds else 0.0,
            "missing_records": self.missing_records,
            "outputs": [shown(path) for path in self.outputs],
            "exit_code": self.exit_code(),
        }
        return json.dumps(values)

    def _state(self) -> str:
        if self.lost:
            return "lost"
        if self.interrupted and not self.finished:
            return "interrupted"
        return self.info.state if self.info else "unknown"

    def as_text(self) -> str:
        """A few lines."""
        lines = [self._headline()]
        tally = self.tally
        if not self.already_finished:
            rate = tally.pages / self.seconds if self.seconds else 0.0
            lines.append(
                f"  {counted(tally.pages, 'page')}, {size(tally.bytes)}, in {span(self.seconds)} ({rate:,.1f} pages/s)"
                + (f"; {counted(tally.items, 'item')}" if tally.items else "")
            )
        if self.info is not None:
            total = self.info.total()
            if total.fetched != tally.pages:
                lines.append(f"  in all: {counted(total.fetched, 'page')}")
            if total.failed:
                lines.append(f"  failed: {reasons(total.failed)}")
            if total.dropped:
                lines.append(f"  not fetched: {_not_fetched(total.dropped)}")
            if total.links_dropped:
                lines.append(f"  links not followed: {reasons(total.links_dropped)}")
            if not self.finished:
                lines.append(f"  still queued: {total.queued + total.later:,}")
        if not self.unwritten:
            written = [shown(path) for path in self.outputs if path != "-"]
            if written and (self.already_finished or tally.pages or tally.failed or tally.dropped):
                lines.append(f"  pages are in {', '.join(written)}")
        if self.missing_records:
            lines.append(
                f"  missing from the output: {counted(self.missing_records, 'record')}; it was deleted or cut short"
            )
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.pool:
            return f"The worker for the pool {self.pool} has stopped; what it had not done goes to others."
        if self.lost:
            return f"The crawl {self.crawl_id} is not finished: the frontier lost its data."
        state = self.info.state if self.info else None
        if state is CrawlState.EXPIRED:
            return f"The crawl {self.crawl_id} has expired{' already' if self.already_finished else ''}."
        if self.already_finished:
            return f"The crawl {self.crawl_id} is finished already."
        if state is CrawlState.FINISHED:
            return f"The crawl {self.crawl_id} is finished."
        if state is CrawlState.STOPPED:
            return f"The crawl {self.crawl_id} was stopped."
        if not self.interrupted:
            return f"The crawl {self.crawl_id} ended; how it stands cannot be said now."
        return f"The crawl {self.crawl_id} was interrupted{'.' if self.missing_records else '; nothing is lost.'}"


def _not_fetched(dropped: dict[str, int]) -> str:
    """By reason; what a limit cut off is said in words."""
    others = {reason: count for reason, count in dropped.items() if reason != Dropped.BUDGET}
    beyond = dropped.get(Dropped.BUDGET, 0)
    return ", ".join(filter(None, (reasons(others), f"{beyond:,} beyond the limit of pages" if beyond else "")))

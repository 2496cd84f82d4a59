"""The report at the end of a crawl (`--report`): from which file it is made, and when.

The report is made from an output of the crawl, because outputs have everything that it needs. A crawl that has no such
file on this machine (standard output, remote storage, tables) keeps its pages in the data directory until the report
is written. Safe to change: sentences. Fixed: the name of that file, which the command that resumes the crawl looks for.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId
from gossamer.model.record import Destination
from gossamer.settings import Settings
from gossamer.sinks.open import ENDINGS, TABLES, ending_of

_READABLE = frozenset(ENDINGS) - frozenset(TABLES)
"""Endings of outputs that have the bodies of pages, and take pages unless told otherwise."""


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """The report of one crawl."""

    page: Path
    """Where the report is written."""
    records: Path
    """File that it is made from."""
    is_private: bool
    """True: the crawl writes that file for the report alone, which deletes it."""
    crawl_id: str

    @classmethod
    def of(cls, settings: Settings, crawl: CrawlId) -> Self | None:
        """Return the report that the settings ask for. None: they ask for none."""
        if not settings.crawl.report:
            return None
        page = Path(settings.crawl.report)
        for output in settings.crawl.output:
            if output.records != "items" and _is_readable(output.path):
                return cls(page, Path(output.path), False, crawl.crawlid)
        private = settings.data_dir / "report" / f"{crawl.token}.jsonl.zst"
        return cls(page, private, True, crawl.crawlid)

    def with_output(self, settings: Settings) -> Settings:
        """Return the settings with the private file as one more output, if there is one."""
        if not self.is_private:
            return settings
        outputs = (*settings.crawl.output, Destination(str(self.records), "pages"))
        return settings.model_copy(update={"crawl": settings.crawl.model_copy(update={"output": outputs})})

    async def write(self, *, finished: bool) -> None:
        """Write the report of a crawl that has ended. Raises BadInput or SinkError.

        `finished`: nothing is left to fetch. Then the private file is deleted.
        """
        if not self.records.exists():
            raise BadInput(
                "the pages of this crawl were not kept for one. Crawl it again with --fresh."
                if self.is_private
                else f"{self.records} does not exist. To make one from another file: gossamer report FILE"
            )
        await asyncio.to_thread(self._make)
        if finished and self.is_private:
            self.records.unlink(missing_ok=True)

    def _make(self) -> None:
        from gossamer.report.build import make_report  # imported late: few crawls have a report
        from gossamer.report.page import write_page

        write_page(self.page, make_report([self.records], crawl_id=self.crawl_id).page)


def check_report(settings: Settings) -> None:
    """Check, before anything is fetched, that the report can be written. Raises BadInput."""
    if settings.crawl.report:
        from gossamer.report.page import check_target

        outputs = [Path(output.path) for output in settings.crawl.output if _is_readable(output.path)]
        page = Path(settings.crawl.report)
        if page.suffix.lower() not in (".html", ".htm"):
            raise BadInput(f"--report: {page} does not end with .html. Name a page, for example report.html.")
        check_target(page, outputs)


def _is_readable(path: str) -> bool:
    """Return whether a report can be made from this output: a local file with the bodies of pages."""
    return path != "-" and "://" not in path and ending_of(path) in _READABLE

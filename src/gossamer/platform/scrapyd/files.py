"""Files of jobs under Scrapyd's names, and which of them are kept.

    LOGS/PROJECT/SPIDER/JOB.log
    ITEMS/PROJECT/SPIDER/JOB.jl

A job that is tried again has these names for its last attempt, because clients build them; the files of the first
attempt are then JOB.attempt-1.log and JOB.attempt-1.jl, and so on.

Only files of jobs that the database knows and that have ended are ever deleted: files of others, and those of a job
that runs, stay, whatever their age. Fixed: the names, which clients build themselves.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Row

from gossamer.platform.manager.local_link import FileKind, JobPlaces
from gossamer.platform.scrapyd.config import ScrapydConfig


class JobFile(NamedTuple):
    """Names that lead to a job's files."""

    project: str
    spider: str
    name: str

    @classmethod
    def of(cls, job: Row[Any]) -> "JobFile":
        """Return the names of a job."""
        return cls(job.project, job.spider, job.file_name)

    def below(self, folder: str, suffix: str, *, attempt: int = 0) -> Path:
        """Return the path of the file in this folder. `attempt`: number of an earlier attempt, from 1; 0: the last."""
        earlier = f".attempt-{attempt}" if attempt else ""
        return Path(folder, self.project, self.spider, f"{self.name}{earlier}.{suffix}")


class ScrapydFiles:
    """Places of jobs' files by the configuration."""

    def __init__(self, config: ScrapydConfig) -> None:
        self._config = config

    def places(self, job: Row[Any]) -> JobPlaces:
        """Create the folders of a job that is about to start, move the files of the attempt before, and return the
        places of its files."""
        names, earlier = JobFile.of(job), len(job.earlier_attempts)
        config = self._config
        log = items = ""
        settings: dict[str, str] = {}
        if config.logs_dir:
            log = self._prepare(names, config.logs_dir, "log", earlier)
            # What the process prints goes to the same file, so neither may cut off what the other has written.
            settings |= {"LOG_FILE": log, "LOG_FILE_APPEND": "True"}
        if config.has_local_items:
            items = self._prepare(names, config.items_folder, "jl", earlier)
        elif config.items_dir:  # an address: Scrapy's own exporter writes there, in place of the project's feeds
            address = f"{config.items_dir.rstrip('/')}/{names.project}/{names.spider}/{names.name}.jl"
            settings["FEEDS"] = json.dumps({address: {"format": "jsonlines"}})
        if config.jobs_dir:
            settings["JOBDIR"] = os.path.abspath(Path(config.jobs_dir, *names))
        return JobPlaces(output=log, items=items, arguments={"_job": job.name}, settings=settings)

    def _prepare(self, names: JobFile, folder: str, suffix: str, earlier: int) -> str:
        path = names.below(folder, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        moved = names.below(folder, suffix, attempt=earlier)
        if earlier and not moved.exists():  # else a kill came after this, and what is here is of this attempt
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, moved)
        return os.path.abspath(path)

    def log_url(self, job: Row[Any]) -> str | None:
        """Return the path of the job's log on this server. None: it has none."""
        return _url("logs", self._config.logs_dir, job, "log")

    def items_url(self, job: Row[Any]) -> str | None:
        """Return the path of the job's items on this server. None: it has none."""
        return _url("items", self._config.items_folder, job, "jl")

    def length(self, job: Row[Any], kind: FileKind, attempt: int) -> int | None:
        """Return the length of a file of a job. None: there is no such file."""
        path = self._path(job, kind, attempt)
        try:
            return None if path is None else path.stat().st_size
        except FileNotFoundError:
            return None

    def read(self, job: Row[Any], kind: FileKind, attempt: int, place: slice) -> bytes:
        """Return a part of a file of a job."""
        path = self._path(job, kind, attempt)
        try:
            with open(path or os.devnull, "rb") as file:
                file.seek(place.start)
                return file.read(place.stop - place.start)
        except FileNotFoundError:
            return b""

    def _path(self, job: Row[Any], kind: FileKind, attempt: int) -> Path | None:
        config = self._config
        folder, suffix = (config.logs_dir, "log") if kind is FileKind.LOG else (config.items_folder, "jl")
        return JobFile.of(job).below(folder, suffix, attempt=attempt) if folder else None

    def delete(self, job: Row[Any]) -> None:
        """Delete the files of a job that has ended, with those of its earlier attempts."""
        for folder, suffix in ((self._config.logs_dir, "log"), (self._config.items_folder, "jl")):
            for attempt in range(len(job.earlier_attempts) + 1) if folder else ():
                JobFile.of(job).below(folder, suffix, attempt=attempt).unlink(missing_ok=True)


def _url(base: str, folder: str, job: Row[Any], suffix: str) -> str | None:
    if not folder or not JobFile.of(job).below(folder, suffix).exists():
        return None
    return f"/{base}/{job.project}/{job.spider}/{job.file_name}.{suffix}"

"""Files of jobs under Scrapyd's names, and which of them are kept.

    LOGS/PROJECT/SPIDER/JOB.log
    ITEMS/PROJECT/SPIDER/JOB.jl

A job that is tried again has files of its own for each further attempt: JOB.attempt-2.log and JOB.attempt-2.jl, and so
on. No file is ever renamed, because others may be reading it.

Only files of jobs that the database knows and that have ended are ever deleted: files of others, and those of a job
that runs, stay, whatever their age. Fixed: the names, which clients build themselves.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from starlette.responses import Response

from gossamer.storage.local_file import LocalFile
from gossamer_platform.manager.files import FileKind, JobFiles, JobPlaces
from gossamer_platform.scrapyd import listing
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.listing import PageRequest
from gossamer_platform.state.jobs import Job


class JobFile(NamedTuple):
    """Names that lead to a job's files."""

    project: str
    spider: str
    name: str

    @classmethod
    def of(cls, job: Job) -> "JobFile":
        """Return the names of a job."""
        return cls(job.project, job.spider, job.file_name)

    def below(self, folder: str, suffix: str, *, attempt: int) -> Path:
        """Return the path of the file of an attempt, counted from 1, in this folder."""
        further = f".attempt-{attempt}" if attempt > 1 else ""
        return Path(folder, self.project, self.spider, f"{self.name}{further}.{suffix}")


class ServedFiles(JobFiles, Protocol):
    """Files of jobs with their paths on the server's pages."""

    def log_url(self, job: Job) -> str | None:
        """Return the path of the log of the job's last attempt on this server. None: it has none."""

    def items_url(self, job: Job) -> str | None:
        """Return the path of the items of the job's last attempt on this server. None: it has none."""

    def page(self, root: str, path: str, request: PageRequest) -> Response | None:
        """Return the file or folder `path` below `/logs` or `/items`. None: there is none. Waits for the disk or the
        network: call it in a thread."""


class ScrapydFiles:
    """Places of jobs' files by the configuration."""

    def __init__(self, config: ScrapydConfig) -> None:
        self._config = config

    def places(self, job: Job) -> JobPlaces:
        """Create the folders of a job that is about to start, and return the places of its files."""
        names, attempt = JobFile.of(job), _newest(job)
        config = self._config
        log = items = ""
        settings: dict[str, str] = {}
        if config.logs_dir:
            log = self._prepare(names, config.logs_dir, "log", attempt)
            # What the process prints goes to the same file, so neither may cut off what the other has written.
            settings |= {"LOG_FILE": log, "LOG_FILE_APPEND": "True"}
        if config.has_local_items:
            items = self._prepare(names, config.items_folder, "jl", attempt)
        elif config.items_dir:  # an address: Scrapy's own exporter writes there, in place of the project's feeds
            address = f"{config.items_dir.rstrip('/')}/{names.project}/{names.spider}/{names.name}.jl"
            settings["FEEDS"] = json.dumps({address: {"format": "jsonlines"}})
        if config.jobs_dir:
            settings["JOBDIR"] = os.path.abspath(Path(config.jobs_dir, *names))
        kinds = (config.logs_dir, config.items_folder, config.jobs_dir)
        levels = [Path(kind, *names[:level]) for kind in kinds if kind for level in (1, 2)]
        return JobPlaces(
            output=log,
            items=items,
            arguments={"_job": job.name},
            settings=settings,
            enters=[os.path.abspath(folder) for folder in levels],
            owns=[settings["JOBDIR"]] if config.jobs_dir else [],
        )

    def _prepare(self, names: JobFile, folder: str, suffix: str, attempt: int) -> str:
        path = names.below(folder, suffix, attempt=attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.path.abspath(path)

    def log_url(self, job: Job) -> str | None:
        """Return the path of the log of the job's last attempt on this server. None: it has none."""
        return _url("logs", self._config.logs_dir, job, "log")

    def items_url(self, job: Job) -> str | None:
        """Return the path of the items of the job's last attempt on this server. None: it has none."""
        return _url("items", self._config.items_folder, job, "jl")

    def page(self, root: str, path: str, request: PageRequest) -> Response | None:
        """Return the file or folder `path` below `/logs` or `/items`, as ServedFiles describes it."""
        folder = {"logs": self._config.logs_dir, "items": self._config.items_folder}.get(root)
        return listing.serve(Path(folder), path, request) if folder else None

    def open(self, job: Job, kind: FileKind, attempt: int) -> LocalFile | None:
        """Begin to read a file of a job. None: there is no such file."""
        path = self._path(job, kind, attempt)
        try:
            return None if path is None else LocalFile(path)
        except FileNotFoundError:
            return None

    def has_files(self, project: str, spider: str, name: str) -> bool:
        """Return whether there is a log or a file of items of this name, by whichever program."""
        config, names = self._config, JobFile(project, spider, name)
        folders = ((config.logs_dir, "log"), (config.items_folder, "jl"))
        return any(names.below(folder, suffix, attempt=1).exists() for folder, suffix in folders if folder)

    def _path(self, job: Job, kind: FileKind, attempt: int) -> Path | None:
        config = self._config
        folder, suffix = (config.logs_dir, "log") if kind is FileKind.LOG else (config.items_folder, "jl")
        return JobFile.of(job).below(folder, suffix, attempt=attempt or _last(job)) if folder else None

    def delete(self, job: Job, kind: FileKind) -> None:
        """Delete the logs or the items of all attempts of a job that has ended."""
        for attempt in range(1, _newest(job) + 1):
            path = self._path(job, kind, attempt)
            if path is not None:
                path.unlink(missing_ok=True)


def _newest(job: Job) -> int:
    """Return the number of the newest attempt, which has files or will have them."""
    return len(job.earlier_attempts) + 1


def _last(job: Job) -> int:
    """Return the number of the last attempt that ran. 1: none did."""
    return _newest(job) if job.started_at is not None else max(1, len(job.earlier_attempts))


def _url(base: str, folder: str, job: Job, suffix: str) -> str | None:
    path = JobFile.of(job).below(folder, suffix, attempt=_last(job))
    return f"/{base}/{job.project}/{job.spider}/{path.name}" if folder and path.exists() else None

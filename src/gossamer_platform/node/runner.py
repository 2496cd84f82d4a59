"""Runs one Scrapy job, or lists a project's spiders, in the environment of the project.

    python runner.py crawl FOLDER
    python runner.py list FOLDER

The file stands alone: the environment needs Scrapy, not Gossamer. FOLDER has `job.json` with the job, readable by its
user only, because arguments may be secrets; nothing of it is passed on the command line. The runner writes there, or
into the folder `own` in it, if that exists because FOLDER belongs to another user:

- `spiders.json`: the list. A module that cannot be imported, and settings that raise, end the program with code 1 and a
  traceback, as with `scrapy list`; the project's SPIDER_LOADER_WARN_ONLY is obeyed.
- `warnings.json`: what Scrapy warned of while it loaded the spiders, such as a name that two of them have.
- `report.json`, when the spider is closed: Scrapy's finish_reason and counters, whether the items file was opened, and
  whether an item could not be written. Without it no job counts as finished: Scrapy exits with 0 even when the spider
  never started.
- `progress.json`: counters, every few seconds.
- the items file of the job, if it has one: one JSON object a line, flushed for each item, so that a reader sees what is
  there and a killed job loses none. The number of spaces at the end of a line is the place of the item's class in the
  counter `gossamer/item_types`, from 0. The project's own feeds and extensions stay as they are.

Fixed: the names of files and of their fields, which `attempt.py` reads.
"""

import contextlib
import io
import json
import logging
import os
import resource
import runpy
import sys
from typing import Any

_PROGRESS_SECONDS = 5.0
"""Time between two writes of `progress.json`."""
_REPORT_SECONDS = 1.0
"""Pause until the report is tried again that could not be written."""
_LOOK_SECONDS = 0.05
"""Pause between looks whether Scrapy's engine runs, while a spider is opened."""
_LISTING_BYTES = 64 * 1024 * 1024
"""Largest file that a program may write while spiders are listed: its output."""

_TYPES_KEY = "gossamer/item_types"
"""Counter with the names of the classes of items, separated by commas. `cloud/records.py` reads it: fixed."""
_MAX_TYPES = 50
_TYPES_LENGTH = 900
"""Classes of items that are told apart, and characters of their names together, of which a node reports a thousand. An
item of any other class ends with _MAX_TYPES spaces."""

_WARNINGS = ("Could not load spiders from module", "There are several spiders with the same name")
"""Words of Scrapy's warnings that say something about spiders. Scrapy's: fixed."""

_CREDENTIALS = os.path.join(os.path.dirname(__file__), "../../gossamer/net/credentials.py")
"""The module that hides passwords. It is loaded as a file, because Gossamer may not be installed here."""
_EXTRAS = os.path.join(os.path.dirname(__file__), "../../gossamer/extras.py")
"""The module that knows how packages are installed in this environment, which is loaded in the same way."""
_ADDON_PLACES = frozenset({"gossamer.scrapy.Addon", "gossamer.scrapy.addon.Addon"})
"""Names under which a project may have Gossamer's add-on for Scrapy. Fixed."""


def activate(artefact: str, settings_module: str) -> None:
    """Make the project of an egg, a wheel or a folder of one importable, and name its settings module to Scrapy.

    Without an artefact the project is on the Python path, or Scrapy finds it by the scrapy.cfg of this folder.
    Raises ValueError if the artefact names no settings module.
    """
    if artefact:
        sys.path.insert(0, artefact)
        settings_module = _settings_module(artefact)
    if settings_module:
        os.environ["SCRAPY_SETTINGS_MODULE"] = settings_module


def _settings_module(artefact: str) -> str:
    from importlib.metadata import distributions

    # Not pkg_resources: newer setuptools have none.
    for distribution in distributions(path=[artefact]):
        for entry in distribution.entry_points:
            if entry.group == "scrapy" and entry.name == "settings":
                return str(entry.value)
    module = _module_of_scrapy_cfg(artefact)
    if module:
        return module
    raise ValueError(
        "the egg names no settings module. Its setup.py needs "
        "entry_points={'scrapy': ['settings = project.settings']}; or put a scrapy.cfg with [settings] default = "
        "project.settings into it"
    )


def _module_of_scrapy_cfg(artefact: str) -> str:
    """Return the settings module that a scrapy.cfg in the artefact names: in its top folder, or where setuptools puts
    data files of a wheel. Empty: none does."""
    import configparser
    import zipfile
    from pathlib import Path

    root = Path(artefact) if os.path.isdir(artefact) else zipfile.Path(artefact)
    places = [root, root / "EGG-INFO", *(each / "data" for each in root.iterdir() if each.name.endswith(".data"))]
    for place in places:
        if (place / "scrapy.cfg").is_file():
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string((place / "scrapy.cfg").read_text(encoding="utf-8"))
            return parser.get("settings", "default", fallback="")
    return ""


def write_json(path: str, content: object) -> None:
    """Write a file that is there completely or not at all."""
    with open(f"{path}.new", "w") as file:
        json.dump(content, file, default=str)
    os.replace(f"{path}.new", path)


def result_path(folder: str, name: str) -> str:
    """Return the path of a file that the runner leaves."""
    own = os.path.join(folder, "own")
    return os.path.join(own if os.path.isdir(own) else folder, name)


class Reporter:
    """Reports on one crawl: its items, its counters, its end."""

    def __init__(self, crawler: Any, folder: str, items_path: str) -> None:
        from scrapy import signals

        self._crawler = crawler
        self._folder = folder
        self._items_path = items_path
        self._exporter: Any = None
        self._file: Any = None
        self._line = io.BytesIO()
        """The line of the present item, which the exporter writes."""
        self._types: dict[str, int] = {}
        """Place of each class of items, by its name."""
        self._ticker: Any = None
        self._is_closed = False
        self._fault = ""
        """Reason why an item is missing from the items file. Empty: none is."""
        # weak=False: nothing else keeps this object.
        crawler.signals.connect(self._opened, signal=signals.spider_opened, weak=False)
        crawler.signals.connect(self._item, signal=signals.item_scraped, weak=False)
        crawler.signals.connect(self._closed, signal=signals.spider_closed, weak=False)

    def _opened(self, spider: Any) -> None:
        from twisted.internet.task import LoopingCall

        self._ticker = LoopingCall(self._progress)
        self._ticker.start(_PROGRESS_SECONDS)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        """Stop the crawl if that was asked for before Scrapy's engine ran: until then a signal may be lost, for example
        in an import that catches every exception."""
        from twisted.internet import reactor

        engine = self._crawler.engine
        if self._is_closed:
            return
        if engine is None or not engine.running:
            clock: Any = reactor
            clock.callLater(_LOOK_SECONDS, self._stop_if_asked)
        elif self._was_stopped():
            from scrapy.utils.defer import deferred_from_coro

            deferred_from_coro(engine.stop_async() if hasattr(engine, "stop_async") else engine.stop())

    def _was_stopped(self) -> bool:
        try:
            with open(os.path.join(self._folder, "stops")) as file:
                return any(not json.loads(line).get("only_signal") for line in file if line.endswith("\n"))
        except FileNotFoundError:
            return False

    def _item(self, item: Any, spider: Any) -> None:
        if not self._items_path:
            return
        try:
            self._open_items()
            self._line.seek(0)
            self._line.truncate()
            self._exporter.export_item(item)
            self._file.write(self._line.getvalue().rstrip(b"\n") + b" " * self._place(item) + b"\n")
            self._file.flush()
        except Exception as error:  # the disk is full, say, or the item is no JSON
            self._fault = self._fault or f"item_lost: {type(error).__name__}: {error}"
            raise  # Scrapy logs it

    def _place(self, item: Any) -> int:
        """Return the place of an item's class."""
        name = type(item).__name__
        if name not in self._types:
            if len(self._types) == _MAX_TYPES or sum(map(len, (*self._types, name))) > _TYPES_LENGTH - _MAX_TYPES:
                return _MAX_TYPES
            self._types[name] = len(self._types)
            with contextlib.suppress(Exception):  # an item must not be lost because of a counter
                self._progress()  # readers learn of it at once
        return self._types[name]

    def _open_items(self) -> None:
        """Create the items file. As with Scrapy's feeds, it is not there before the first item or the end."""
        if self._file is not None:
            return
        from scrapy.exporters import JsonLinesItemExporter

        settings = self._crawler.settings
        self._file = open(self._items_path, "ab")  # noqa: SIM115 (closed at the end of the crawl)
        self._exporter = JsonLinesItemExporter(
            self._line,
            encoding=settings["FEED_EXPORT_ENCODING"],
            fields_to_export=settings["FEED_EXPORT_FIELDS"] or None,
        )
        self._exporter.start_exporting()

    def _progress(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full, say: the next one may be written
            write_json(result_path(self._folder, "progress.json"), self._stats())

    def _stats(self) -> dict[str, Any]:
        # As text where JSON has no such key or value: a project may count under a tuple, say.
        found = {
            str(key): value if isinstance(value, str | int | float | None) else str(value)
            for key, value in self._crawler.stats.get_stats().items()
        }
        # First, because a node keeps only some hundreds.
        return {_TYPES_KEY: ",".join(self._types), **found} if self._types else found

    def _closed(self, spider: Any, reason: str) -> Any:
        """Write the report. The Deferred, for which Scrapy waits, is ready when it is written."""
        self._is_closed = True
        if self._ticker is not None and self._ticker.running:
            self._ticker.stop()
        if self._items_path and self._crawler.settings.getbool("FEED_STORE_EMPTY"):
            self._open_items()
        if self._file is not None:
            self._exporter.finish_exporting()
            try:
                self._file.close()
            except OSError as error:
                self._fault = self._fault or f"item_lost: {type(error).__name__}: {error}"
        has_items = self._file is not None
        report = {"finish_reason": reason, "fault": self._fault, "has_items": has_items, "stats": self._stats()}
        return self._report(report, is_late=False)

    def _report(self, report: dict[str, Any], *, is_late: bool) -> Any:
        """Write the report, and repeat it until it can be written: without it the job counts as failed."""
        from twisted.internet import reactor
        from twisted.internet.task import deferLater

        try:
            write_json(result_path(self._folder, "report.json"), report)
        except OSError as error:
            if not is_late:
                logging.getLogger("gossamer").warning("The end of the job cannot be reported yet: %s", error)
            clock: Any = reactor
            return deferLater(clock, _REPORT_SECONDS, self._report, report, is_late=True)
        return None


def give_input(folder: str, job: dict[str, Any]) -> list[str] | None:
    """Add the path of the job's input to its arguments, or return the lines of the input, which are start URLs.

    None: the spider keeps its own start URLs.
    """
    if not job.get("input"):
        return None
    path = os.path.join(folder, job["input"])
    if job["input_use"] != "start_urls":
        job["arguments"] = {**job["arguments"], job["input_use"]: path}
        return None
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def share_frontier(settings: Any) -> None:
    """Add Gossamer's add-on to those of the project, so that the jobs of a group share one queue of requests."""
    from importlib.util import find_spec

    if find_spec("gossamer") is None:
        sys.exit(
            "The jobs of this group share a frontier, which needs Gossamer in the environment of the project. Install "
            f"it there from a checkout: {runpy.run_path(_EXTRAS)['install_advice']('scrapy')}"
        )
    own = settings["SCHEDULER"]
    if settings.getpriority("SCHEDULER") > 0 and not str(getattr(own, "__module__", own)).startswith("gossamer."):
        sys.exit(f"The jobs of this group cannot share a frontier, because the project has its own SCHEDULER, {own}.")
    addons = dict(settings.getdict("ADDONS"))
    places = {name if isinstance(name, str) else f"{name.__module__}.{name.__name__}" for name in addons}
    if not places & _ADDON_PLACES:
        settings.set("ADDONS", {**addons, "gossamer.scrapy.Addon": 0}, priority="cmdline")


def hide_feed_passwords() -> None:
    """Let no password of a feed be in the log of the job: Scrapy writes the addresses of feeds as they are."""
    credentials = runpy.run_path(_CREDENTIALS)

    def hide(record: logging.LogRecord) -> bool:
        record.msg, record.args = credentials["hide_secrets_in"](record.getMessage()), None
        return True

    logging.getLogger("scrapy.extensions.feedexport").addFilter(hide)


def crawl(folder: str) -> None:
    """Run the job. Ends the process with Scrapy's exit code."""
    job = _job(folder)
    activate(job["artefact"], job["settings_module"])

    import scrapy.crawler
    from scrapy.cmdline import execute

    hide_feed_passwords()
    make_crawler = scrapy.crawler.Crawler.__init__
    start_urls = give_input(folder, job)

    def make_reported_crawler(self: Any, *arguments: Any, **named: Any) -> None:
        make_crawler(self, *arguments, **named)
        if start_urls is not None:
            self.spidercls.start_urls = start_urls
        if job.get("shares_frontier"):
            share_frontier(self.settings)
            os.environ["GOSSAMER_GROUP_START"] = str(job["group_start"])
        Reporter(self, folder, job["items"])

    # Not an extension: a spider's custom_settings would replace the setting.
    scrapy.crawler.Crawler.__init__ = make_reported_crawler  # type: ignore[method-assign]
    command = ["scrapy", "crawl", job["spider"]]
    for key, value in job["settings"].items():
        command += ["-s", f"{key}={value}"]
    for key, value in job["arguments"].items():
        command += ["-a", f"{key}={value}"]
    sys.argv = command
    execute(command)


def list_spiders(folder: str) -> None:
    """Write the names of the project's spiders, sorted."""
    job = _job(folder)
    # What the project prints is not part of a message about a fault; and it may print without end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LISTING_BYTES, _LISTING_BYTES))
    activate(job["artefact"], job["settings_module"])

    import warnings

    from scrapy.crawler import CrawlerRunner
    from scrapy.utils.project import get_project_settings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The runner also applies the project's add-ons, which may change where spiders are.
        names = sorted(CrawlerRunner(get_project_settings()).spider_loader.list())
    texts = (str(warning.message).strip() for warning in caught)
    write_json(
        result_path(folder, "warnings.json"), [text for text in texts if any(word in text for word in _WARNINGS)]
    )
    write_json(result_path(folder, "spiders.json"), names)
    sys.stderr.flush()
    os._exit(0)  # a thread or an exit handler of the project cannot spoil the list


def _job(folder: str) -> dict[str, Any]:
    with open(os.path.join(folder, "job.json")) as file:
        job: dict[str, Any] = json.load(file)
    sys.path[0] = ""  # the current folder, as with `python -m`; not the folder of this file
    return job


if __name__ == "__main__":
    {"crawl": crawl, "list": list_spiders}[sys.argv[1]](sys.argv[2])

"""Runs a spider's `parse` and hands its results to the worker: items as mappings, and links. Describes its errors.

`parse` runs in the worker's event loop. While it computes, or waits for something without `await`, the process fetches
nothing; `BlockWatch` measures that and tells the person how long it took and where. An error is described by the place
in the user's own files, because a traceback through libraries tells the writer of a spider little. Fixed: which kinds
of results and items are accepted, on which spiders outside this project rely.
"""

import asyncio
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

import gossamer
from gossamer.errors import BadInput
from gossamer.option_names import named
from gossamer.worker.spider import Spider

if TYPE_CHECKING:
    from gossamer.extract.page import Follow, Page

_FOREIGN = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (os.path.dirname(os.__file__), os.path.dirname(gossamer.__file__))
)
"""Folders whose files are never the user's own, even below the spider's folder: Python's library and Gossamer."""
_MAX_FRAMES = 8
"""Calls of the user's own code that are shown, the innermost ones. More make the message longer."""


class CodePlace(NamedTuple):
    """A line of the user's code that was being executed."""

    file: str
    """Path as Python knows it."""
    line: int
    function: str
    source: str
    """The line itself, without indentation; empty if it cannot be read."""

    def __str__(self) -> str:
        return f"{shown_path(self.file)}, line {self.line}, in {self.function}"


def places_of_error(error: BaseException, home: str) -> list[CodePlace]:
    """Return the calls in the error's traceback that are in the user's own files, as `places_of` does; if none is,
    those of its cause: Python replaces a StopIteration that leaves a coroutine."""
    at: BaseException | None = error
    while at is not None:
        places = places_of(traceback.extract_tb(at.__traceback__), home)
        if places:
            return places
        at = at.__cause__
    return []


def places_of(frames: Iterable[traceback.FrameSummary], home: str) -> list[CodePlace]:
    """Return those of the calls that are in the user's own files, the innermost last. `home`: file of the spider; its
    folder is the user's. Empty: no call is."""
    folder = os.path.join(os.path.dirname(os.path.realpath(home)), "") if home else ""
    own = [frame for frame in frames if _is_own(frame.filename, folder)]
    return [
        CodePlace(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
        for frame in own[-_MAX_FRAMES:]
    ]


def _is_own(file: str, folder: str) -> bool:
    """Return whether a file is the user's own. `folder`: the spider's, with a slash at its end; empty: unknown."""
    if file.startswith("<"):  # code without a file, such as the `__init__` of a dataclass
        return False
    path = os.path.realpath(file)
    return (
        bool(folder)
        and path.startswith(folder)
        and "site-packages" not in path[len(folder) :]
        and not path.startswith(_FOREIGN)
    )


def shown_path(file: str) -> str:
    """Return a path for a person: relative if the file is in the working folder or below it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def error_text(error: BaseException) -> str:
    """Return type and message of an error in one piece."""
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def record_text(error: BaseException, home: str) -> str:
    """Return the error as a record has it: type, message, and the innermost line of the user's own code. Its file is
    named relative to the spider's folder, because records go to other machines."""
    places = places_of_error(error, home)
    if not places:
        return error_text(error)
    file = os.path.relpath(places[-1].file, os.path.dirname(home))
    return f"{error_text(error)} ({file}, line {places[-1].line}, in {places[-1].function})"


def terminal_text(error: BaseException, home: str) -> str:
    """Return the error for a terminal, on several lines: the calls of the user's own code, then the error."""
    lines = []
    for place in places_of_error(error, home):
        lines.append(f"  {place}")
        if place.source:
            lines.append(f"    {place.source}")
    return "\n".join([*lines, f"  {error_text(error)}"])


Found: TypeAlias = "Follow | dict[str, Any]"
"""A link, or an item."""
Take = Callable[[Found], Awaitable[None]]
"""Handles one result of a spider. Raises BadInput for one that cannot be used, which is raised again where the spider
yielded it, so that the traceback has the user's line."""

_END = object()  # stands for the end of an iterator, which may yield None


async def run_parse(spider: Spider, page: "Page", take: Take, watch: "BlockWatch") -> None:
    """Pass everything that the spider finds on the page to `take`. Raises what the spider's code raises, and BadInput
    for what is neither item nor link."""
    from gossamer.extract.page import Follow  # imported late, as below: most crawls only follow links

    with watch.step(spider, page):
        result = spider.parse(page)
    if inspect.isawaitable(result):
        result = await _Watched(result, watch, spider, page)
    if result is None:
        return
    results = _Results(take)
    if isinstance(result, Follow) or as_item(result) is not None:
        await results.take(result)
    elif hasattr(result, "__anext__"):
        await _take_async(result, results, lambda step: _Watched(step, watch, spider, page))
    elif isinstance(result, Iterator | list | tuple | set | frozenset):
        await _take_all(iter(result), results, lambda: watch.step(spider, page))
    else:
        raise BadInput(f"{_unusable(result, 'returned')} ({_definition(spider)})")


_MAX_RESULTS = 1_000_000
"""Results that a spider may give for one page; an endless generator would fill the memory."""
_TURN_SECONDS = 0.02
"""Time after which a spider that gives results without a pause lets the other requests of its worker go on. Longer
delays them, shorter takes more time."""


class _Results:
    """Results of one page on their way to the worker."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._count = 0
        self._last_turn = time.monotonic()

    async def take(self, found: Any) -> None:
        """Pass a result on. None is none. Raises BadInput for what is neither item nor link, and for too many."""
        self._count += 1
        if self._count > _MAX_RESULTS:
            raise BadInput(f"parse gave more than {_MAX_RESULTS:,} results for one page. Does its loop ever end?")
        if found is not None:
            await self._take(_found(found))
        if time.monotonic() - self._last_turn > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._last_turn = time.monotonic()


async def _take_all(iterator: Iterator[Any], results: _Results, step: Callable[[], "BlockWatch"]) -> None:
    """Take the results of a generator or of a list."""
    refused: BadInput | None = None
    while True:
        with step():
            if refused is None:
                one = next(iterator, _END)
            elif isinstance(iterator, Generator):
                try:
                    one = iterator.throw(refused)
                except StopIteration:  # the spider has caught it and ended
                    return
            else:
                raise refused
        refused = None
        if one is _END:
            return
        try:
            await results.take(one)
        except BadInput as error:
            refused = error.with_traceback(None)  # it gets that of the user's own line


async def _take_async(iterator: Any, results: _Results, watched: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Take the results of an asynchronous generator."""
    refused: BadInput | None = None
    while True:
        try:
            if refused is None:
                one = await watched(iterator.__anext__())
            elif hasattr(iterator, "athrow"):
                one = await watched(iterator.athrow(refused))
            else:
                raise refused
        except StopAsyncIteration:
            return
        refused = None
        try:
            await results.take(one)
        except BadInput as error:
            refused = error.with_traceback(None)  # it gets that of the user's own line


# --- items ------------------------------------------------------------------------------------------------------------

_KEPT_TYPES = (bytes, bytearray, datetime, date, day_time, timedelta, Decimal, UUID)
"""Types that stay as they are in an item, because the outputs write them."""

_FIELDS = ("__dataclass_fields__", "__attrs_attrs__")
"""Attributes by which objects of dataclasses and of attrs are known. Fixed by these."""


def as_item(found: object) -> dict[str, Any] | None:
    """Return an item as a mapping of its own. None: the object is no item."""
    if isinstance(found, Mapping):
        return dict(found)
    if isinstance(found, type):
        return None
    dump = getattr(found, "model_dump", None)  # pydantic
    if callable(dump):
        found = dump()
    elif not isinstance(found, msgspec.Struct) and not any(hasattr(found, mark) for mark in _FIELDS):
        return None
    item = msgspec.to_builtins(found, builtin_types=_KEPT_TYPES, enc_hook=_plain)
    return item if isinstance(item, dict) else None


def _plain(value: Any) -> Any:
    """Return a value inside an item that msgspec does not know: the contents of a pydantic model, else its text."""
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else str(value)


def _found(found: Any) -> Found:
    """Return a result as a link or an item. Raises BadInput for anything else."""
    from gossamer.extract.page import Follow

    if isinstance(found, Follow):
        return found
    item = as_item(found)
    if item is None:
        raise BadInput(_unusable(found, "yielded"))
    return item


_SHOWN_CHARACTERS = 100
"""Characters of an unusable result that an error shows. More make messages and records longer."""


def _unusable(found: object, verb: str) -> str:
    """Return what a spider yielded or returned that is neither item nor link, and what to write instead."""
    from gossamer.extract.page import PageLink

    kind = type(found)
    shown = f"parse {verb} {'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"
    if isinstance(found, PageLink) or kind.__module__.partition(".")[0] == "scrapy":
        return f"{shown}. To follow a link, write: yield page.follow(link)"
    if isinstance(found, str):
        return f"{shown}, {found[:_SHOWN_CHARACTERS]!r}. To follow a link, write: yield page.follow(url)"
    if isinstance(found, Iterator | list | tuple | set):
        return f"{shown}. To yield each of its elements, write: yield from ..."
    if hasattr(found, "__anext__"):
        return f"{shown}. To yield each of its elements, write: async for one in ...: yield one"
    if inspect.isawaitable(found):
        return f"{shown}. Its result takes an await: write async def parse, and yield await ..."
    return f"{shown}. An item is a dict or an object with fields, and a link is page.follow(url)."


def _definition(spider: Spider) -> str:
    """Return where the spider's `parse` is written."""
    code = getattr(inspect.unwrap(type(spider).parse), "__code__", None)
    return f"{shown_path(code.co_filename)}, line {code.co_firstlineno}" if code else type(spider).__name__


# --- blocking ---------------------------------------------------------------------------------------------------------

_LONG_SECONDS = 1.0
"""A spider that computes for this long without a pause is reported. A shorter time reports spiders that do little
harm."""
_POLL_SECONDS = 0.25
"""Interval at which the watching thread looks."""
_IDLE_POLLS = 40
"""Number of looks without a running spider after which the watching thread ends."""


class BlockWatch:
    """Measures for how long spiders keep the event loop busy, and tells the person about long times.

    Use one for all spiders of a worker, only in the thread of its event loop. A thread looks after it, because the
    event loop itself can do nothing while a spider blocks it.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` shows a sentence to a person; it is also called from the watching thread."""
        self._tell = tell
        self._spider: Spider | None = None
        self._page: Page | None = None
        self._since = 0.0
        """Start of the running step, monotonic; 0: no spider is running."""
        self._told_step = 0.0
        """Start of the step that the watching thread has told about."""
        self._blocked_seconds = 0.0
        """Time of all long steps."""
        self._next_told_seconds = 0.0
        """Time of all long steps from which the next one is told, so that a slow spider does not fill the terminal."""
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._pending_advice = _ADVICE

    def step(self, spider: Spider, page: "Page") -> "BlockWatch":
        """Return a context in which the spider's code runs without a pause."""
        self._spider, self._page = spider, page
        return self

    def __enter__(self) -> None:
        self._since = time.monotonic()
        if self._thread is None:
            self._loop_thread = threading.get_ident()
            self._thread = threading.Thread(target=self._look, name="gossamer-block-watch", daemon=True)
            self._thread.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        started, self._since = self._since, 0.0
        seconds = time.monotonic() - started
        if seconds >= _LONG_SECONDS:
            self._on_long_step(seconds, told=self._told_step == started)
        if isinstance(error, asyncio.CancelledError | GeneratorExit) and not _is_cancelled():
            # The worker would take it for the end of its own task, and the request would never end.
            raise RuntimeError(f"parse ended with {type(error).__name__}") from error

    def _on_long_step(self, seconds: float, *, told: bool) -> None:
        """Tell about a long step that has ended, unless little has changed since the last time."""
        self._blocked_seconds += seconds
        if self._blocked_seconds < self._next_told_seconds:
            return
        self._next_told_seconds = 2 * self._blocked_seconds
        if told and seconds < 2 * _LONG_SECONDS:
            return
        in_all = f" ({self._blocked_seconds:.1f} s in all)" if self._blocked_seconds > seconds else ""
        self._tell(
            f"{self._subject()} for {seconds:.1f} s{in_all}; nothing else was fetched meanwhile.{self._advice()}"
        )

    def _look(self) -> None:
        """Look after the steps until none has run for a while. Runs in a thread of its own."""
        idle = 0
        while idle < _IDLE_POLLS:
            time.sleep(_POLL_SECONDS)
            since = self._since
            idle = 0 if since else idle + 1
            if not since or since == self._told_step or self._blocked_seconds < self._next_told_seconds:
                continue
            seconds = time.monotonic() - since
            if seconds >= _LONG_SECONDS:
                self._told_step = since
                self._tell_about_running(seconds)
        self._thread = None

    def _tell_about_running(self, seconds: float) -> None:
        """Tell where a step is that takes long."""
        spider = self._spider
        frame = sys._current_frames().get(self._loop_thread)
        if spider is None or frame is None:
            return
        places = places_of(traceback.extract_stack(frame), home_of(spider))
        where = f" at {places[-1]}:\n    {places[-1].source}\n " if places else "."
        self._tell(f"{self._subject()} for {seconds:.1f} s{where} Nothing else is fetched meanwhile.{self._advice()}")

    def _advice(self) -> str:
        """Return what to do, the first time."""
        advice, self._pending_advice = self._pending_advice, ""
        return advice

    def _subject(self) -> str:
        page = self._page
        return f"The spider {page.record.spiderid} has been busy with {page.url}" if page else "A spider has been busy"


def _is_cancelled() -> bool:
    """Return whether the running task was cancelled, or there is none: the process ends."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task.cancelling() > 0


_ADVICE = (
    " What waits belongs into an async function: async def parse, and await asyncio.to_thread(function). For what "
    f"computes, use several {named('processes')}."
)


def home_of(spider: Spider) -> str:
    """Return the file of a spider's class; empty if it has none."""
    try:
        return inspect.getsourcefile(type(spider)) or ""
    except (OSError, TypeError):
        return ""


class _Watched:
    """Awaitable that awaits another one, and tells the watch when code runs in it."""

    def __init__(self, awaitable: Awaitable[Any], watch: BlockWatch, spider: Spider, page: "Page") -> None:
        self._awaitable = awaitable
        self._watch = watch
        self._spider = spider
        self._page = page

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                with self._watch.step(self._spider, self._page):
                    if error is not None:
                        waits_for = steps.throw(error)
                    else:
                        waits_for = steps.send(sent) if sent is not None else next(steps)
            except StopIteration as stop:
                return stop.value
            error = sent = None
            try:
                sent = yield waits_for
            except BaseException as thrown:
                error = thrown

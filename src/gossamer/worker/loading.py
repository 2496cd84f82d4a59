"""Finds and loads spiders: installed ones by their entry point, and those of a Python file by its path.

A reference is what a person types: the name of an installed spider, or `shop.py`, or `shop.py:ListSpider`. Everything
that can be wrong with a file is reported with its line and with what to write instead, before anything is fetched.

Fixed: the entry point group, the form of references, the names of spiders (the frontier, the store of requests, keeps
them with each request) and `identity`, of which the ids of crawls are made.
"""

import contextlib
import inspect
import linecache
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gossamer.errors import BadSpider
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import CrawlId
from gossamer.model.request import SPIDER_FILE, spider_name_error
from gossamer.option_names import label, named
from gossamer.worker.parsing import error_text, places_of_error, record_text, shown_path
from gossamer.worker.spider import LinkSpider, Spider

GROUP = "gossamer.spiders"
"""Entry point group (a section in the metadata of an installed package) of spiders. Fixed: their packages name it."""

_EXAMPLE = """
    from gossamer import Spider

    class Shop(Spider):
        def parse(self, page):
            yield {"title": page.css("h1::text").get()}
"""


def known_spiders() -> list[str]:
    """Return the names of all installed spiders."""
    return sorted(_installed())


def _installed() -> Mapping[str, str]:
    """Return the installed spiders: where they are, as `module:class`, by name. Of two with one name the first counts.

    The files of the installed packages are read here, and not by `importlib.metadata`, which takes several times as
    long; every crawl needs them before its first request.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            status = os.stat(folder or ".")
        except OSError:
            continue
        if not stat.S_ISDIR(status.st_mode):  # an archive of packages
            from importlib.metadata import entry_points

            return {entry.name: entry.value for entry in reversed(tuple(entry_points(group=GROUP)))}
        for path in _files_with_spiders(folder or os.getcwd(), status.st_mtime_ns):
            for name, place in _entries(path.read_text(encoding="utf-8") if path.is_file() else ""):
                found.setdefault(name, place)
    return found


@lru_cache(maxsize=256)
def _files_with_spiders(folder: str, changed: int) -> tuple[Path, ...]:
    """Return the files of entry points of the packages in a folder that name spiders. `changed`: time of the last
    change of the folder, when packages are looked for again."""
    found = []
    for package in sorted(os.listdir(folder)):
        if package.endswith((".dist-info", ".egg-info")):
            path = f"{folder}/{package}/entry_points.txt"
            with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
                if GROUP.encode() in file.read():
                    found.append(Path(path))
    return tuple(found)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and places in the section `[gossamer.spiders]` of a file of entry points."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        name, equals, place = line.partition("=")
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == GROUP and equals and not line.startswith("#"):
            yield name.strip(), place.partition("[")[0].strip()  # without extras


def _load(place: str) -> Callable[[], object]:
    """Return what `module:class` names. Raises an error of any kind."""
    module, _, attributes = place.partition(":")
    found: Any = import_module(module)
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute)
    loaded: Callable[[], object] = found
    return loaded


class LoadedSpider(msgspec.Struct, frozen=True):
    """A spider that can be started."""

    name: str
    """Name under which the frontier keeps its requests."""
    make: Callable[[], object]
    """Makes a spider object; the class, for most spiders."""
    reference: str
    """Reference that leads to this spider alone: with the class for one of a file."""
    siblings: tuple[str, ...] = ()
    """References to the other spiders of its file, to which it may send links."""
    sibling_names: tuple[str, ...] = ()
    """Their names."""


def is_file(reference: str) -> bool:
    """Return whether a reference names a Python file rather than an installed spider."""
    return SPIDER_FILE.fullmatch(reference) is not None


def find_spider(reference: str) -> LoadedSpider:
    """Return the spider that a reference names. Raises BadSpider if there is none, or its code does not load."""
    parts = SPIDER_FILE.fullmatch(reference)
    if parts:
        return _spider_of_file(parts["path"], parts["spider"] or "")
    if reference in _program_spiders:
        return LoadedSpider(reference, _program_spiders[reference], reference)
    place = _installed().get(reference)
    if place is None:
        raise BadSpider(_unknown(reference))
    try:
        return LoadedSpider(reference, _load(place), reference)
    except Exception as error:
        raise BadSpider(f"the spider {reference} does not load: {error_text(error)}") from error


_program_spiders: dict[str, type[Spider]] = {}
"""Spiders of the program that this process runs, by name."""


def add_program_spider(spider: type[Spider]) -> str:
    """Make a class of this program findable, and return the reference to it. Raises BadSpider."""
    if not (inspect.isclass(spider) and issubclass(spider, Spider)):
        raise BadSpider(f"{spider!r:.200} is no spider. Pass a class that is derived from gossamer.Spider.")
    path = _source(spider)
    _check_class(path, spider)
    _check_names(path, [spider])
    name = spider_name(spider)
    if name in known_spiders():
        raise BadSpider(
            f"{path}, line {_line(spider)}: the spider {spider.__name__} has the name of an installed one, {name}. "
            f'Write another into the class: name = "my{name}"'
        )
    _program_spiders[name] = spider
    return name


def _unknown(name: str) -> str:
    """Return the message for a name that no installed spider has."""
    installed = f"there is no spider {name}; installed are {', '.join(known_spiders())}."
    file = f"{name}.py"
    return (
        f"{installed} For the spider in {file}, write {named('spider', file)}." if Path(file).is_file() else installed
    )


def identity(spider: LoadedSpider) -> str:
    """Return what the id of a crawl contains of its spider.

    The name of an installed spider; for one of a file, the file's name without its folder and the spider's name. So a
    corrected or moved file goes on with its crawl, and a copy under another name begins another one.
    """
    parts = SPIDER_FILE.fullmatch(spider.reference)
    return f"{Path(parts['path']).name}:{spider.name}" if parts else spider.name


def make_spider(spider: LoadedSpider) -> Spider:
    """Make a spider object. Raises BadSpider."""
    try:
        made = spider.make()
    except Exception as error:
        home = inspect.getsourcefile(spider.make) or "" if inspect.isclass(spider.make) else ""
        raise BadSpider(f"the spider {spider.name} cannot be made: {record_text(error, home)}") from error
    if not isinstance(made, Spider):
        raise BadSpider(f"the spider {spider.name} ({spider.make!r}) is not a gossamer.Spider")
    return made


_MAX_OBJECTS = 1000
"""Spider objects that a worker keeps; beyond it the oldest is dropped, and its crawl gets a new object, which has lost
what the old one remembered. More take memory."""

_ASSETS = LinkSpider()
"""Stands for the spider of assets, which are not parsed."""


class SpiderSet:
    """Spiders of one worker, with one object for each crawl and name, which handles all pages of that crawl here."""

    def __init__(self, references: Iterable[str] = ()) -> None:
        """`references`: spiders that the worker works for. Those of files are loaded now, installed ones on first use,
        so that a broken one disturbs no other crawl. Raises BadSpider."""
        self._objects: dict[tuple[CrawlId, str], Spider] = {}
        self._loaded: dict[str, LoadedSpider] = {}
        names: dict[str, None] = {}
        for reference in references:
            if is_file(reference):
                spider = find_spider(reference)
                names[self._loaded.setdefault(spider.name, spider).name] = None
            else:
                names[reference] = None
        self.names = tuple(names)
        """Names of the spiders of the references."""

    def get(self, crawl: CrawlId, name: str) -> Spider:
        """Return the spider of this crawl and name. Raises BadSpider as `find_spider` does."""
        if name == ASSET_SPIDER:
            return _ASSETS
        spider = self._objects.get((crawl, name))
        if spider is None:
            loaded = self._loaded.get(name)
            if loaded is None:
                loaded = self._loaded[name] = find_spider(name)
            spider = self._objects[crawl, name] = make_spider(loaded)
            if len(self._objects) > _MAX_OBJECTS:
                del self._objects[next(iter(self._objects))]
        return spider


# --- spiders of a file ------------------------------------------------------------------------------------------------

_modules: dict[tuple[str, int, int], ModuleType] = {}
"""Files that this process has loaded, by path, time of change (ns) and size. A changed file is loaded again, so that a
notebook sees the corrected spider."""


def _spider_of_file(path: str, wanted: str) -> LoadedSpider:
    """Return a spider of a file. `wanted`: its class; empty: the only one of the file. Raises BadSpider."""
    module = _load_file(path)
    classes = _spider_classes(module)
    if not classes:
        raise BadSpider(_no_spider(path, module))
    if wanted:
        chosen = next((one for one in classes if one.__name__ == wanted), None)
        if chosen is None:
            import difflib  # imported late: only mistakes need it

            close = difflib.get_close_matches(wanted, [one.__name__ for one in classes], 1)
            names = ", ".join(f"{one.__name__} (line {_line(one)})" for one in classes)
            hint = f" Did you mean {path}:{close[0]}?" if close else ""
            raise BadSpider(f"{path} has no spider {wanted}. It has: {names}.{hint}", option="spider")
    else:
        # Classes that others of the file are derived from are their common parts.
        leaves = [one for one in classes if not any(one in other.__mro__[1:] for other in classes)]
        public = [one for one in leaves if not one.__name__.startswith("_")] or leaves
        if len(public) > 1:
            names = ", ".join(f"{one.__name__} (line {_line(one)})" for one in public)
            raise BadSpider(
                f"{path} has {len(public)} spiders: {names}. Name one of them: "
                f"{named('spider', f'{path}:{public[0].__name__}')}",
                option="spider",
            )
        chosen = public[0]
    _check_class(path, chosen)
    siblings = [one for one in classes if one is not chosen and _overrides_parse(one)]
    _check_names(path, [chosen, *siblings])
    return LoadedSpider(
        spider_name(chosen),
        chosen,
        f"{path}:{chosen.__name__}",
        tuple(f"{path}:{one.__name__}" for one in siblings),
        tuple(map(spider_name, siblings)),
    )


def spider_name(spider: type[Spider]) -> str:
    """Return the name of a spider that is not installed: its attribute `name`, or its class name in lower case."""
    return spider.name or spider.__name__.lower()


def _load_file(path: str) -> ModuleType:
    """Run a Python file and return its module. Raises BadSpider."""
    absolute = os.path.abspath(path)
    try:
        stat = os.stat(absolute)
        source = Path(absolute).read_bytes()
    except OSError as error:
        name = Path(path).stem
        is_missing = isinstance(error, FileNotFoundError) and not os.path.dirname(path)
        new = f" To write one: gossamer new spider {name}" if is_missing else ""
        raise BadSpider(f"{path} cannot be read: {error.strerror}.{new}", option="spider") from None
    key = (absolute, stat.st_mtime_ns, stat.st_size)
    module = _modules.get(key)
    if module is not None:
        return module
    # A name of its own: a file called json.py must not hide the module that Gossamer needs.
    name = f"gossamer_spider_{re.sub(r'[^0-9A-Za-z_]', '_', Path(path).stem)}"
    module = ModuleType(name)
    module.__file__ = absolute
    folder = os.path.dirname(absolute)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    if folder not in sys.path:
        # So that the file can import those beside it. Last: a file there called copy.py or csv.py must not hide a
        # module that Gossamer or a library imports.
        sys.path.append(folder)
    linecache.checkcache(absolute)
    try:
        # Not imported: Python would take a file that was corrected within a second for the one that it has compiled.
        exec(compile(source, absolute, "exec"), module.__dict__)  # noqa: S102  # the user's code
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        raise BadSpider(_load_failure(path, absolute, error), option="spider") from None
    _modules[key] = module
    return module


def _load_failure(path: str, absolute: str, error: BaseException) -> str:
    """Return why a file does not load: the place, the error, and what to write instead where that is known."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").rstrip()
        indented = len(text) - len(text.lstrip())
        caret = " " * max(0, (error.offset or 1) - 1 - indented) + "^"
        shown = f"\n    {text.lstrip()}\n    {caret}" if text else ""
        where = path if error.filename == absolute else shown_path(error.filename)
        return f"{where}, line {error.lineno or 1}: {type(error).__name__}: {error.msg}{shown}"
    places = places_of_error(error, absolute)
    place = places[-1] if places else None
    if place is None:  # the file is no text at all
        return f"{path} cannot be read as Python: {error_text(error)}"
    where = path if place.file == absolute else shown_path(place.file)
    return f"{where}, line {place.line}: {error_text(error)}\n    {place.source}\n{_advice(error)}".rstrip()


def _advice(error: BaseException) -> str:
    """Return what to do about an error that a file raised when it was loaded; empty if that is not known."""
    if isinstance(error, SystemExit):
        return 'The file ends the program when it is loaded. Put that below: if __name__ == "__main__":'
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "gossamer":
        return "Write: from gossamer import Spider"
    if isinstance(error, ModuleNotFoundError) and error.name:
        # The name of a module is not that of a package: a stranger may own the package of this name.
        return (
            f"The Python that runs Gossamer ({sys.executable}) has no module {error.name}. If it is the project's own, "
            "put it beside the spider's file; else install the project's requirements for that Python."
        )
    return ""


def _spider_classes(module: ModuleType) -> list[type[Spider]]:
    """Return the spiders that a file defines, in the order of their lines. Imported ones do not count."""
    own = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Spider)
        and value.__module__ == module.__name__
        and value.__name__ == name
    ]
    return sorted(dict.fromkeys(own), key=_line)


def _source(found: type) -> str:
    """Return the file of a class, relative to this folder if it is in it."""
    try:
        return shown_path(inspect.getsourcefile(found) or "the program")
    except (OSError, TypeError):
        return "the program"


def _line(found: type) -> int:
    """Return the line at which a class begins; 0 if that cannot be found out."""
    try:
        return inspect.getsourcelines(found)[1]
    except (OSError, TypeError):
        return 0


def _overrides_parse(spider: type[Spider]) -> bool:
    """Return whether a class can read pages: it has its own `parse`, or follows all links, as the built-in ones do."""
    return spider.follows_all_links or spider.parse is not Spider.parse


def _no_spider(path: str, module: ModuleType) -> str:
    """Return the message for a file without a spider, with a hint at what the user may have meant."""
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    for one in classes:
        is_scrapys = any(base.__module__.partition(".")[0] == "scrapy" for base in one.__mro__[1:])
        if is_scrapys and one.__module__ == module.__name__:
            return (
                f"{label('spider')}: {path}, line {_line(one)}: {one.__name__} is a spider of Scrapy. Run it with "
                "scrapy runspider, or derive it from gossamer.Spider: from gossamer import Spider"
            )
    for one in classes:
        if one.__module__ == module.__name__ and callable(getattr(one, "parse", None)):
            return (
                f"{label('spider')}: {path}, line {_line(one)}: the class {one.__name__} is no spider. Write: class "
                f"{one.__name__}(Spider), and above it: from gossamer import Spider"
            )
    return f"{label('spider')}: {path} defines no spider. Write a class in it, for example:\n{_EXAMPLE}"


def _check_class(path: str, spider: type[Spider]) -> None:
    """Check that pages can be passed to a spider. Raises BadSpider."""
    where = f"{label('spider')}: {path}, line {_line(spider)}: the class {spider.__name__}"
    if not _overrides_parse(spider):
        raise BadSpider(f"{where} has no method parse. Write one: def parse(self, page):")
    if spider.follows_all_links:
        return
    if not callable(spider.parse):
        raise BadSpider(
            f"{where} has a parse that is no method, but {spider.parse!r:.100}. Write: def parse(self, page):"
        )
    try:
        inspect.signature(spider.parse).bind(None, None)
    except TypeError:
        found = f"def parse{inspect.signature(spider.parse)}"
        raise BadSpider(f"{where} has `{found}`. Write: def parse(self, page):") from None
    except ValueError:
        pass  # a callable without a signature, such as one of C


def _check_names(path: str, spiders: list[type[Spider]]) -> None:
    """Check that the frontier can keep requests under the names of these spiders. Raises BadSpider."""
    seen: dict[str, type[Spider]] = {}
    for spider in spiders:
        name = spider_name(spider)
        where = f"{label('spider')}: {path}, line {_line(spider)}: the spider {spider.__name__}"
        if not isinstance(name, str) or (why := spider_name_error(name)):
            raise BadSpider(f"{where}: {why if isinstance(name, str) else f'its name is {name!r}. Write a text.'}")
        if name in seen:
            raise BadSpider(
                f'{where} has the name of {seen[name].__name__}, {name}. Write another into the class: name = "{name}2"'
            )
        seen[name] = spider

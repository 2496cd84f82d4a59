"""Outputs around a crawl: those that exist before it, and empty ones. Those that a person names when it is finished are
in `later_outputs.py`.

Fixed: a file with the records of another crawl is neither emptied nor added to, except in the cases in the docstring of
`find_existing`, which users rely on.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gossamer.crawling.work import CrawlResult
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlState, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.record import Destination, ItemRecord
from gossamer.option_names import named
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.append import check_folder
from gossamer.sinks.assets import crawls_in, empty_folder, manifest_of
from gossamer.sinks.open import (
    discard,
    has_content,
    is_local,
    kind_of,
    local_path,
)
from gossamer.sinks.stores.address import is_store
from gossamer.wiring.frontier import (
    CrawlNote,
    KnownWriters,
    absolute_path,
    may_have_written,
    read_note,
    write_note,
)
from gossamer.wiring.outputs import spool_folder, table_options

if TYPE_CHECKING:  # imported late: most crawls have no index
    from gossamer.crawling.visits import Visits


def exists(output: Destination) -> bool:
    """Return whether an output is a file with content, local or remote. Raises SinkError for a server that cannot be
    asked."""
    return not may_be_made(output) or bool(_remote_file(output.path))


def may_be_made(output: Destination) -> bool:
    """Return whether an output may still be made: it is no local file with content."""
    return not (is_local(output.path) and has_content(local_path(output.path)))


# --- outputs that exist before the crawl ------------------------------------------------------------------------------


class StartOptions(msgspec.Struct, frozen=True):
    """Options of a person for the beginning of a crawl, and for outputs that exist. They are --fresh and --append."""

    fresh: bool = False
    """True: a finished crawl is crawled again, and its outputs begin empty."""
    append: bool = False
    """True: outputs keep what they hold, whichever crawl wrote it."""
    named_outputs: bool = True
    """False: no output is named, and the default one is used."""
    round: "Visits | None" = None
    """Pages to visit in a run of their own. None: the crawl is not kept up to date."""
    resume_command: str = ""
    """Command line that resumes the crawl, for its note. Empty: a program starts the crawl."""

    @property
    def replaces_outputs(self) -> bool:
        """True: outputs begin empty."""
        return self.fresh and not self.append


class ExistingOutputs(msgspec.Struct):
    """Outputs with content of a crawl that is about to begin or to go on: local ones, unless a field says otherwise."""

    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes of each, by path as it is named."""
    failed_only: list[str] = msgspec.field(default_factory=list)
    """Paths of those with nothing but failed requests of another crawl of the same site, or without any record. They
    are emptied: most likely that crawl was begun with wrong options, and this one is its correction."""
    beside: set[str] = msgspec.field(default_factory=set)
    """Names of other crawls whose records stay in an output."""
    foreign: list[str] = msgspec.field(default_factory=list)
    """Absolute paths of those with rows that name no crawl and that no known crawl wrote, which stay."""
    replaced: list[str] = msgspec.field(default_factory=list)
    """Absolute paths of those that other crawls of the same seeds wrote. They are emptied (--fresh)."""
    replaced_remotely: list[str] = msgspec.field(default_factory=list)
    """Addresses, without passwords, of remote files that this crawl is not known to have written, and that --fresh
    deletes."""

    def empty(self, outputs: Sequence[Destination], settings: Settings, crawl_id: str) -> None:
        """Empty these outputs; a store loses only the rows of this crawl. A file that has changed meanwhile stays:
        another command is writing it."""
        for output in outputs:
            path = local_path(output.path)
            size = path.stat().st_size if is_local(output.path) and path.exists() else 0
            if size == self.sizes.get(output.path, 0):
                discard(output, spool_dir=spool_folder(settings), crawl_id=crawl_id, tables=table_options(settings))

    def empty_assets(self, folder: str) -> None:
        """Delete the assets in a folder. If its manifest has changed meanwhile, they stay, as above."""
        manifest = Path(manifest_of(folder))
        if manifest.exists() and manifest.stat().st_size == self.sizes.get(str(manifest), 0):
            empty_folder(Path(folder))


def find_existing(
    outputs: Sequence[Destination], folder: str, known: KnownWriters, start: StartOptions
) -> ExistingOutputs:
    """Return which outputs have content, and check that this crawl may use them. Raises BadInput for the first one that
    it may not use.

    With --append, every output may be used. Otherwise an output must hold records of this crawl, records of other
    crawls if an earlier start of this crawl was given --append for them, nothing but failures of a crawl of the same
    site, or none at all. --fresh also replaces what only crawls of the same seeds wrote. The notes in the data
    directory tell whose a file is that does not name its crawl. `folder`: of assets, the files that pages embed or
    link; empty: none.
    """
    note = known.note()
    found = ExistingOutputs()
    if folder:
        _check_assets(found, folder, known.crawl_id, start, set(note.beside if note else ()))
    for output in outputs:
        if may_be_made(output):  # it holds nothing, or is no local file
            if start.replaces_outputs and (note is None or output.path not in note.outputs):
                found.replaced_remotely += _remote_file(output.path)
            continue
        path = local_path(output.path)
        found.sizes[output.path] = path.stat().st_size
        absolute = absolute_path(output.path)
        is_known = note is not None and may_have_written(note, absolute)
        if not is_known and not _has_records(path):
            found.failed_only.append(output.path)
            continue
        try:
            crawls = _crawls_in(path, all_records=start.replaces_outputs)
        except BadInput as error:
            if is_known or start.append:
                continue  # the sink repairs a torn end, or refuses the file
            raise BadInput(
                f"{path} is not empty, and not the output of a crawl ({error.detail}). {_otherwise()}"
            ) from None
        if note is not None and absolute in note.foreign:
            found.foreign.append(absolute)
        if start.append:
            _append_to(found, absolute, crawls, known, is_known=is_known)
        else:
            _check_writers(found, output.path, crawls, known, start)
    return found


def _remote_file(path: str) -> list[str]:
    """Return the address, without its password, of a remote output that exists; an empty list for any other output."""
    if is_local(path) or path == "-" or is_store(path):
        return []
    from gossamer.sinks.remote import RemoteFile  # imported late: few crawls need it

    remote = RemoteFile(path)
    return [remote.display_url] if remote.head(1) else []


def _append_to(found: ExistingOutputs, path: str, crawls: set[str], known: KnownWriters, *, is_known: bool) -> None:
    """Note in `found` whose records are in this file (an absolute path), which stay. Arguments as below."""
    found.beside |= crawls - {known.crawl_id, ""}
    if is_known or crawls - {""}:
        return
    writers = known.others_of(path)
    found.beside |= {note.run.crawl.id.crawlid for note in writers}
    if not writers or any(path in note.foreign for note in writers):
        found.foreign.append(path)


def _check_writers(
    found: ExistingOutputs, name: str, crawls: set[str], known: KnownWriters, start: StartOptions
) -> None:
    """Check that the crawl may use the file of this name without --append, and enter in `found` what it may empty.

    `crawls`: names of the crawls whose records are in the file; an empty name for records that name none. With --fresh,
    which deletes what is in the file, of all its records; otherwise of the first one. Raises BadInput."""
    path, absolute, note = local_path(name), absolute_path(name), known.note()
    others = crawls - {known.crawl_id, ""}
    is_known = note is not None and may_have_written(note, absolute)
    if start.fresh and crawls == {known.crawl_id}:
        return
    if start.fresh and known.may_replace(absolute, crawls):
        found.replaced.append(absolute)
    elif others and _site(others) == _site({known.crawl_id}) and _has_only_failures(path):
        found.failed_only.append(name)
    elif others and (start.fresh or note is None or not others <= set(note.beside)):
        raise BadInput(_refusal(path, min(others), known.may_replace(absolute, crawls)))
    elif start.fresh or (not is_known and not crawls - {""}):
        if writers := known.others_of(absolute):
            raise BadInput(_refusal(path, writers[-1].run.crawl.id.crawlid, known.may_replace(absolute, crawls)))
        if is_known:
            raise BadInput(
                f"{path} also holds rows that this crawl did not write; {named('fresh', True)} would delete them. "
                f"{_otherwise()}"
            )
        raise BadInput(f"{path} is not empty, and it does not say which crawl wrote it. {_otherwise()}")


def _check_assets(
    found: ExistingOutputs, folder: str, crawl_id: str, start: StartOptions, known_beside: set[str]
) -> None:
    """Add the manifest of a folder of assets to `found`, and check that the crawl may use the folder. `known_beside`:
    other crawls beside which it was told to write. Raises BadInput."""
    manifest = Path(manifest_of(folder))
    if not has_content(manifest):
        return
    found.sizes[str(manifest)] = manifest.stat().st_size
    others = crawls_in(Path(folder)) - {crawl_id}
    if start.append:
        found.beside |= others
    elif others and (start.fresh or not others <= known_beside):
        raise BadInput(
            f"{folder} holds the assets of another crawl, {min(others)}. Name another folder with "
            f"{named('assets_to')}, or add {named('append', True)} to keep what it holds."
        )


def _refusal(path: Path, writer: str, replaceable: bool) -> str:
    """Return why a file is refused that another crawl, `writer`, wrote. `replaceable`: --fresh may empty it, because
    that crawl has the same seeds."""
    options = f" Other options, such as {named('max_pages')}, make another crawl, which begins anew." * replaceable
    return f"{path} holds the records of another crawl, {writer}.{options} {_otherwise(replaceable=replaceable)}"


def _otherwise(*, replaceable: bool = False) -> str:
    """Return the end of the refusal of an output. `replaceable`: a fresh crawl may replace it."""
    begin = f"Replace it with {named('fresh', True)}, name" if replaceable else "Name"
    return f"{begin} another output, add {named('append', True)} to keep what it holds, or delete it."


_MOST_FAILURES = 1000
"""Records among which `_has_only_failures` looks for a page. Larger files count as having one."""


def _crawls_in(path: Path, *, all_records: bool) -> set[str]:
    """Return the names of the crawls in a file: of all records, or only of the first. Empty: they do not name one."""
    from gossamer.sinks.read import Source  # imported late, as below: most crawls find no file

    records = Source(path).outputs()
    return {output.record.crawlid for output in (records if all_records else islice(records, 1))}


def _has_records(path: Path) -> bool:
    """Return whether a file holds records, or anything else that the crawl must not delete."""
    from gossamer.sinks.empty import has_records

    return has_records(path)


def _site(crawls: set[str]) -> set[str]:
    """Return the hosts in names of crawls. A name that is made from the options is the host, a hyphen and a digest."""
    return {name.rpartition("-")[0] for name in crawls}


def _has_only_failures(path: Path) -> bool:
    """Return whether a file holds nothing but pages that failed, and not too many of them to be read."""
    from gossamer.sinks.read import Source

    for number, output in enumerate(Source(path).outputs()):
        if number >= _MOST_FAILURES or isinstance(output.record, ItemRecord) or output.record.success:
            return False
    return True


def lack_of_links(note: CrawlNote | None, terms: Terms, info: CrawlInfo) -> str:
    """Return a sentence for a person who asks for the links of pages (`terms`), about pages that were fetched without
    them. Empty: there are none. `note`: of the latest start; `info`: the crawl until now."""
    fetched, is_finished = info.pages.fetched, info.state is not CrawlState.RUNNING
    if note is None or not fetched or not terms.links or not note.lacks_links:
        return ""
    pages = "Some pages" if note.terms.links else f"The {counted(fetched, 'page')}"
    verb = "was" if fetched == 1 else "were"
    others = "To get them, " if is_finished else "Pages fetched from now on do. To get all, let the crawl finish, then "
    return (
        f"{pages} of {note.run.crawl.id.crawlid} {verb} fetched without {named('links', True)}, so the records have no "
        f"links. {others}"
        f"repeat the command with {named('fresh', True)}."
    )


def item_outputs(settings: Settings) -> tuple[str, ...]:
    """Return those of the outputs that take only items."""
    tables = table_options(settings)
    return tuple(output.path for output in settings.crawl.output if kind_of(output, tables) == "items")


def find_contents(result: CrawlResult, settings: Settings) -> None:
    """Enter in the result which records its outputs hold, and enter in the crawl's note those with pages and items."""
    result.item_outputs = tuple(dict.fromkeys((*result.item_outputs, *item_outputs(settings))))
    note = read_note(settings.data_dir, result.crawl_id)
    mixed = set(note.mixed_outputs if note is not None else ())
    if result.tally.items:
        tables = table_options(settings)
        both = [one.path for one in settings.crawl.output if kind_of(one, tables) == "all"]
        both += [settings.bus] if settings.bus in result.outputs else []  # it takes everything
        mixed |= set(map(absolute_path, both))
    result.mixed_outputs = tuple(path for path in result.outputs if absolute_path(path) in mixed)
    if note is not None and mixed != set(note.mixed_outputs):
        note = msgspec.structs.replace(note, mixed_outputs=tuple(sorted(mixed)))
        write_note(settings.data_dir, note, is_start=False)
    _find_empty_outputs(result)


def _find_empty_outputs(result: CrawlResult) -> None:
    """Enter in the result which outputs for items hold none, and take those that do not exist out of its outputs."""
    if result.tally.items or result.unwritten or result.missing_records or not result.item_outputs:
        return
    from gossamer.sinks.empty import IS_EMPTY, NOT_WRITTEN, lack_of_items  # imported late: most crawls need no search

    lacks = {
        path: IS_EMPTY if path in result.empty_outputs and not is_local(path) else lack_of_items(path)
        for path in result.item_outputs
    }
    unknown = ("", NOT_WRITTEN) if result.already_finished else ("",)  # it may have been on another machine
    result.without_items = {path: why for path, why in lacks.items() if why not in unknown}
    result.outputs = tuple(path for path in result.outputs if lacks.get(path) != NOT_WRITTEN)


def check_data_dir(settings: Settings) -> None:
    """Check, before anything is fetched, that the data directory can be used. Raises BadInput."""
    folder, fault = check_folder(settings.data_dir)
    if fault:
        raise BadInput(f"{folder} {fault}. Name another directory.", option="data_dir")

"""Outputs of a crawl, from its settings: opened for a worker, finished and checked around the work.

Fixed: `_run_name` and `spool_folder`, under which an interrupted command has left what a later one finishes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gossamer.errors import BadInput, SinkError
from gossamer.model.crawl import Run
from gossamer.model.extraction import PAGE_URL, field_names
from gossamer.model.record import Destination, Output
from gossamer.net.credentials import hide_secrets
from gossamer.settings import Settings
from gossamer.sinks.append import FileSink, OnMissing
from gossamer.sinks.applications import ApplicationFanout
from gossamer.sinks.assets import AssetFolder, manifest_of
from gossamer.sinks.base import Fanout, RecordFilter, Sink
from gossamer.sinks.open import (
    RefusedOptions,
    check_outputs,
    delete_ledgers,
    left_spool,
    open_asset_folder,
    open_sinks,
    open_spooled,
)
from gossamer.sinks.stores.address import is_store
from gossamer.sinks.tables import TableOptions
from gossamer.wiring.extraction import load_extraction
from gossamer.wiring.frontier import CrawlNote, absolute_path
from gossamer.wiring.plan import asset_folder, content_options, has_assets

if TYPE_CHECKING:
    from gossamer.sinks.bus import BusSink

_SPIDERS_WITHOUT_ITEMS = {"link", "wandering"}
"""Spiders that only follow links. A table gets the pages of their crawls unless told otherwise."""


class OutputLosses(msgspec.Struct, frozen=True):
    """Callbacks for records that an output does not have."""

    on_missing: OnMissing
    """Called with an output and a number of records that were written to it and are gone."""
    on_refused: Callable[[str, int], None] | None = None
    """Called with a sentence about rows that a store refused, and their number."""


def open_outputs(settings: Settings, bus: "BusSink | None", run: Run | None, losses: OutputLosses) -> Sink:
    """Return one output that stands for all outputs of the settings and the bus. `run` None: for the crawls of all
    applications, whose own outputs are among them."""
    sinks = _open_sinks(settings, run, losses)
    if run is None:
        return ApplicationFanout(sinks, bus, _open_app_sinks(settings, losses))
    if bus is not None:
        sinks.append(bus)
    return sinks[0] if len(sinks) == 1 else Fanout(sinks)


def table_options(settings: Settings) -> TableOptions:
    """Return how the tables of a crawl with these settings are written."""
    content, extraction = content_options(settings), load_extraction(settings.crawl)
    has_others = settings.crawl.spider not in _SPIDERS_WITHOUT_ITEMS or (content is not None and content.in_items)
    # Items that the rules do not describe may have any fields, so their columns are found in the items.
    columns = None if extraction is None or has_others else (PAGE_URL, *field_names(extraction))
    return TableOptions(
        has_items=has_others or extraction is not None, columns=columns, csv_guard=settings.crawl.csv_guard
    )


async def finish_outputs(settings: Settings) -> None:
    """Finish outputs that an earlier command left in the spool, the folder of unfinished outputs. Raises SinkError."""
    files = [output for output in settings.crawl.output if output.path != "-"]
    for sink in open_sinks(files, spool_dir=spool_folder(settings), tables=table_options(settings)):
        await sink.close()


async def finish_left_outputs(settings: Settings, note: CrawlNote) -> dict[str, str]:
    """Finish outputs that an earlier command of a crawl left in the spool, and that the settings do not name. Return by
    output why it could not be finished. Empty: it is finished."""
    named, folder = set(map(absolute_path, settings.crawl.output_paths)), spool_folder(settings)
    faults = {}
    for path in note.outputs:
        spool = None if path in named else left_spool(path, spool_dir=folder)
        if spool is None:
            continue
        # Except for items, the formats that are built do not depend on the kinds of records.
        kind: Literal["items", "pages"] = "items" if path in note.item_outputs else "pages"
        try:
            await open_spooled(Destination(path, kind), spool_dir=folder, csv_guard=settings.crawl.csv_guard).close()
        except SinkError as error:
            faults[path] = f"{error.detail}, or move that file away to go on without it"
        except BadInput as error:  # the library of its format is not installed
            faults[path] = f"{hide_secrets(path)} is not finished ({error.detail}); its records are safe in {spool}"
        else:
            if not spool.exists():  # else another command writes to it
                faults[path] = ""
    return faults


async def missing_records(settings: Settings, run: Run) -> dict[str, int]:
    """Return, by output, how many records of this run were written earlier and are gone. Each loss is returned by one
    call only: the counts are corrected by it."""
    found: dict[str, int] = {}
    for sink in _open_sinks(settings, run, OutputLosses(found.__setitem__)):
        # Closing a file compares it with its count. Other outputs notice no losses, and closing them would build or
        # upload them; without a write they hold nothing that must be released.
        inner = sink
        while isinstance(inner, RecordFilter):
            inner = inner.sink
        if isinstance(inner, FileSink | AssetFolder):
            await sink.close()
    return found


def forget_written(settings: Settings, run: Run, named: Sequence[str] = ()) -> None:
    """Delete the counts of what this run wrote to the outputs (`named`; none: those of the settings). Call it when the
    run is finished: `missing_records` and resumed commands compare the outputs with these counts."""
    outputs = [*(named or settings.crawl.output_paths)]
    if folder := asset_folder(settings):
        outputs.append(manifest_of(folder))
    delete_ledgers(outputs, spool_dir=spool_folder(settings), run=_run_name(run))


def missing_sentence(path: str, records: int) -> str:
    """Return the warning that records vanished from an output."""
    return f"{path} was deleted or cut short: {records:,} of the records written to it are missing."


def _open_sinks(settings: Settings, run: Run | None, losses: OutputLosses) -> list[Sink]:
    """Return the outputs of the settings. `run` None: what vanishes from them is noticed only within this process."""
    name = _run_name(run) if run is not None else ""
    spool_dir = spool_folder(settings)
    sinks = open_sinks(
        settings.crawl.output,
        spool_dir=spool_dir,
        run=name,
        on_missing=losses.on_missing,
        tables=table_options(settings),
        refused=RefusedOptions(refused_folder(settings), losses.on_refused),
    )
    if run is None or has_assets(settings):  # else there are no assets, and each output takes everything
        sinks = [sink if sink.wants_wire else RecordFilter(sink, _is_no_asset) for sink in sinks]
    if folder := asset_folder(settings):
        sinks.append(open_asset_folder(folder, spool_dir=spool_dir, run=name, on_missing=losses.on_missing))
    return sinks


def check_app_outputs(settings: Settings) -> None:
    """Connect to the databases of single applications, and make their tables. Raises BadInput if records cannot be
    written there, or an output is no database."""
    for appid, outputs in settings.worker.app_outputs.items():
        try:
            for output in outputs:
                if not is_store(output.path):
                    raise BadInput(f"{hide_secrets(output.path)} is not a database. {_STORES_ONLY}")
            if outputs:
                check_outputs(_with_kinds(outputs))
        except BadInput as error:
            raise BadInput(f"worker.app_outputs.{appid}: {error.detail}") from None


_STORES_ONLY = "Write, for example, postgresql://me@db.example/shop. Files take the records of all applications (-o)."


def _open_app_sinks(settings: Settings, losses: OutputLosses) -> dict[str, list[Sink]]:
    """Return the outputs of single applications, by appid."""
    return {
        appid: [
            RecordFilter(sink, _is_no_asset)
            for sink in open_sinks(
                _with_kinds(outputs),
                spool_dir=spool_folder(settings),
                refused=RefusedOptions(refused_folder(settings), losses.on_refused),
            )
        ]
        for appid, outputs in settings.worker.app_outputs.items()
    }


def _with_kinds(outputs: Sequence[Destination]) -> list[Destination]:
    """Return the outputs of an application, which take pages and items unless they say which."""
    return [Destination(one.path, "all") if one.records == "auto" else one for one in outputs]


def _is_no_asset(output: Output) -> bool:
    return output.asset is None


def _run_name(run: Run) -> str:
    """Return the name under which the written records of a run are counted. Must not change: a resumed run looks for
    it."""
    return f"{run.crawl.id.token}/{run.number}/{run.generation}"


def refused_folder(settings: Settings) -> Path:
    """Return the folder of the rows that stores refuse. A documented name: must not change."""
    return settings.data_dir / "refused"


def spool_folder(settings: Settings) -> Path:
    """Return the folder of unfinished outputs. Must not change: earlier commands have left some there."""
    return settings.data_dir / "spool"

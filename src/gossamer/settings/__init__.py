"""Every setting with its type, default and description. The help texts and the reference page are made from them.

The setting `a.b` is GOSSAMER_A__B in the environment (lists with commas or as JSON), `b` in the section `[a]` of
gossamer.toml, and `--b` where a command has that option. Options override the environment, which overrides the file.
Only `wiring` and the commands read settings.

A change here needs new reference pages (`python -m tools.reference`). Fixed: the names of settings and the words that
they accept, which stand in users' files. A new default of a setting in `derived_id` (wiring/plan.py) gives the same
command another crawl id, so that it does not resume its crawl.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from gossamer.errors import BadInput
from gossamer.model import DATA_DIR
from gossamer.settings.browser import BrowserSettings
from gossamer.settings.crawl import CrawlSettings
from gossamer.settings.fetch import FetchSettings
from gossamer.settings.groups import (
    Given,
    SettingGroup,
    build,
    dotted_fields,
    field_of,
    integers,
    merge,
    read_option,
    values_of_environment,
    values_of_file,
)
from gossamer.settings.options import DISPLAY, HOW_FAST, REQUESTS, WHERE, SettingOption
from gossamer.settings.ranges import Retention, Seconds
from gossamer.settings.service import HistorySettings, KafkaSettings, ServiceSettings, TopicSettings, WorkerSettings

SERVICE_LOG_LEVEL = "info"
"""Log level of `gossamer up` and `gossamer serve` if `log_level` is not set. Other commands log errors only, because
their terminal shows their output."""
CONFIG_FILE = "gossamer.toml"  # fixed: users have files of this name


class RecordsSettings(SettingGroup):
    """Contents of records."""

    secrets: Literal["redact", "keep"] = field_of(
        "redact",
        "What records and WARC files show for the values of Cookie, Authorization and the secret request headers. "
        "redact: a placeholder; keep: the values",
    )


class TextSettings(SettingGroup):
    """The processes of a worker that extract text and Markdown, and their limits."""

    processes: Annotated[int, integers(1, 256)] | None = field_of(
        None,
        "Number of processes for each worker process, of about 70 MB each. Unset: one for each CPU, "
        "in a container at most one for each text.memory of its limit, shared among the worker processes",
        option=SettingOption(HOW_FAST, "N", of="others", name="text_processes", flags=("--processes",)),
    )
    cpu: Seconds = field_of(5.0, "Largest CPU time of a page in seconds")
    memory: Annotated[int, integers(32 * 2**20, 2**40)] = field_of(
        512 * 2**20, "Largest memory of a page in bytes, beside the process itself"
    )


class EmbeddedSettings(SettingGroup):
    """The Valkey server that Gossamer runs itself where no frontier is named."""

    fsync: Literal["always", "everysec", "no"] = field_of(
        "always", "When this server flushes its log to the disk. always: a crawl survives a power cut"
    )


def _checked_address(value: Any) -> Any:
    """Return the value of `frontier` as it is. Raises BadInput for what is no address of a server."""
    from gossamer.valkey.address import Address  # late: few commands have a shared frontier

    if value and isinstance(value, str):
        Address.parse(value)
    return value


class Settings(SettingGroup):
    """All settings. Frozen; use `copy` to change some."""

    frontier: str = field_of(
        "",
        "Shared frontier, the server that holds the URLs to fetch: unix://, redis://, rediss:// or redis+cluster://. "
        "Empty: a private server in data_dir",
        prepare=_checked_address,
        option=SettingOption(WHERE, "URL"),
    )
    frontier_password: str = field_of(
        "",
        "Password of the frontier's server, without percent-encoding. Empty: that of its address",
    )
    prefix: str = field_of("gossamer", "First part of every key in the frontier")
    shards: Annotated[int, integers(1, 4096)] | None = field_of(
        None, "Number of shards of a new frontier; 64 suits a cluster. Unset: the number it has, or 1 if it is new"
    )
    bus: str = field_of(
        "",
        "Where requests arrive and pages are published: streams (on the frontier's server) or "
        "kafka://host:port,host:port. Empty: streams for gossamer up and serve, none for gossamer worker",
        option=SettingOption(WHERE, "streams|kafka://HOST:PORT", of="others"),
    )
    data_dir: Path = field_of(
        Path(DATA_DIR),
        "Directory for the private frontier, locks, recordings and unfinished outputs, for one crawl at a time",
        option=SettingOption(
            WHERE,
            "DIR",
            python="Directory for the private frontier, by which the same call resumes the crawl. Unset: .gossamer if "
            "there is an output, else a temporary folder that is deleted",
        ),
    )
    retention: Retention = field_of(24 * 3600.0, "Seconds that a finished crawl is remembered")
    stopped_retention: Retention = field_of(30 * 24 * 3600.0, "Seconds that a stopped crawl refuses further requests")
    allow_networks: tuple[str, ...] = field_of(
        (),
        "Private networks (CIDR) in which every host may be crawled",
        option=SettingOption(REQUESTS, "CIDR", name="allow_network", of="others"),
    )
    egress: str = field_of(
        "",
        "Name of the public address from which this machine fetches, for budgets that are kept per address. Empty: the "
        "address of the proxy, if one is set",
        option=SettingOption(REQUESTS, "NAME"),
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = field_of(
        "error",
        "Lowest level of messages that are logged to standard error. Unset: gossamer up and serve log from info",
        option=SettingOption(DISPLAY, "LEVEL", of="others", default=SERVICE_LOG_LEVEL),
    )
    log_format: Literal["human", "json"] = field_of(
        "human",
        "Format of the log. human: lines of text; json: one JSON object per line",
        option=SettingOption(DISPLAY, "human|json", of="others"),
    )
    crawl: CrawlSettings = CrawlSettings()
    fetch: FetchSettings = FetchSettings()
    records: RecordsSettings = RecordsSettings()
    text: TextSettings = TextSettings()
    browser: BrowserSettings = BrowserSettings()
    worker: WorkerSettings = WorkerSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    topics: TopicSettings = TopicSettings()
    kafka: KafkaSettings = KafkaSettings()
    service: ServiceSettings = ServiceSettings()
    history: HistorySettings = HistorySettings()


OPTIONS = {
    field.option.name or setting.rpartition(".")[2]: (setting, field, field.option)
    for setting, field in dotted_fields(Settings)
    if field.option is not None
}
"""Options by their names: the dotted name of the setting, its field, and how the option is written."""


def load(
    options: Mapping[str, Any] | None = None, *, config: Path | None = None, names: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings in force: from options, the environment and the file, in this order of precedence. Raises
    BadInput for the first value that is not valid.

    `options`: values by dotted name (`crawl.depth`); None as a value: not set. `config`: a TOML file; None:
    gossamer.toml in the working folder, if it exists. `names`: what messages call the options, by dotted name.
    """
    values = _written(config)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    fields = dict(dotted_fields(Settings))
    for name, value in given.items():
        place = (names or {}).get(name, name)
        given[name] = Given(read_option(value, fields[name], place), place)
    merge(values, given)
    settings = build(Settings, values)
    if not settings.frontier_password or not settings.frontier:
        return settings
    from gossamer.valkey.address import with_password  # late: few commands have a shared frontier

    return settings.copy(frontier=with_password(settings.frontier, settings.frontier_password), frontier_password="")


def _written(config: Path | None) -> dict[str, Given]:
    """Return the values in the environment and the file, by dotted name. See `load`."""
    if config is None:
        config = Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None
    elif not config.is_file():
        raise BadInput(f"there is no file {config}", option="config")
    values: dict[str, Given] = values_of_file(Settings, config) if config else {}
    merge(values, values_of_environment(Settings, os.environ))
    return values


def places(config: Path | None = None) -> dict[str, str]:
    """Return where environment and file set settings, by dotted name: `gossamer.toml: crawl.depth`. See `load`."""
    return {name: given.place for name, given in _written(config).items()}

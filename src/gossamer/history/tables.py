"""Tables of the history, each as the class of its rows.

Times are seconds since 1970: `started`, `ended` and `at` by the clock of the frontier's server or of the worker,
`sampled_at` by that of the historian. A token stands for a crawl (`CrawlId.token`). A change of a table needs a
migration in `migrations`; a test compares them. Fixed: names of tables, columns and constraints that a migration has
created.
"""

from functools import partial
from typing import Final

from sqlalchemy import BigInteger, Double, Index, Integer, MetaData

from gossamer.storage.sql.audit import AuditEntryRow
from gossamer.storage.sql.rows import NAMES, ROW_ID, TableRow, column
from gossamer.storage.sql.rows import table as table_of
from gossamer.storage.sql.text import String, Text

METADATA: Final = MetaData(naming_convention=NAMES)
table: Final = partial(table_of, METADATA)


class CrawlRow(TableRow):
    """A crawl, with the counters of its latest run."""

    id: int = column(ROW_ID, primary_key=True)
    token: str = column(String(16), unique=True)
    appid: str = column(Text)
    crawlid: str = column(Text)
    run: int = column(BigInteger)
    state: str = column(String(16))  # running, finished, stopped, expired; lost: see `HistoryStore.record_lost`
    started: float = column(Double)  # the run; names it together with its number
    ended: float | None = column(Double)
    done: int = column(BigInteger)  # requests of the run that have ended; it only grows
    info: str = column(Text)  # JSON of the frontier's CrawlInfo
    search: str = column(Text)  # names in lower case, which texts are searched in
    sampled_at: float = column(Double)


crawls = table(
    "history_crawl",
    CrawlRow,
    Index(None, "started", "id", "search"),  # a search reads this index alone
    Index(None, "state", "started", "id"),
    Index(None, "appid", "started", "id"),
    Index(None, "ended"),
)


class EndRow(TableRow):
    """The end of a run, or of one spider's part of it."""

    event_id: str = column(String(32), primary_key=True)
    token: str = column(String(16))
    run: int = column(BigInteger)
    spider: str = column(Text)  # empty: the whole crawl
    kind: str = column(String(16))  # finished, stopped, expired
    at: float = column(Double)
    purged: int = column(BigInteger)  # waiting requests that were dropped


ends = table("history_end", EndRow, Index(None, "token", "at"), Index(None, "at"))


class FailureRow(TableRow):
    """An example of a failed request."""

    token: str = column(String(16), primary_key=True)
    request_id: str = column(String(64), primary_key=True)
    spider: str = column(Text)
    reason: str = column(String(100))
    url: str = column(Text)
    status: int = column(Integer)  # 0: no response came
    error: str = column(Text)
    at: float = column(Double)


failures = table("history_failure", FailureRow, Index(None, "token", "reason", "at"), Index(None, "at"))


class RateRow(TableRow):
    """Counters of a crawl as they were when it was last sampled in a minute."""

    token: str = column(String(16), primary_key=True)
    minute: int = column(BigInteger, primary_key=True)  # since 1970
    at: float = column(Double)
    started: float = column(Double)  # the run
    fetched: int = column(BigInteger)
    failed: int = column(BigInteger)
    dropped: int = column(BigInteger)
    waiting: int = column(BigInteger)
    leased: int = column(BigInteger)


rates = table("history_rate", RateRow, Index(None, "minute", "token"))


class DomainRow(TableRow):
    """A domain of a crawl."""

    token: str = column(String(16), primary_key=True)
    domain: str = column(String(255), primary_key=True)


domains = table("history_domain", DomainRow, Index(None, "domain"))


class DomainUseRow(TableRow):
    """Use of the narrowest limit of a domain in a minute, by samples."""

    domain: str = column(String(255), primary_key=True)
    minute: int = column(BigInteger, primary_key=True)  # since 1970
    used: float = column(Double)  # mean of the samples
    most: int = column(BigInteger)  # largest of them
    hits: int = column(BigInteger)  # most hits in any window
    window: float = column(Double)  # seconds; 0: no hit is allowed


domain_uses = table("history_domain_use", DomainUseRow, Index(None, "minute"))


class ServiceRateRow(TableRow):
    """Speed of all workers in a minute, by samples, and what waited for them."""

    minute: int = column(BigInteger, primary_key=True, autoincrement=False)  # since 1970
    pages_per_second: float = column(Double)  # mean of the samples
    waiting: int = column(BigInteger)  # by the last of them


service_rates = table("history_service_rate", ServiceRateRow)


class TurnRow(TableRow):
    """A task that one process does at a time."""

    name: str = column(String(32), primary_key=True)
    owner: str = column(String(64))
    until: float = column(Double)  # by the database's clock


turns = table("history_turn", TurnRow)


class ChangeRow(AuditEntryRow):
    """An entry of the audit. `at` is by the database's clock."""


changes = table("history_change", ChangeRow, Index(None, "at"))

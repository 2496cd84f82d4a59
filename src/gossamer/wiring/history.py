"""Opens the history of the settings: the database that remembers crawls."""

from typing import TYPE_CHECKING

from gossamer.errors import BadInput
from gossamer.extras import install_advice
from gossamer.settings import Settings
from gossamer.settings.service import HISTORY_OFF

if TYPE_CHECKING:
    from gossamer.history.store import HistoryStore

_FILE = "history.db"
"""Name of the history's file in a data directory. Must not change: existing histories have it."""


def history_address(settings: Settings) -> str:
    """Return the address of the history's database; empty: there is none.

    Without one named, it is a file beside a private frontier. The services of a shared frontier need a common one."""
    if settings.history.database == HISTORY_OFF:
        return ""
    if not settings.history.database and not settings.frontier:
        return f"sqlite:///{settings.data_dir.absolute() / _FILE}"
    return settings.history.database


def has_history(settings: Settings) -> bool:
    """Return whether there is a history to read: a database is named, or a service has kept one in the data
    directory."""
    if not history_address(settings):
        return False
    return bool(settings.history.database) or (settings.data_dir / _FILE).exists()


def open_history(settings: Settings) -> "HistoryStore | None":
    """Return the history of these settings, which is not connected yet. None: there is none. Raises BadInput for an
    address that cannot be used, and where a package is missing."""
    address = history_address(settings)
    if not address:
        return None
    try:
        import alembic  # noqa: F401 (the store loads it only when it makes the tables)

        from gossamer.history.store import HistoryStore  # an extra, which no crawl without a service needs
    except ModuleNotFoundError as error:
        raise BadInput(f"a history needs {error.name}: {install_advice('service')}") from None
    try:
        return HistoryStore(address)
    except BadInput as error:
        raise BadInput(f"history.database: {error.detail}") from None

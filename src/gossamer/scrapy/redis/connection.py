"""Connection to a project's Redis: the address from its REDIS_ settings, and one connection for each crawler.

Fixed: the names of settings and parameters (scrapy-redis's and redis-py's), DEFAULTS, and the names that `sibling_key`
makes, under which messages of projects are stored.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

from gossamer.errors import BadSetting
from gossamer.extras import package_advice
from gossamer.valkey.address import Address
from gossamer.valkey.scripts import Scripts
from gossamer.valkey.shards import Shards

log = logging.getLogger(__name__)

SCRIPTS = Scripts(Path(__file__).with_name("scripts"))
"""This package's Lua scripts by file name."""

# Parameters of redis-py that REDIS_PARAMS may have. Any other is refused.
_ADDRESS = ("host", "port", "db", "username", "password", "unix_socket_path", "ssl")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
_REDIS_PY_ONLY = (
    "encoding", "encoding_errors", "decode_responses", "retry_on_timeout", "retry_on_error", "retry", "max_connections",
    "health_check_interval", "socket_keepalive", "socket_keepalive_options", "client_name", "protocol", "charset",
)  # fmt: skip
"""Parameters that only concern the redis-py client of `self.server`, which a project's own code uses. More may be added
if they have no meaning for Gossamer's connection."""
DEFAULTS = {"socket_timeout": 30, "socket_connect_timeout": 30, "retry_on_timeout": True, "encoding": "utf-8"}
"""scrapy-redis's default parameters (times in seconds). They must stay equal to those."""
_DEFAULT_TIMEOUT_SECONDS = 30.0
"""Timeout of Gossamer's connection where the project turns redis-py's off. Longer notices a dead server later."""
_SETTINGS = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
    "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}
"""Parameter of redis-py by setting. scrapy-redis's names: fixed."""


def connection_parameters(settings: BaseSettings) -> dict[str, Any]:
    """Return the project's settings as parameters of redis-py. Raises BadInput for unsupported REDIS_PARAMS."""
    given = settings.getdict("REDIS_PARAMS")
    if "redis_cls" in given:
        raise BadSetting("REDIS_PARAMS: redis_cls is not used; for a cluster write redis+cluster://… in REDIS_URL")
    known = {"url", *_ADDRESS, *_TLS, *_TIMEOUTS, *_REDIS_PY_ONLY}
    if unknown := sorted(set(given) - known):
        raise BadSetting(f"REDIS_PARAMS: {unknown[0]} is not known here")
    single = {name: settings.get(setting) for setting, name in _SETTINGS.items() if settings.get(setting)}
    # As in scrapy-redis: a setting of its own, such as REDIS_HOST, overrides REDIS_PARAMS.
    return {**DEFAULTS, **given, **single}


def server_address(settings: BaseSettings) -> str:
    """Return the address of the project's Redis as a URL. Raises BadInput. It is, in this order:

    - GOSSAMER_FRONTIER, where the REDIS_ settings name no server
    - REDIS_URL as it is written, or completed with user, password and database from other settings
    - a URL made of the host, port and further parameters
    """
    given = connection_parameters(settings)
    if not (given.get("url") or any(given.get(name) for name in ("host", "port", "unix_socket_path"))):
        frontier = settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")
        if frontier:
            return str(frontier)
    if given.get("url"):
        # The URL's own parts come first. User, password and database may stand beside it, and fill in what it lacks.
        address = Address.parse(str(given["url"]))
        adds_password = given.get("password") and not address.password
        adds_database = given.get("db") and not address.database
        if not (adds_password or adds_database):
            return str(given["url"])
        given = {
            **given,
            "username": address.user or given.get("username"),
            "password": address.password or given.get("password"),
            "db": address.database or given.get("db"),
            "ssl": address.tls,
            "unix_socket_path": address.endpoints[0].path,
            "host": address.endpoints[0].host,
            "port": address.endpoints[0].port,
            **dict(address.tls_options),
        }
    text = _format_address(given)
    Address.parse(text)  # raises BadInput for a part that is invalid
    return text


def _format_address(given: dict[str, Any]) -> str:
    """Return parameters of redis-py as a URL."""
    user = ""
    if given.get("password") or given.get("username"):
        user = f"{quote(str(given.get('username') or ''), safe='')}:{quote(str(given.get('password') or ''), safe='')}@"
    if path := given.get("unix_socket_path"):
        return f"unix://{user}{path}?db={int(given.get('db') or 0)}"
    scheme = "rediss" if given.get("ssl") else "redis"
    host = str(given.get("host") or "localhost")
    host = f"[{host}]" if ":" in host else host
    options = {name: given[name] for name in _TLS if given.get("ssl") and given.get(name) is not None}
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{user}{host}:{int(given.get('port') or 6379)}/{int(given.get('db') or 0)}{query}"


class RedisConnection:
    """One process's connection to the server of the start keys, items and statistics. It connects at its first use."""

    def __init__(self, settings: BaseSettings) -> None:
        """Read the project's settings. Raises BadInput."""
        given = connection_parameters(settings)
        self.address = server_address(settings)
        self._is_cluster = Address.parse(self.address).cluster
        self._call_seconds = float(given["socket_timeout"] or _DEFAULT_TIMEOUT_SECONDS)
        self._connect_seconds = float(given["socket_connect_timeout"] or _DEFAULT_TIMEOUT_SECONDS)
        self._shards: Shards | None = None
        self._lock = asyncio.Lock()
        self.before_close: list[Callable[[], Awaitable[None]]] = []
        """Callbacks that are awaited before the connection is closed."""

    async def shards(self) -> Shards:
        """Return the client, connected. Raises FrontierUnavailable."""
        async with self._lock:
            if self._shards is None:
                self._shards = await Shards.connect(
                    self.address, connect_seconds=self._connect_seconds, call_seconds=self._call_seconds
                )
            return self._shards

    def sibling_key(self, key: str, suffix: str) -> str:
        """Return the name `key:suffix`; in a cluster, one that lies on the same server as `key`.

        A script uses both keys in one step, which a cluster allows on one server only. The names must not change:
        messages that are stored under them would be lost."""
        # A cluster places a key by the text in its braces, or by the whole key where it has none.
        is_tagged = 0 <= key.find("{") < key.find("}") - 1
        return f"{{{key}}}:{suffix}" if self._is_cluster and not is_tagged else f"{key}:{suffix}"

    async def close(self) -> None:
        """Await the callbacks in `before_close` and disconnect. May be repeated."""
        callbacks, self.before_close = self.before_close, []
        for callback in callbacks:
            try:
                await callback()
            except Exception:
                log.exception("The last work for %s failed", Address.parse(self.address))
        if self._shards is not None:
            await self._shards.close()
            self._shards = None


_connections: WeakKeyDictionary[Crawler, RedisConnection] = WeakKeyDictionary()


def connection_of(crawler: Crawler) -> RedisConnection:
    """Return the crawler's only connection, which is closed when its engine stops. Raises BadInput."""
    found = _connections.get(crawler)
    if found is None:
        found = _connections[crawler] = RedisConnection(crawler.settings)
        crawler.signals.connect(found.close, signal=signals.engine_stopped)
    return found


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """Return a redis-py client for a project's own code. It blocks, so callbacks must not use it.

    Raises BadInput where redis-py is not installed.
    """
    try:
        import redis
    except ImportError:
        raise BadSetting(f"self.server needs redis-py: {package_advice('redis')}") from None
    given = connection_parameters(settings)
    url = given.pop("url", None)
    if url is None and not any(given.get(name) for name in ("host", "port", "unix_socket_path")):
        url = settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")
    return redis.Redis.from_url(str(url), **given) if url else redis.Redis(**given)


def get_redis(**parameters: Any) -> Any:
    """Return a redis-py client with these parameters, which may include `url` and `redis_cls`. It blocks."""
    import redis

    kind = parameters.pop("redis_cls", redis.Redis)
    url = parameters.pop("url", None)
    return kind.from_url(url, **parameters) if url else kind(**parameters)


from_settings = get_redis_from_settings

"""Where the Redis of a project is, and the one connection that all parts of a process share."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

from gossamer.errors import BadSetting
from gossamer.valkey.address import Address
from gossamer.valkey.shards import Shards

log = logging.getLogger(__name__)

_WHERE = ("host", "port", "db", "username", "password", "unix_socket_path", "ssl")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SECONDS = ("socket_timeout", "socket_connect_timeout")
_FOR_SERVER = (
    "encoding", "encoding_errors", "decode_responses", "retry_on_timeout", "retry_on_error", "retry", "max_connections",
    "health_check_interval", "socket_keepalive", "socket_keepalive_options", "client_name", "protocol", "charset",
)  # fmt: skip
DEFAULTS = {"socket_timeout": 30, "socket_connect_timeout": 30, "retry_on_timeout": True, "encoding": "utf-8"}
_SETTINGS = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
    "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}


def parameters(settings: BaseSettings) -> dict[str, Any]:
    """What the project says, in redis-py's words. Raises BadInput for REDIS_PARAMS that are not honoured."""
    given = settings.getdict("REDIS_PARAMS")
    if "redis_cls" in given:
        raise BadSetting("REDIS_PARAMS: redis_cls is not used; for a cluster write redis+cluster://… in REDIS_URL")
    known = {"url", *_WHERE, *_TLS, *_SECONDS, *_FOR_SERVER}
    if unknown := sorted(set(given) - known):
        raise BadSetting(f"REDIS_PARAMS: {unknown[0]} is not known here")
    said = {name: settings.get(setting) for setting, name in _SETTINGS.items() if settings.get(setting)}
    return {**DEFAULTS, **given, **said}


def address_of(settings: BaseSettings) -> str:
    """The server that REDIS_* name; the one of GOSSAMER_FRONTIER where they name none. Raises BadInput."""
    given = parameters(settings)
    if not (given.get("url") or any(given.get(name) for name in ("host", "port", "unix_socket_path"))):
        named = settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")
        if named:
            return str(named)
    if given.get("url"):
        address = Address.parse(str(given["url"]))
        if (address.password or not given.get("password")) and (address.database or not given.get("db")):
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
    text = _text(given)
    Address.parse(text)
    return text


def _text(given: dict[str, Any]) -> str:
    who = ""
    if given.get("password") or given.get("username"):
        who = f"{quote(str(given.get('username') or ''), safe='')}:{quote(str(given.get('password') or ''), safe='')}@"
    if path := given.get("unix_socket_path"):
        return f"unix://{who}{path}?db={int(given.get('db') or 0)}"
    scheme = "rediss" if given.get("ssl") else "redis"
    host = str(given.get("host") or "localhost")
    host = f"[{host}]" if ":" in host else host
    options = {name: given[name] for name in _TLS if given.get("ssl") and given.get(name) is not None}
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{who}{host}:{int(given.get('port') or 6379)}/{int(given.get('db') or 0)}{query}"


class RedisLink:
    """One process's connection to the server of the start keys, items and stats. Made when it is first needed."""

    def __init__(self, settings: BaseSettings) -> None:
        """Raises BadInput."""
        given = parameters(settings)
        self.address = address_of(settings)
        self.cluster = Address.parse(self.address).cluster
        self._call_seconds = float(given["socket_timeout"] or 30)
        self._connect_seconds = float(given["socket_connect_timeout"] or 30)
        self._shards: Shards | None = None
        self._making = asyncio.Lock()
        self.at_the_end: list[Callable[[], Awaitable[None]]] = []
        """Awaited before the connection is closed."""

    async def shards(self) -> Shards:
        """Raises FrontierUnavailable."""
        async with self._making:
            if self._shards is None:
                self._shards = await Shards.connect(
                    self.address, connect_seconds=self._connect_seconds, call_seconds=self._call_seconds
                )
            return self._shards

    def beside(self, key: str, what: str) -> str:
        """The name of a key that belongs to this one; in a cluster on the same server."""
        tagged = 0 <= key.find("{") < key.find("}") - 1
        return f"{{{key}}}:{what}" if self.cluster and not tagged else f"{key}:{what}"

    async def close(self) -> None:
        """Do what is left to do, and end the connection. May be repeated."""
        work, self.at_the_end = self.at_the_end, []
        for one in work:
            try:
                await one()
            except Exception:
                log.exception("What was left for %s could not be done", Address.parse(self.address))
        if self._shards is not None:
            await self._shards.close()
            self._shards = None


_links: WeakKeyDictionary[Crawler, RedisLink] = WeakKeyDictionary()


def link(crawler: Crawler) -> RedisLink:
    """The crawler's one link, closed when its engine stops. Raises BadInput."""
    found = _links.get(crawler)
    if found is None:
        found = _links[crawler] = RedisLink(crawler.settings)
        crawler.signals.connect(found.close, signal=signals.engine_stopped)
    return found


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """A redis-py client, for code of the project that wants one; it blocks, so not for callbacks.

    Raises BadInput where redis-py is not installed."""
    try:
        import redis
    except ImportError:
        raise BadSetting("self.server needs redis-py; pip install redis") from None
    given = parameters(settings)
    url = given.pop("url", None)
    if url is None and not any(given.get(name) for name in ("host", "port", "unix_socket_path")):
        url = settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")
    return redis.Redis.from_url(str(url), **given) if url else redis.Redis(**given)


def get_redis(**parameters: Any) -> Any:
    """Return a redis-py client of these parameters, `url` and `redis_cls` among them. It blocks."""
    import redis

    kind = parameters.pop("redis_cls", redis.Redis)
    url = parameters.pop("url", None)
    return kind.from_url(url, **parameters) if url else kind(**parameters)


from_settings = get_redis_from_settings

"""Redis and Valkey as a store: one hash for each table, with a row's JSON in the field of its key. Needs redis-py.

A person names the hash in the address, and it has an end of life if the address has `expire`. There are no other keys.

Fixed: the names of fields, by which a row that is written again replaces itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError
from redis.retry import Retry

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.json_codec import encode_value
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import RefusedRow, Row, StoreTable, group_sizes, key_text, split_keyless

_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one request from which the next rows go into another one. More take memory."""
_FIELDS_AT_ONCE: Final = 1000
"""Fields that are read or deleted at once."""
_FIELDS_AT_FIRST: Final = 4
"""Fields of each request that are deleted at first, of items that are rarely there. More cost time in each write."""
_POLICIES_THAT_DELETE: Final = ("allkeys-", "volatile-")
"""Beginnings of the server's policies by which it deletes keys when its memory is full. Redis's: fixed."""


class RedisStore:
    """Store in a Redis or Valkey server. Implements Store (stores/rows.py)."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self._client: Any = redis.Redis(
            host=address.host,
            port=address.port,
            unix_socket_path=address.socket or None,
            db=int(address.database),
            username=address.user or None,
            password=address.password or None,
            socket_connect_timeout=10,
            socket_timeout=60,
            ssl=address.tls,
            retry=Retry(NoBackoff(), 0),  # the caller repeats
        )
        self._prepared: set[str] = set()

    def prepare(self, table: StoreTable) -> None:
        with self._translated():
            kind = self._client.type(table.name)
            if kind not in (b"none", b"hash"):
                raise BadInput(
                    f"{self.address}: the key {table.name} exists and is a {kind.decode()}, not a hash. Name another "
                    "one with table=NAME."
                )
            self._check_policy()
        self._prepared.add(table.name)

    def _check_policy(self) -> None:
        """Raise BadInput if the server would delete the hash to make room. A server that does not say is trusted."""
        try:
            memory = self._client.info("memory")
        except ResponseError:
            return
        policy, limit = str(memory.get("maxmemory_policy", "")), memory.get("maxmemory", 0)
        deletes_all, deletes_expiring = map(policy.startswith, _POLICIES_THAT_DELETE)
        if limit and (deletes_all or (deletes_expiring and self.address.expire_seconds)):
            raise BadInput(
                f"{self.address}: the server may delete the rows when its memory is full (maxmemory-policy {policy}). "
                "Set noeviction, or use another server."
            )

    def write(self, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        rows, refused = split_keyless(table, rows)
        if not rows:
            return refused
        if table.name not in self._prepared:
            try:
                self.prepare(table)
            except BadInput as error:  # the key or the server was changed during the crawl
                raise SinkError(error.detail) from error
        with self._translated():
            if table.parent:
                self._delete_stale(table, rows)
            fields: list[bytes | str] = []
            size = 0
            for row in rows:
                value = encode_value({name: value for name, value in row.items() if value is not None})
                if fields and size + len(value) > _REQUEST_BYTES:
                    self._set(table, fields)
                    fields, size = [], 0
                fields += (_field(table, row), value)
                size += len(value)
            self._set(table, fields)
        return refused

    def delete_crawl(self, table: StoreTable, crawl_id: str) -> None:
        def is_of_crawl(value: bytes) -> bool:
            return bool(msgspec.json.decode(value).get(table.crawl) == crawl_id)

        with self._translated():
            self._delete_where(table, is_of_crawl)

    def close(self) -> None:
        self._prepared.clear()
        with suppress(RedisError, OSError):
            self._client.close()

    # --- the work -----------------------------------------------------------------------------------------------------

    def _set(self, table: StoreTable, fields: Sequence[bytes | str]) -> None:
        """Set fields, and when the hash expires. Both are one transaction: no kill leaves a hash without an end."""
        if not self.address.expire_seconds:
            self._client.execute_command("HSET", table.name, *fields)
            return
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("HSET", table.name, *fields)
        pipeline.expire(table.name, self.address.expire_seconds)
        pipeline.execute()

    def _delete_stale(self, table: StoreTable, rows: Sequence[Row]) -> None:
        """Delete the items of an earlier fetch of these requests, which may have found more of them. They are numbered
        without gaps."""
        first, sizes = _FIELDS_AT_FIRST, group_sizes(table, rows)
        while sizes:
            pipeline = self._client.pipeline(transaction=False)
            for parent, size in sizes.items():
                pipeline.hdel(table.name, *(f"{parent}-{number}" for number in range(size, size + first)))
            deleted = pipeline.execute()
            sizes = {
                parent: size + first for (parent, size), count in zip(sizes.items(), deleted, strict=True) if count
            }
            first = _FIELDS_AT_ONCE

    def _delete_where(self, table: StoreTable, matches: Callable[[bytes], bool]) -> None:
        """Delete the rows whose JSON matches. Rows that are written meanwhile may stay."""
        if self._client.type(table.name) != b"hash":
            return
        cursor = 0
        while True:
            cursor, found = self._client.hscan(table.name, cursor, count=_FIELDS_AT_ONCE)
            if names := [name for name, value in found.items() if matches(value)]:
                self._client.hdel(table.name, *names)
            if not cursor:
                return

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Context in which the driver's errors become SinkError or SinkFull."""
        try:
            yield
        except OutOfMemoryError as error:
            raise SinkFull(f"{self.address}: {error}") from error
        except RedisError as error:
            self._prepared.clear()
            raise SinkError(f"{self.address}: {error}") from error


def _field(table: StoreTable, row: Row) -> str:
    """Return the field of a row. Fixed: existing hashes have these."""
    parts = [key_text(row[name]) for name in table.key if row.get(name) is not None]
    if len(parts) < len(table.key):
        return uuid4().hex
    return ("-" if table.parent else "\n").join(parts).encode("utf-8", "replace").decode()

"""OpenSearch and Elasticsearch as a store: one document for each row. Needs opensearch-py.

The id of a document is made from the row's key, so that writing a row again replaces its document. What the server
refuses for a moment (it is busy) is sent again alone, document by document.
"""

import contextlib
import hashlib
import logging
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from opensearchpy import OpenSearch
from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import NotFoundError, OpenSearchException, RequestError, TransportError

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.csv_rows import OTHER_FIELDS
from gossamer.model.json_codec import encode_value
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import ColumnKind, RefusedRow, Row, StoreTable, group_sizes, key_text, split_keyless

_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one request from which the next documents go into another one. Up to the 100 MB that a server takes by
default."""
_ID_BYTES: Final = 512
"""Longest id of a document: the server's limit."""
_PASSING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600)})
"""Statuses that may be others when the request is repeated."""
_NOT_ALLOWED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
"""Statuses that say nothing against a document: a person has to change rights, or the index was deleted."""
_FIELD: Final = re.compile(r"(?:field|object mapping for|mapping|mapper|dynamic introduction of) \[([^\]]+)\]")
"""Name of a field in the reason of a refusal."""
_KEYWORD: Final = {"type": "keyword", "ignore_above": 8191}
"""Text that is compared as a whole. Longer ones are stored, not indexed: Lucene's limit is 32766 bytes."""
_MAPPINGS: Final[dict[ColumnKind, dict[str, Any]]] = {
    "key": _KEYWORD,
    "text": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "integer": {"type": "long"},
    "number": {"type": "double"},
    "boolean": {"type": "boolean"},
    "time": {"type": "date"},
    "json": {"type": "object", "enabled": False},
}
"""Mappings of the columns of a new index. Existing indexes keep theirs."""
_DYNAMIC: Final = [
    {"geo": {"match_pattern": "regex", "match": "^(.*_)?(location|geo_point|coordinates)$",
             "mapping": {"type": "geo_point"}}},
    {"integers": {"match_mapping_type": "long", "mapping": {"type": "double"}}},
    {"dates": {"match_mapping_type": "date", "mapping": {"type": "date", "ignore_malformed": True}}},
]  # fmt: skip
"""Mappings of fields that come later: places; and a number whose first value has no fraction may have one later."""
_STALE_AT_ONCE: Final = 1000
"""Documents of earlier fetches that are deleted at once. Up to the server's 10,000."""
_QUERIES_AT_ONCE: Final = 256
"""Queries of two clauses that one search joins. The server takes 1,024 clauses by default."""

_REFRESH_SECONDS = 5
"""Longest wait at the end of the work until the documents can be found."""


class OpenSearchStore:
    """Store in an OpenSearch or Elasticsearch cluster; a table is an index. Implements Store (stores/rows.py)."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        logger = logging.getLogger("opensearch")
        if logger.level == logging.NOTSET:  # it logs each request, and each failure with a trace
            logger.setLevel(logging.ERROR)
        self._client = OpenSearch(
            [{"host": address.host, "port": address.port}],
            use_ssl=address.tls,
            http_auth=(address.user, address.password) if address.user else None,
            http_compress=False,
            timeout=60,
            max_retries=0,
        )
        self._prepared: set[str] = set()
        self._written: set[str] = set()
        """Indexes that have new documents since the connection was opened."""

    def prepare(self, table: StoreTable) -> None:
        try:
            self._prepare(table)
        except OpenSearchException as error:
            raise self._sink_error(error) from error

    def _prepare(self, table: StoreTable) -> None:
        """Make the index, and a template from which it is made again if it is deleted."""
        client, name = self._client, f"gossamer-{table.name}"
        self._check_alias(table)
        if not client.indices.exists(index=table.name):
            if not client.indices.exists_index_template(name=name):
                properties = {column: _MAPPINGS[kind] for column, kind in table.columns.items()}
                properties[OTHER_FIELDS] = _MAPPINGS["json"]  # with fields of any name
                mappings = {"properties": properties, "dynamic_templates": _DYNAMIC}
                template = {"mappings": mappings, "settings": {"index.mapping.total_fields.limit": 2000}}
                body = {"index_patterns": [table.name], "priority": 200, "template": template}
                client.indices.put_index_template(name=name, body=body)
            try:
                client.indices.create(index=table.name)
            except RequestError as error:
                if error.error != "resource_already_exists_exception":  # made by another process
                    raise
        self._prepared.add(table.name)

    def _check_alias(self, table: StoreTable) -> None:
        """Raise BadInput if the name is an alias that does not say which index is to be written."""
        if not self._client.indices.exists_alias(name=table.name):
            return
        found = self._client.indices.get_alias(name=table.name)
        wanted = [index["aliases"][table.name].get("is_write_index") for index in found.values()]
        if True not in wanted and (len(wanted) > 1 or wanted == [False]):
            raise BadInput(
                f"{self.address}: {table.name} is an alias without a write index. Set is_write_index for one of "
                f"{', '.join(sorted(found))}."
            )

    def write(self, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        rows, refused = split_keyless(table, rows)
        if not rows:
            return refused
        try:
            if table.name not in self._prepared:
                self._prepare_again(table)
            if table.parent:
                self._delete_stale(table, rows)
            group: list[tuple[Row, bytes]] = []
            size = 0
            for row in rows:
                lines = _lines(table, row)
                if group and size + len(lines) > _REQUEST_BYTES:
                    refused += self._bulk(table, group)
                    group, size = [], 0
                group.append((row, lines))
                size += len(lines)
            refused += self._bulk(table, group)
            self._written.add(table.name)
            return refused
        except OpenSearchException as error:
            self._prepared.discard(table.name)
            raise self._sink_error(error) from error

    def delete_crawl(self, table: StoreTable, crawl_id: str) -> None:
        try:
            self._delete_where(table, [{"term": {table.crawl: crawl_id}}])
        except NotFoundError:
            return
        except OpenSearchException as error:
            raise self._sink_error(error) from error

    def close(self) -> None:
        for name in self._written & self._prepared:  # a failed write takes its index out of the latter
            # So that a search after the crawl finds all documents, and not only those up to a second before.
            with contextlib.suppress(OpenSearchException):
                self._client.indices.refresh(index=name, request_timeout=_REFRESH_SECONDS)
        self._written.clear()
        self._prepared.clear()
        self._client.close()

    def _prepare_again(self, table: StoreTable) -> None:
        """Prepare a table during the crawl: what is wrong with it is awaited, because a person can mend it."""
        try:
            self._prepare(table)
        except BadInput as error:
            raise SinkError(str(error)) from error

    # --- the work -----------------------------------------------------------------------------------------------------

    def _bulk(self, table: StoreTable, group: Sequence[tuple[Row, bytes]]) -> list[RefusedRow]:
        """Write documents in one request. Returns those that were refused for good; raises SinkError or SinkFull when
        others were refused for now."""
        try:
            answer = self._client.bulk(body=b"".join([lines for _, lines in group]), index=table.name)
        except TransportError as error:
            if error.status_code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(group) == 1:
                row = group[0][0]
                largest = max(row, key=lambda name: len(encode_value(row[name])))
                return [RefusedRow(row, largest, "the document is larger than the server takes")]
            half = len(group) // 2
            return self._bulk(table, group[:half]) + self._bulk(table, group[half:])
        if not answer["errors"]:
            return []
        refused: list[RefusedRow] = []
        later = None
        for (row, _), result in zip(group, answer["items"], strict=True):
            [outcome] = result.values()
            if "error" not in outcome:
                continue
            if outcome["status"] in _PASSING | _NOT_ALLOWED:
                later = outcome["error"]
            else:
                refused.append(_refused(row, outcome["error"]))
        if later is not None:  # the caller sends all of them again, and those that are there are replaced
            self._prepared.discard(table.name)
            reason = _reason(later)
            raise (SinkFull if "flood" in reason or "disk usage" in reason else SinkError)(f"{self.address}: {reason}")
        return refused

    def _delete_stale(self, table: StoreTable, rows: Sequence[Row]) -> None:
        """Delete the items of an earlier fetch of these requests, which may have found more of them. The next item of
        a first attempt is looked up by its id, because a search has to refresh the index."""
        sizes = group_sizes(table, rows)
        repeated = {row[table.parent] for row in rows if row.get(table.parent) and row.get("_attempt")}
        next_ids = {f"{parent}-{size}": parent for parent, size in sizes.items() if parent not in repeated}
        if next_ids:
            found = self._client.mget(index=table.name, body={"ids": list(next_ids)}, params={"_source": "false"})
            repeated |= {next_ids[document["_id"]] for document in found["docs"] if document.get("found")}
        stale = [
            {"bool": {"filter": [{"term": {table.parent: parent}}, {"range": {"_position": {"gte": sizes[parent]}}}]}}
            for parent in repeated
        ]
        for begin in range(0, len(stale), _QUERIES_AT_ONCE):
            self._delete_where(table, stale[begin : begin + _QUERIES_AT_ONCE])

    def _delete_where(self, table: StoreTable, queries: Sequence[dict[str, Any]]) -> None:
        """Delete the documents for which one of the queries holds."""
        self._client.indices.refresh(index=table.name)
        body = {"query": {"bool": {"should": list(queries)}}, "_source": False, "size": _STALE_AT_ONCE}
        while True:
            hits = self._client.search(index=table.name, body=body)["hits"]["hits"]
            if not hits:
                return
            for index in {hit["_index"] for hit in hits}:  # the name of the table may be an alias of several
                ids = (hit["_id"] for hit in hits if hit["_index"] == index)
                lines = b"".join(encode_value({"delete": {"_id": one}}) + b"\n" for one in ids)
                if self._client.bulk(body=lines, index=index, params={"refresh": "true"})["errors"]:
                    raise SinkError(f"{self.address}: old documents of {table.name} cannot be deleted")

    def _sink_error(self, error: OpenSearchException) -> SinkError:
        """Return the error of a sink that says what the server or the connection said."""
        if isinstance(error, Unreachable):  # its text has the whole chain of errors
            return SinkError(f"{self.address}: {_last_words(error)}")
        if isinstance(error, TransportError):
            info = error.info if isinstance(error.info, dict) else {}
            found = info.get("error", error.error)
            reason = _reason(found) if isinstance(found, dict) else str(found)
            return SinkError(f"{self.address}: {reason or HTTPStatus(int(error.status_code)).phrase}")
        return SinkError(f"{self.address}: {error}")


def _lines(table: StoreTable, row: Row) -> bytes:
    """Return the action and the document of a row, as a bulk request has them."""
    document = {name: value for name, value in row.items() if value is not None}
    if "" in document:  # the server has no field without a name
        others = document.get(OTHER_FIELDS, {})
        others = others if isinstance(others, dict) else {OTHER_FIELDS: others}
        document[OTHER_FIELDS] = others | {"": document.pop("")}
    for name, kind in table.columns.items():
        if kind == "time" and document.get(name) == "":
            del document[name]
    parts = [key_text(row[name]) for name in table.key if row.get(name) is not None]
    if len(parts) < len(table.key):
        action: dict[str, Any] = {"index": {}}
    else:
        identity = "\n".join(parts) if len(parts) > 1 and not table.parent else "-".join(parts)
        if len(identity.encode("utf-8", "replace")) > _ID_BYTES:
            identity = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
        action = {"index": {"_id": identity}}
    return encode_value(action) + b"\n" + encode_value(document) + b"\n"


def _refused(row: Row, error: Any) -> RefusedRow:
    """Return a refused row with the field and reason that the server gives."""
    reason = _reason(error)
    found = _FIELD.search(reason)
    name = found[1] if found else ""
    return RefusedRow(row, name if name in row else name.partition(".")[0], reason)


def _reason(error: Any) -> str:
    """Return the reason in an error of the server, with that of its cause."""
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by")
    reason = str(error.get("reason") or error.get("type") or "")
    return f"{reason}: {cause['reason']}" if isinstance(cause, dict) and cause.get("reason") else reason


def _last_words(error: OpenSearchException) -> str:
    """Return what is wrong with a connection."""
    inner = error.args[2] if len(error.args) > 2 else error
    return str(getattr(inner, "reason", None) or inner).rpartition(": ")[2]

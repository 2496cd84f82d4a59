"""Item pipelines for any Scrapy project, with and without Gossamer's frontier.

A project names them in `ITEM_PIPELINES` as `gossamer.scrapy.pipelines.CLASS`, so the names of the classes are fixed.
"""

from gossamer.scrapy.pipelines.lookup import GeocodingPipeline, LookupFailed, LookupPipeline
from gossamer.scrapy.pipelines.programs import ProgramPipeline
from gossamer.scrapy.pipelines.stores import (
    MySqlPipeline,
    OpenSearchPipeline,
    PostgreSqlPipeline,
    RedisHashPipeline,
    StorePipeline,
)
from gossamer.scrapy.pipelines.tidy import TidyPipeline
from gossamer.scrapy.pipelines.workers import ProcessPipeline, ThreadPipeline

__all__ = [
    "GeocodingPipeline",
    "LookupFailed",
    "LookupPipeline",
    "MySqlPipeline",
    "OpenSearchPipeline",
    "PostgreSqlPipeline",
    "ProcessPipeline",
    "ProgramPipeline",
    "RedisHashPipeline",
    "StorePipeline",
    "ThreadPipeline",
    "TidyPipeline",
]

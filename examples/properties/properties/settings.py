"""Settings. Variables of the environment name servers and switch pipelines off; `-s NAME=VALUE` does, too."""

import os
import pkgutil
import sys

from properties.site import at

_given = os.environ.get

BOT_NAME = "properties"
SPIDER_MODULES = ["properties.spiders"]
NEWSPIDER_MODULE = "properties.spiders"
SPIDER_CONTRACTS = {"properties.contracts.PageContract": 10}
ROBOTSTXT_OBEY = False  # the site is ours
TELNETCONSOLE_ENABLED = False

_PIPELINES = {
    "gossamer.scrapy.pipelines.TidyPipeline": 100,
    "scrapy.pipelines.images.ImagesPipeline": 200,
    "gossamer.scrapy.pipelines.GeocodingPipeline": 400,
    "properties.pipelines.SiteAddressPipeline": 500,
    "properties.pipelines.WordsPipeline": 550,
    "gossamer.scrapy.pipelines.ProgramPipeline": 600,
    "gossamer.scrapy.pipelines.MySqlPipeline": 700,
    "gossamer.scrapy.pipelines.PostgreSqlPipeline": 750,
    "gossamer.scrapy.pipelines.OpenSearchPipeline": 800,
    "gossamer.scrapy.pipelines.RedisHashPipeline": 900,
}
_OFF = set(_given("PIPELINES_OFF", "").split(","))
"""Names of classes, separated by commas, or `all`."""
if not (REDIS_HASH_PIPELINE_URL := _given("REDIS_HASH_PIPELINE_URL", "")):
    _OFF.add("RedisHashPipeline")  # without an address of its own it writes to that of the cache
ITEM_PIPELINES = {name: order for name, order in _PIPELINES.items() if not _OFF & {"all", name.rpartition(".")[2]}}

IMAGES_STORE = _given("IMAGES_STORE", "")
GEO_PIPELINE_URL = _given("GEO_PIPELINE_URL", at("/maps/api/geocode/json?sensor=false&address={key}"))
REDIS_PIPELINE_URL = _given("REDIS_PIPELINE_URL", "")
"""Cache of the look-ups."""
# The source of the program, not its path, because a deployed project is a zip.
PROGRAM_PIPELINE_COMMAND = [sys.executable, "-c", (pkgutil.get_data(__package__, "convert.py") or b"").decode(), "1.20"]
PROGRAM_PIPELINE_PROCESSES = 4
MYSQL_PIPELINE_URL = _given("MYSQL_PIPELINE_URL", "")
POSTGRESQL_PIPELINE_URL = _given("POSTGRESQL_PIPELINE_URL", "")
ES_PIPELINE_URL = _given("ES_PIPELINE_URL", "")

ADDONS = {"gossamer.scrapy.WholeFeeds": 0, "gossamer.scrapy.DistributedLinks": 0}
DISTRIBUTED_TARGET_HOSTS = _given("DISTRIBUTED_TARGET_HOSTS", "")
DISTRIBUTED_TARGET_FEED_URL = _given("DISTRIBUTED_TARGET_FEED_URL", "")

if GOSSAMER_FRONTIER := _given("GOSSAMER_FRONTIER"):
    SCHEDULER = "gossamer.scrapy.Scheduler"

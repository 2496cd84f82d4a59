"""Settings. The environment says where the frontier is and where images go; without it, this is stock Scrapy."""

import os

BOT_NAME = "properties"
SPIDER_MODULES = ["properties.spiders"]
NEWSPIDER_MODULE = "properties.spiders"
SPIDER_CONTRACTS = {"properties.contracts.PageContract": 10}
ROBOTSTXT_OBEY = False  # the site is ours
TELNETCONSOLE_ENABLED = False

if IMAGES_STORE := os.environ.get("IMAGES_STORE", ""):
    ITEM_PIPELINES = {"scrapy.pipelines.images.ImagesPipeline": 200}

if GOSSAMER_FRONTIER := os.environ.get("GOSSAMER_FRONTIER"):
    SCHEDULER = "gossamer.scrapy.Scheduler"

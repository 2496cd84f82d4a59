from properties.spiders.sharded import ShardedSpider


class DistributedSpider(ShardedSpider):
    """Reads index pages here. Batches of links to properties become jobs of this spider on DISTRIBUTED_TARGET_HOSTS."""

    name = "distributed"
    custom_settings = {"DISTRIBUTED_TARGET_RULE": 1, "DISTRIBUTED_BATCH_SIZE": 1000}  # noqa: RUF012 - Scrapy's own form
